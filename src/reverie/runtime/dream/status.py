"""How it stands with dreams over a directory: the last one, the gate, the one that runs."""

from __future__ import annotations

import os
from contextlib import suppress

from ...layers.l6_dream import DreamReport, GateClosed, Reason, gate_state
from ...settings import Settings
from ...values import record, replace
from .lock import DreamLock
from .progress import Running, read_progress

__all__ = ["DreamStatus", "status_of"]


@record
class DreamStatus:
    """How it stands with dreams over a directory."""

    last: float | None
    """When the last one was, in seconds since 1970; None where there was none."""
    gate: str
    """Why none begins by itself now; empty where one may."""
    running: Running | None = None
    """The one that runs."""
    ended: Running | None = None
    """How the last one went, where none runs: completed, failed or killed."""
    report: DreamReport | None = None
    """The report of the last one."""


def status_of(root: str, settings: Settings, slug: str, *, now: float, report: DreamReport | None) -> DreamStatus:
    """Look at everything, and leave no note that somebody looked."""
    lock = DreamLock(root)
    found, holder = read_progress(root), lock.holder()
    runs = found is not None and not found.is_over and holder is not None and holder.pid == found.pid
    if found is not None and not found.is_over and not runs:
        found = replace(found, state="killed")  # its lock is free, so nobody dreams it any more
    judgement = gate_state(_Facts(settings, lock, slug, runs), settings.dream, now)
    gate = ""
    if isinstance(judgement, GateClosed):
        gate = f"{judgement.reason}: {judgement.detail}" if judgement.detail else judgement.reason
    return DreamStatus(lock.last(), gate, found if runs else None, None if runs else found, report)


class _Facts:
    """What the gates ask."""

    def __init__(self, settings: Settings, lock: DreamLock, slug: str, runs: bool) -> None:
        self._settings = settings
        self._lock = lock
        self._logs = os.path.join(settings.home, "projects", slug)
        self._runs = runs

    def off(self) -> Reason | None:
        return None if self._settings.switches.dream else "off"

    def dreamt(self) -> float | None:
        return self._lock.last()

    def scanned(self) -> float | None:
        return None

    def has_memories(self) -> bool:
        return os.path.isdir(self._lock.root)

    def touched(self, since: float) -> int:
        count = 0
        with suppress(OSError), os.scandir(self._logs) as entries:
            for entry in entries:
                with suppress(OSError):
                    count += entry.name.endswith(".jsonl") and entry.stat(follow_symlinks=False).st_mtime > since
        return count

    def running(self) -> str:
        return "another dream" if self._runs else ""
