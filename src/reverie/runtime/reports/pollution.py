"""The share of memories that are wrong, duplicate, stale or unsupported, now and before the last dream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from ...errors import InputError
from ...layers.l6_dream import Finding, Findings, findings_in
from ...memories.store.journal_files import read_plain
from ...memories.store.store import MemoryStore
from ...settings import Settings
from ...values import record
from ..dream.facts import facts_for, oversized


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
    for slug, root in _directories(settings, project):
        store = MemoryStore(root)
        files = {head.file: data for head in store.scan().memories if (data := read_plain(root, head.file)) is not None}
        if not files:
            continue
        found.append(_checked(files, settings, slug, root, now))
        then = _before_last_dream(store, files)
        if then is not None:
            before.append(_checked(then, settings, slug, root, now))
            after.append(found[-1])
    if not found:
        return None
    reasons: Counter[str] = Counter()
    for one in found:
        for faults in one.files.values():
            reasons.update({fault.fault for fault in faults})
    total, wrong = sum(one.total for one in found), sum(len(one.files) for one in found)
    return MemoryPollution(total, wrong, dict(sorted(reasons.items())), _share(before), _share(after))


def _directories(settings: Settings, project: str | None) -> list[tuple[str, str]]:
    """Return a list of the existing memory directories as pairs of project slug and path."""
    if settings.memory_dir is not None:
        return [(project or "", str(settings.memory_dir))] if settings.memory_dir.is_dir() else []
    projects: Path = settings.home / "projects"
    wanted = [projects / project] if project is not None else sorted(projects.glob("*"))
    return [(one.name, str(one / "memory")) for one in wanted if (one / "memory").is_dir()]


def _checked(files: Mapping[str, bytes], settings: Settings, slug: str, root: str, now: datetime) -> Findings:
    project = Path(root)  # the project's own directory is unknown here, so links to its files are not checked
    excluded = oversized(files)
    known = {file: data for file, data in files.items() if file not in excluded}
    facts = facts_for(
        root, known, home=settings.home, slug=slug, project=project, dreamt=now.timestamp(), excluded=excluded
    )
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
