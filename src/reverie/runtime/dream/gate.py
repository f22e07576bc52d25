"""The gate of automatic dreams: whether one may start now, by the files on disk; a closed gate costs one ``stat``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Final, Literal

from ...errors import InputError, StorageError
from ...layers.l6_dream import DreamPolicy, DreamReport
from ...memories.store.journal_files import JOURNAL
from ...paths import explained, open_file
from ...ports import Storage
from ...settings import Settings
from ...values import record
from ..places.storage import storage_of
from .lock import DreamLock
from .progress import DreamProgress, read_progress

SCAN: Final = "dream-scan"
"""The file whose time is that of the last scan of the sessions, kept on disk because hooks are short processes."""
_LOG: Final = ".jsonl"


@record
class GateClosed:
    """The reason why no dream may start; ``wait_seconds`` is when to check again, None if that is no use."""

    reason: Literal["off", "too_soon", "no_memories", "just_scanned", "few_sessions", "running"]
    wait_seconds: float | None = None
    detail: str = ""


class DreamGate:
    """The gate of automatic dreams over one memory directory, which new sessions of one project open."""

    def __init__(
        self,
        memory_dir: str | os.PathLike[str],
        *,
        home: str | os.PathLike[str],
        project: str,
        policy: DreamPolicy | None = None,
        clock: Callable[[], float] = time.time,
        stored: Callable[[], Storage] | None = None,
    ) -> None:
        """Prepare checks of a memory directory; ``project`` is the project's slug, or ``InputError`` is raised.

        ``stored`` opens the database that has the sessions, if they are not files of the home.
        """
        if not project or "/" in project:
            raise InputError(f"{project!r} is not a project slug; use the one that 'project_slug' returns")
        self.policy = policy or DreamPolicy()
        self.lock = DreamLock(memory_dir)
        self._logs = os.path.join(os.path.abspath(home), "projects", project)
        self._scan_path = os.path.join(self.lock.root, JOURNAL, SCAN)
        self._clock = clock
        self._stored = stored
        self._project = project
        self._scanned: float | None = None

    def check(self, current_session: str = "", *, enabled: bool = True, is_recorded: bool = True) -> GateClosed | None:
        """Return why no dream may start now, or None if one may; cheap checks come first.

        ``current_session`` does not count as a new session; the gate is closed unless ``enabled``. A check that is not
        recorded delays no later one.
        """
        if not enabled:
            return GateClosed("off")
        policy, now, dreamt = self.policy, self._clock(), self.lock.last()
        if left := policy.seconds_until_due(now, dreamt):
            return GateClosed("too_soon", left)
        pause, scanned = policy.scan_minutes * 60.0, self._last_scan(now)
        if scanned is not None and 0.0 <= now - scanned < pause:
            return GateClosed("just_scanned", pause - (now - scanned))
        if not os.path.isdir(self.lock.root):
            return GateClosed("no_memories", pause)
        since = 0.0 if dreamt is None or dreamt > now else max(dreamt, 0.0)  # a time in the future is invalid
        sessions = self._touched(since, now, current_session, is_recorded)
        if sessions < policy.min_sessions:
            return GateClosed("few_sessions", pause, f"{sessions} of {policy.min_sessions} sessions")
        running = self._running()
        return GateClosed("running", pause, running) if running else None

    # -- facts of one check

    def _last_scan(self, now: float) -> float | None:
        """Return the time of the last scan of the sessions by this process, else by any; None without a scan."""
        pause = self.policy.scan_minutes * 60.0
        own = self._scanned
        if own is not None and 0.0 <= now - own < pause:
            return own
        with suppress(OSError):
            self._scanned = os.lstat(self._scan_path).st_mtime
            return self._scanned
        return None

    def _touched(self, since: float, now: float, current_session: str, is_recorded: bool) -> int:
        """Count the sessions written after a time, up to the number that opens the gate, and record this scan."""
        if is_recorded:
            self._scanned = now
            with suppress(StorageError):  # without the record, the next check scans again
                self._note_scan(now)
        own = current_session + _LOG
        count = 0
        if self._stored is not None:
            return min(self.policy.min_sessions, self._stored_since(self._stored, since, own))
        with explained("list", self._logs), suppress(FileNotFoundError), os.scandir(self._logs) as entries:
            for entry in entries:
                if entry.name.endswith(_LOG) and entry.name != own and _time_of(entry) > since:
                    count += 1
                    if count >= self.policy.min_sessions:
                        break
        return count

    def _stored_since(self, stored: Callable[[], Storage], since: float, own: str) -> int:
        folder = f"projects/{self._project}/"
        with closing(stored()) as storage:
            logs = [one for one in storage.stamps(folder) if one.key.count("/") == 2 and one.key.endswith(_LOG)]
        return sum(one.changed_ns > since * 1e9 for one in logs if one.key != folder + own)

    def _note_scan(self, now: float) -> None:
        with explained("write", self._scan_path):
            descriptor = open_file(self.lock.root, f"{JOURNAL}/{SCAN}", os.O_WRONLY | os.O_CREAT)
            try:
                os.utime(descriptor, (now, now))
            finally:
                os.close(descriptor)

    def _running(self) -> str:
        """Return a description of the running dream; empty without one, or if it hangs and will be stopped."""
        holder = self.lock.holder()
        if holder is None or holder.is_hung(self.policy.hung_minutes * 60.0):
            return ""
        return str(holder)


def _time_of(entry: os.DirEntry[str]) -> float:
    """Return the modification time of a log; 0 if it is not a regular file or was deleted meanwhile."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime if entry.is_file(follow_symlinks=False) else 0.0
    except OSError:
        return 0.0


def gate_of(
    memory_dir: str | os.PathLike[str], settings: Settings, project: str, *, clock: Callable[[], float] = time.time
) -> DreamGate:
    """Return the gate of a project's dreams by the settings; ``project`` is its slug."""
    stored = None if settings.database is None else partial(storage_of, settings)
    return DreamGate(memory_dir, home=settings.home, project=project, policy=settings.dream, clock=clock, stored=stored)


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
    found = read_progress(root)
    running = None if found is None or found.is_over else found
    gate = gate_of(root, settings, slug, clock=lambda: now)
    closed = gate.check(enabled=settings.switches.dream, is_recorded=False)
    reason = ": ".join(filter(None, (closed.reason, closed.detail))) if closed is not None else ""
    return DreamStatus(DreamLock(root).last(), reason, running, None if running else found, report)
