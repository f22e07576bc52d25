"""Statistics over all sessions: cost and tokens by day, project, session and layer, with quality measures.

Cost and tokens come from the ledger, those of imported sessions from their replies; compactions and kept facts come
from the logs with entries of the same days.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Final

from ...cache.ledger import MAIN, LedgerAxis, LedgerCall, Totals, layer_of
from ...cache.prices import Prices, prices_for
from ...conversation.entries import Entry, iso, seconds
from ...errors import InputError, StorageError
from ...layers.l6_dream import Finding, Findings, findings_in
from ...memories.store.side_files import read_plain
from ...memories.store.store import MemoryStore
from ...ports import Storage
from ...settings import Settings
from ...values import record
from ..agent.budgets import Budgets, BudgetUse
from ..dream.facts import facts_for, has_session, oversized
from ..library import Library
from ..memory.shared_journal import StoredJournal, shared_folders
from ..places.storage import database_of, storage_of
from ..search.log_text import logs_in
from ..session.ledger import LedgerStore, open_ledger
from .measures import Measures, measure, total_of

AXES: Final[tuple[LedgerAxis, ...]] = ("session", "day", "project", "layer")


@record
class Stats:
    """The statistics of the days since ``since``, for one project or all."""

    since: str
    """The first day included, in UTC."""
    total: Totals
    by_layer: Mapping[str, Totals]
    by_day: Mapping[str, Totals]
    by_project: Mapping[str, Totals]
    by_session: Mapping[str, Totals]
    measures: Measures
    budgets: tuple[BudgetUse, ...]
    memories: MemoryPollution | None = None
    newest: str = ""
    """The day of the newest entry in a log that is older than these days; empty if there is none."""
    notice: str = ""
    """A sentence about a ledger that was damaged and rebuilt; empty otherwise."""
    jobs: Mapping[str, int] | None = None
    """The jobs of the tenant that are not done, by status; None without a database."""

    def by(self, axis: LedgerAxis) -> Mapping[str, Totals]:
        """Return the totals by session, day, project or layer."""
        return {"session": self.by_session, "day": self.by_day, "project": self.by_project, "layer": self.by_layer}[
            axis
        ]

    @property
    def conversation_usd(self) -> float:
        """The cost of the main conversation, in USD."""
        return self._usd_of(layer_of(MAIN))

    @property
    def extraction_usd(self) -> float:
        """The cost of extracting memories, in USD."""
        return self._usd_of(layer_of("extract"))

    def _usd_of(self, layer: str) -> float:
        return self.by_layer[layer].usd if layer in self.by_layer else 0.0

    @property
    def background_usd(self) -> float:
        """The cost of all layers but that of the main conversation, in USD."""
        return sum(one.usd for layer, one in self.by_layer.items() if layer != layer_of(MAIN))


def stats_of(
    settings: Settings,
    *,
    days: int,
    now: datetime,
    project: str | None = None,
    track: Callable[[list[str]], Iterable[str]] = iter,
) -> Stats:
    """Return statistics of the last ``days`` days, of one project or all; ``track`` wraps the list of log keys.

    A call counts on its own day. The calls of imported sessions are those that their replies report.
    """
    since = (now.astimezone(UTC) - timedelta(days=days - 1)).strftime("%Y-%m-%d")
    measures, imported, newest = _measured(settings, since, project, track)
    with open_ledger(settings) as store:
        sums = {axis: _with(store.by(axis, project=project, since=since), imported, axis) for axis in AXES}
        budgets = _budgets(store, settings, now, project)
        notice = store.notice
    memories = pollution_of(settings, now=now, project=project)
    return Stats(
        since,
        total_of_rows(sums["layer"].values()),
        sums["layer"],
        sums["day"],
        sums["project"],
        sums["session"],
        measures,
        budgets,
        memories,
        newest,
        notice,
        jobs=_jobs(settings),
    )


def _jobs(settings: Settings) -> dict[str, int] | None:
    """Return the number of a tenant's jobs by status; None without a database or without its job tables."""
    if settings.database is None:
        return None
    from ..jobs.queue import JobQueue

    with suppress(StorageError), closing(JobQueue(settings.database, settings.tenant or "")) as queue:
        return dict(Counter(row.status for row in queue.jobs()))
    return None


def _measured(
    settings: Settings, since: str, project: str | None, track: Callable[[list[str]], Iterable[str]]
) -> tuple[Measures, list[LedgerCall], str]:
    """Measure the logs with entries since a UTC day.

    Return the sum, the calls that only recordings report, and the last day of older logs.
    """
    found: list[Measures] = []
    calls: list[LedgerCall] = []
    older = ""
    with closing(storage_of(settings)) as storage:
        library = Library(storage)
        for key in track(touched_keys(storage, since=since, project=project)):
            entries = library.load(key).entries
            last = iso(max((entry.at for entry in entries), default=0.0))[:10]
            if last < since:
                older = max(older, last)
                continue
            place, _, session = key.split("/", 1)[1].removesuffix(".jsonl").rpartition("/")
            found.append(
                measure(
                    entries,
                    price_list(entries),
                    failures_open=settings.compact.failures,
                    session=session,
                    project=place,
                    reported_calls=calls,
                )
            )
    # A session that was forked has the calls of its past once more.
    once = {(call.at, call.model, call.actual): call for call in calls if call.day >= since}
    return total_of(found), list(once.values()), older


def _with(rows: dict[str, Totals], calls: Iterable[LedgerCall], axis: LedgerAxis) -> dict[str, Totals]:
    """Return the totals of an axis with more calls, most expensive first, but days in order."""
    for call in calls:
        key = getattr(call, axis)
        rows[key] = rows.get(key, Totals()).plus(call)
    return dict(sorted(rows.items(), key=lambda row: row[0] if axis == "day" else (-row[1].usd, row[0])))


def touched_keys(storage: Storage, *, since: str, project: str | None = None) -> list[str]:
    """Return the keys of the logs, of one project or all, that were written on the UTC day ``since`` or later."""
    first = datetime.fromisoformat(since).replace(tzinfo=UTC).timestamp() if since else 0.0
    wanted = (one for one in logs_in(storage) if project is None or one.key.split("/")[1] == project)
    return [one.key for one in wanted if one.changed_ns >= first * 1e9]


def price_list(entries: Iterable[Entry]) -> Callable[[str], Prices | None]:
    """Return a function that returns a model's prices at the time of a session's last entry."""
    last = ""
    for entry in entries:
        last = entry.time or last
    at = seconds(last) if last else None

    @cache
    def look_up(model: str) -> Prices | None:
        return prices_for(model, at=at) if model else None

    return look_up


def total_of_rows(rows: Iterable[Totals]) -> Totals:
    """Return the sum of all rows, empty totals if there are none."""
    total = Totals()
    for row in rows:
        total = total.and_also(row)
    return total


def _budgets(store: LedgerStore, settings: Settings, now: datetime, project: str | None) -> tuple[BudgetUse, ...]:
    """Return the use of all budgets for sessions, today's use of extraction and the use of the last dream."""
    today = now.astimezone(UTC).strftime("%Y-%m-%d")
    extracted = store.calls(source="extract", day=today)
    dreams = store.calls(source="dream")
    last = [call for call in dreams if call.session == dreams[-1].session] if dreams else []
    extract, dream = settings.extract, settings.dream
    return (
        *Budgets(settings, project or "").used(now.timestamp()),
        BudgetUse(
            "extraction",
            sum(call.usd or 0.0 for call in extracted),
            extract.daily_usd,
            sum(call.actual.input + call.actual.output for call in extracted),
            extract.daily_tokens,
            "day",
        ),
        BudgetUse(
            "dream",
            sum(call.usd or 0.0 for call in last),
            dream.budget_usd,
            sum(call.actual.input + call.actual.output for call in last),
            dream.budget_tokens,
            "run",
        ),
    )


@record
class MemoryPollution:
    """The number of memories, and of those with at least one fault."""

    memories: int
    wrong: int
    reasons: Mapping[str, int]
    """The number of memories by fault: ``wrong``, ``duplicate``, ``stale``, ``unsupported``."""
    files: Mapping[str, tuple[str, ...]]
    """The reasons of each memory with a fault, by its project and file."""
    before: float | None = None
    """The share of faulty memories before the last dreams; None if there were no dreams."""
    after: float | None = None
    """The share of faulty memories now, in directories that had a dream; None if there were none."""

    @property
    def rate(self) -> float | None:
        """The share of faulty memories; None if there are no memories."""
        return self.wrong / self.memories if self.memories else None


def pollution_of(settings: Settings, *, now: datetime, project: str | None = None) -> MemoryPollution | None:
    """Check the memories of one project or of all without changing them; return None if there are no memories."""
    found: list[Findings] = []
    named: dict[str, tuple[str, ...]] = {}
    before: list[Findings] = []
    after: list[Findings] = []
    with closing(storage_of(settings)) as storage:
        for slug, store in _stores(settings, storage, project):
            heads = store.scan().memories
            files = {head.file: data for head in heads if (data := read_plain(store.root, head.file)) is not None}
            if not files:
                continue
            has_log = partial(has_session, storage, slug)
            found.append(_checked(files, settings, has_log, store, now))
            for file, faults in found[-1].files.items():
                named[f"{slug}/{file}" if slug else file] = tuple(f"{one.fault}: {one.reason}" for one in faults)
            then = _before_last_dream(store, files)
            if then is not None:
                before.append(_checked(then, settings, has_log, store, now))
                after.append(found[-1])
    if not found:
        return None
    reasons: Counter[str] = Counter()
    for one in found:
        for faults in one.files.values():
            reasons.update({fault.fault for fault in faults})
    total, wrong = sum(one.total for one in found), sum(len(one.files) for one in found)
    return MemoryPollution(total, wrong, dict(sorted(reasons.items())), named, _share(before), _share(after))


def _stores(settings: Settings, storage: Storage, project: str | None) -> Iterator[tuple[str, MemoryStore]]:
    """Yield the memory directories of one project or of all, each with its project's slug."""
    database = database_of(storage)
    if settings.memory_dir is not None:
        if settings.memory_dir.is_dir():
            yield project or "", MemoryStore(str(settings.memory_dir))
    elif database is not None:
        for folder in shared_folders(storage, "projects"):
            if project in (None, slug := folder.split("/")[1]):
                shared = StoredJournal(storage, folder, database.tenant)
                store = MemoryStore(str(settings.home / folder), shared=shared)
                store.refresh()
                yield slug, store
    else:
        projects: Path = settings.home / "projects"
        for one in [projects / project] if project is not None else sorted(projects.glob("*")):
            if (one / "memory").is_dir():
                yield one.name, MemoryStore(str(one / "memory"))


def _checked(
    files: Mapping[str, bytes],
    settings: Settings,
    has_log: Callable[[str], bool],
    store: MemoryStore,
    now: datetime,
) -> Findings:
    project = Path(store.root)  # the project's own directory is unknown here, so links to its files are not checked
    excluded = oversized(files)
    known = {file: data for file, data in files.items() if file not in excluded}
    facts = facts_for(store, known, project=project, has_session=has_log, dreamt=now.timestamp(), excluded=excluded)
    found = findings_in(known, now=now, policy=settings.dream, facts=facts)
    wrong = {file: (Finding("wrong", why),) for file, why in excluded.items()}
    return Findings(len(files), {**found.files, **wrong})


def _before_last_dream(store: MemoryStore, files: Mapping[str, bytes]) -> dict[str, bytes] | None:
    """Return the files without the changes of the last dream; None if there was no dream or it is undone."""
    history = store.history()
    last = next((one for one in reversed(history.entries) if one.act == "dreamed"), None)
    if last is None or last.id in history.undone_ids():
        return None
    known = dict(files)
    for change in last.changes:
        try:
            content = history.content_before(change)
        except InputError:
            continue  # the user erased this version
        if content is None:
            known.pop(change.file, None)
        else:
            known[change.file] = content
    return known


def _share(found: list[Findings]) -> float | None:
    total = sum(one.total for one in found)
    return sum(len(one.files) for one in found) / total if total else None
