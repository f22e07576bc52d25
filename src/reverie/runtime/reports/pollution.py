"""How many memories are of no use: what lint and a dream find wrong, duplicate, stale or unsupported, and what a dream
changed about that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from ...errors import InputError
from ...layers.l6_dream import Finding, Findings, findings_in
from ...memories.store.store import MemoryStore
from ...settings import Settings
from ...values import record
from ..dream.facts import facts_for, unwieldy
from ..dream.transaction import snapshot_of

__all__ = ["Pollution", "pollution_of"]


@record
class Pollution:
    """Memories, and those of them that something is wrong with."""

    memories: int
    wrong: int
    reasons: Mapping[str, int]
    """How many there are of each kind: ``wrong``, ``duplicate``, ``stale``, ``unsupported``."""
    before: float | None = None
    """The share before the last dreams, where there were some."""
    after: float | None = None
    """The share after them."""

    @property
    def rate(self) -> float | None:
        """The share that something is wrong with; None where there are no memories."""
        return self.wrong / self.memories if self.memories else None


def pollution_of(settings: Settings, *, now: datetime, project: str | None = None) -> Pollution | None:
    """Look through the memories of one project, or of all; None where there are none. Nothing is changed."""
    found: list[Findings] = []
    before: list[Findings] = []
    after: list[Findings] = []
    for slug, root in _directories(settings, project):
        files = snapshot_of(MemoryStore(root), notice=False).files
        if not files:
            continue
        found.append(_looked(files, settings, slug, root, now))
        then = _before_last_dream(MemoryStore(root), files)
        if then is not None:
            before.append(_looked(then, settings, slug, root, now))
            after.append(found[-1])
    if not found:
        return None
    reasons: Counter[str] = Counter()
    for one in found:
        for faults in one.files.values():
            reasons.update({fault.fault for fault in faults})
    total, wrong = sum(one.total for one in found), sum(len(one.files) for one in found)
    return Pollution(total, wrong, dict(sorted(reasons.items())), _share(before), _share(after))


def _directories(settings: Settings, project: str | None) -> list[tuple[str, str]]:
    """Return the memory directories there are, each with the project it belongs to."""
    if settings.memory_dir is not None:
        return [(project or "", str(settings.memory_dir))] if settings.memory_dir.is_dir() else []
    projects: Path = settings.home / "projects"
    wanted = [projects / project] if project is not None else sorted(projects.glob("*"))
    return [(one.name, str(one / "memory")) for one in wanted if (one / "memory").is_dir()]


def _looked(files: Mapping[str, bytes], settings: Settings, slug: str, root: str, now: datetime) -> Findings:
    project = Path(root)  # links to files of a project are not judged: where it lies is not known here
    aside = unwieldy(files)
    known = {file: data for file, data in files.items() if file not in aside}
    facts = facts_for(root, known, home=settings.home, slug=slug, project=project, dreamt=now.timestamp(), aside=aside)
    found = findings_in(known, now=now, policy=settings.dream, facts=facts)
    wrong = {file: (Finding("wrong", why),) for file, why in aside.items()}
    return Findings(len(files), {**found.files, **wrong})


def _before_last_dream(shelf: MemoryStore, files: Mapping[str, bytes]) -> dict[str, bytes] | None:
    """Return the files as they would be now without what the last dream did to them; None where none did anything."""
    history = shelf.history()
    last = next((one for one in reversed(history.entries) if one.act == "dreamed"), None)
    if last is None or any(last.id in one.undoes for one in history.entries):
        return None
    known = dict(files)
    for change in last.changes:
        try:
            content = history.content_before(change)
        except InputError:
            continue  # erased since, on somebody's wish
        if content is None:
            known.pop(change.file, None)
        else:
            known[change.file] = content
    return known


def _share(found: list[Findings]) -> float | None:
    total = sum(one.total for one in found)
    return sum(len(one.files) for one in found) / total if total else None
