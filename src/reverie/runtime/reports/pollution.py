"""The share of memories that are wrong, duplicate, stale or unsupported, now and before the last dream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path

from ...errors import InputError
from ...layers.l6_dream import Finding, Findings, findings_in
from ...memories.store.side_files import read_plain
from ...memories.store.store import MemoryStore
from ...ports import Storage
from ...settings import Settings
from ...values import record
from ..dream.facts import facts_for, has_session, oversized
from ..memory.shared_journal import StoredJournal, shared_folders
from ..places.storage import database_of, storage_of


@record
class MemoryPollution:
    """The number of memories, and of those with at least one fault."""

    memories: int
    wrong: int
    reasons: Mapping[str, int]
    """The number of memories by fault: ``wrong``, ``duplicate``, ``stale``, ``unsupported``."""
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
    return MemoryPollution(total, wrong, dict(sorted(reasons.items())), _share(before), _share(after))


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
    if last is None or any(last.id in one.undoes for one in history.entries):
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
