"""The status of dreams over a directory: the last one, the gate, and the running one."""

from __future__ import annotations

import os
from contextlib import suppress

from ...layers.l6_dream import DreamReport, GateClosed, Reason, gate_state
from ...settings import Settings
from ...values import record, replace
from .lock import DreamLock
from .progress import DreamProgress, read_progress

__all__ = ["DreamStatus", "status_of"]


@record
class DreamStatus:
    """The status of dreams over a memory directory."""

    last: float | None
    """The time of the last dream in seconds since 1970; None if there was none."""
    gate: str
    """The reason why no dream starts automatically now; empty if one may."""
    running: DreamProgress | None = None
    """The progress of the running dream; None if no dream is running."""
    ended: DreamProgress | None = None
    """The progress of the last dream if none is running: completed, failed or killed."""
    report: DreamReport | None = None
    """The report of the last dream; None if there is none."""


def status_of(root: str, settings: Settings, slug: str, *, now: float, report: DreamReport | None) -> DreamStatus:
    """Return the status of dreams over a directory; unlike a check of the gate, this records no scan."""
    lock = DreamLock(root)
    found, holder = read_progress(root), lock.holder()
    runs = found is not None and not found.is_over and holder is not None and holder.pid == found.pid
    if found is not None and not found.is_over and not runs:
        found = replace(found, state="killed")  # its lock is free, so its process has ended
    judgement = gate_state(_GateFacts(settings, lock, slug, runs), settings.dream, now)
    gate = ""
    if isinstance(judgement, GateClosed):
        gate = f"{judgement.reason}: {judgement.detail}" if judgement.detail else judgement.reason
    return DreamStatus(lock.last(), gate, found if runs else None, None if runs else found, report)


class _GateFacts:
    """The facts for the gate, read without a record of the scan."""

    def __init__(self, settings: Settings, lock: DreamLock, slug: str, runs: bool) -> None:
        self._settings = settings
        self._lock = lock
        self._logs = os.path.join(settings.home, "projects", slug)
        self._runs = runs

    def disabled_reason(self) -> Reason | None:
        return None if self._settings.switches.dream else "off"

    def last_dream_at(self) -> float | None:
        return self._lock.last()

    def last_scan_at(self) -> float | None:
        return None

    def has_memories(self) -> bool:
        return os.path.isdir(self._lock.root)

    def touched_sessions(self, since: float) -> int:
        count = 0
        with suppress(OSError), os.scandir(self._logs) as entries:
            for entry in entries:
                with suppress(OSError):
                    count += entry.name.endswith(".jsonl") and entry.stat(follow_symlinks=False).st_mtime > since
        return count

    def running_dream(self) -> str:
        return "another dream" if self._runs else ""
