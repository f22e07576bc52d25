"""Statistics over all sessions: cost and tokens by day, project, session and layer, with quality measures.

Cost and tokens come from the ledger, those of imported sessions from their replies; compactions and kept facts come
from the logs with entries of the same days.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from ...cache.ledger import MAIN, LedgerAxis, LedgerCall, Totals, layer_of
from ...cache.prices import Prices, prices_for
from ...conversation.entries import Entry, iso, seconds
from ...errors import StorageError
from ...ports import Storage
from ...settings import Settings
from ...values import record
from ..agent.budgets import Budgets, BudgetUse
from ..library import Library
from ..places.storage import storage_of
from ..search.log_text import logs_in
from ..session.ledger import LedgerStore, open_ledger
from .measures import Measures, measure, total_of
from .pollution import MemoryPollution, pollution_of

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
    """The jobs of the tenant by status, without those that succeeded; None without a database."""

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
        return dict(Counter(row.status for row in queue.jobs() if row.status != "succeeded"))
    return None


def _measured(
    settings: Settings, since: str, project: str | None, track: Callable[[list[str]], Iterable[str]]
) -> tuple[Measures, list[LedgerCall], str]:
    """Measure the logs with entries since a UTC day.

    Return the sum, the calls that only recordings report, and the last day of older logs.
    """
    storage = storage_of(settings)
    found: list[Measures] = []
    calls: list[LedgerCall] = []
    older = ""
    try:
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
    finally:
        storage.close()
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
