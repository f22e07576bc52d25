"""The status of dreams over a directory: the last one, the gate, and the running one."""

from __future__ import annotations

from ...layers.l6_dream import DreamReport, GateClosed
from ...settings import Settings
from ...values import record, replace
from .gate import gate_of
from .lock import DreamLock
from .progress import DreamProgress, read_progress


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
    running = running_dream(root)
    found = running or read_progress(root)
    if found is not None and not found.is_over and running is None:
        found = replace(found, state="killed")  # its lock is free, so its process has ended
    gate = gate_of(root, settings, slug, clock=lambda: now)
    judgement = gate.check(enabled=settings.switches.dream, is_recorded=False)
    reason = ""
    if isinstance(judgement, GateClosed):
        reason = f"{judgement.reason}: {judgement.detail}" if judgement.detail else judgement.reason
    return DreamStatus(DreamLock(root).last(), reason, running, None if running else found, report)


def running_dream(root: str) -> DreamProgress | None:
    """Return the progress of the dream that runs over a directory; None if none does."""
    found = read_progress(root)
    if found is None or found.is_over:
        return None
    holder = DreamLock(root).holder()
    return found if holder is not None and holder.pid == found.pid else None
