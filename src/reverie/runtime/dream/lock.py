"""Who may dream over a directory, and when the last dream was.

Two files. ``.journal/dream-lock`` is the lock: it is never removed, the system holds it for one open file (``flock``),
and it is free the moment its holder dies. What stands in it is who holds it, so that a hung one can be ended.
``.consolidate-lock`` is the stamp: its time is that of the last dream, its text a note for people; no decision rests on
that text.

The stamp's time moves once, by a rename, when a dream has succeeded. A run that fails or is killed at whatever step has
not moved it, so there is nothing to repair before it can be believed, and one ``stat`` is enough to ask.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias, cast

from ...errors import StorageError
from ...memories.store.journal_files import JOURNAL
from ...paths import explain, explained, flush, open_plain, opened_folder, refuse_unless_plain, sync_folder
from ...values import record
from ..places.processes import ProcessIdentity, is_alive, own_identity

__all__ = ["LOCK", "STAMP", "DreamLock", "Held", "Holder"]

STAMP: Final = ".consolidate-lock"
LOCK: Final = "dream-lock"
_BESIDE: Final = "dream-stamp"  # one name, because only the holder writes it; what a killed one left is written over
_NEVER_NS: Final = 1  # the stamp's time during a first dream: 1970 opens every gate, and nobody else sets this one
_RECORD_BYTES: Final = 512  # one write of one sector: there or not
_MAX_READ_BYTES: Final = 4_096
_NS: Final = 1_000_000_000

State: TypeAlias = Literal["running", "completed", "failed"]


@record
class Holder:
    """Who holds the lock, and since when."""

    who: ProcessIdentity
    began: float
    """When the run began, by its own clock, in seconds since 1970."""
    taken: float
    """When it took the lock, on the machine's clock that nobody sets."""
    earlier_ns: int | None
    """When the last dream was before this one; None where there was none."""

    @property
    def pid(self) -> int:
        """Return the number of its process."""
        return self.who.pid

    def held_seconds(self) -> float:
        """Return for how long it has held the lock, however the clock on the wall was set meanwhile."""
        return max(0.0, time.monotonic() - self.taken)

    def is_hung(self, hung_seconds: float) -> bool:
        """Say whether it has held the lock too long and is known to be the process that was written down."""
        return self.held_seconds() >= hung_seconds and is_alive(self.who) is True

    def __str__(self) -> str:
        return f"process {self.pid}, for {self.held_seconds():.0f} s"


class DreamLock:
    """The lock and the stamp of one memory directory."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(directory)
        self.stamp_path = os.path.join(self.root, STAMP)
        self.lock_path = os.path.join(self.root, JOURNAL, LOCK)

    def last(self) -> float | None:
        """Return when the last dream was, by the stamp; None where there was none."""
        try:
            found = os.lstat(self.stamp_path).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise explain(error, "look at", self.stamp_path) from error
        return found if found >= 1.0 else None

    def holder(self) -> Holder | None:
        """Return who is dreaming, None where nobody is; only ``take`` decides who may."""
        with explained("look at", self.lock_path):
            try:
                with self._folder() as folder:
                    descriptor = open_plain(folder, LOCK, os.O_RDONLY, self.lock_path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            try:
                found = _holder_in(os.pread(descriptor, _MAX_READ_BYTES, 0))
            finally:
                os.close(descriptor)
            if found is None:
                return None
            alive = is_alive(found.who)
            if alive is None:  # of another boot, machine or container: its lock lives or does not
                alive = self._is_locked()
        return found if alive else None

    def take(self, now: float) -> Held | None:
        """Take the lock and begin a run at this time; None where somebody else has it."""
        with explained("lock", self.lock_path):
            try:
                descriptor = self._lock()
            except BlockingIOError:
                return None
            try:
                return self._begun(descriptor, now)
            except BaseException:
                _unlock(descriptor)
                raise

    # -- the lock

    def _folder(self, *, create: bool = False) -> AbstractContextManager[int]:
        return opened_folder(self.root, (JOURNAL,), create=create)

    def _lock(self) -> int:
        """Lock the lock file and make sure that it is still the one others would lock."""
        while True:
            with self._folder(create=True) as folder:
                descriptor = open_plain(folder, LOCK, os.O_RDWR | os.O_CREAT, self.lock_path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self.is_lock(descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def is_lock(self, descriptor: int) -> bool:
        """Say whether an open file is the one that others would lock."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return os.path.samestat(os.fstat(descriptor), os.stat(self.lock_path, follow_symlinks=False))
        return False

    def _is_locked(self) -> bool:
        try:
            _unlock(self._lock())
        except BlockingIOError:
            return True
        return False

    def _begun(self, descriptor: int, now: float) -> Held:
        """Write down who has the lock; whatever a killed holder left there is out of date by now."""
        earlier = self._stamped_ns()
        holder = Holder(own_identity(), now, time.monotonic(), earlier)
        line = json.dumps(_as_json(holder)).encode().ljust(_RECORD_BYTES - 1) + b"\n"
        if os.pwrite(descriptor, line, 0) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(descriptor, len(line))
        flush(descriptor)
        try:
            self.write_stamp(holder, "running", _NEVER_NS if earlier is None else earlier)
        except BaseException:
            if earlier is None:
                with suppress(OSError):
                    self.remove_stamp()
            raise
        return Held(self, descriptor, holder)

    # -- the stamp

    def _stamped_ns(self) -> int | None:
        try:
            found = os.lstat(self.stamp_path).st_mtime_ns
        except FileNotFoundError:
            return None
        return None if found == _NEVER_NS else found  # of a first run that was killed: there was no stamp before it

    def write_stamp(self, holder: Holder, state: State, time_ns: int) -> None:
        """Put a stamp with this note and this time in the place of what is there, in one step."""
        with self._folder() as beside, opened_folder(self.root, ()) as root:
            with suppress(FileNotFoundError):
                refuse_unless_plain(os.stat(STAMP, dir_fd=root, follow_symlinks=False), self.stamp_path)
            with suppress(FileNotFoundError):
                os.unlink(_BESIDE, dir_fd=beside)
            path = os.path.join(self.root, JOURNAL, _BESIDE)
            descriptor = open_plain(beside, _BESIDE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, path)
            try:
                os.write(descriptor, (json.dumps({**_as_json(holder), "state": state}) + "\n").encode())
                os.utime(descriptor, ns=(time_ns, time_ns))
                flush(descriptor)
            finally:
                os.close(descriptor)
            os.rename(_BESIDE, STAMP, src_dir_fd=beside, dst_dir_fd=root)
            sync_folder(root)

    def remove_stamp(self) -> None:
        """Remove the stamp, where there is one."""
        with opened_folder(self.root, ()) as root, suppress(FileNotFoundError):
            os.unlink(STAMP, dir_fd=root)
            sync_folder(root)


class Held:
    """A run that holds the lock; as a context it fails unless it was said to have succeeded."""

    def __init__(self, lock: DreamLock, descriptor: int, holder: Holder) -> None:
        self.holder = holder
        self._lock = lock
        self._descriptor: int | None = descriptor
        self._ending = threading.Lock()
        _all_held.add(self)

    @property
    def began(self) -> float:
        """Return when the run began, by its own clock."""
        return self.holder.began

    @property
    def earlier(self) -> float | None:
        """Return when the last dream was before this one."""
        return None if self.holder.earlier_ns is None else self.holder.earlier_ns / _NS

    def is_sure(self) -> bool:
        """Say whether the lock is still the one that others would take: nobody removed its file meanwhile."""
        return self._descriptor is not None and self._lock.is_lock(self._descriptor)

    def succeed(self) -> None:
        """End the run and leave the start of it as the time of the last dream."""
        with explained("write", self._lock.stamp_path):
            self._end(self._complete)

    def fail(self) -> None:
        """End the run and leave the time of the last dream as it was before."""
        with suppress(OSError, StorageError):  # only a note is left behind: the time has not moved
            self._end(self._restore)

    def _complete(self) -> None:
        try:
            self._lock.write_stamp(self.holder, "completed", _ns(self.began))
        except BaseException:
            with suppress(OSError, StorageError):
                self._restore()
            raise

    def _restore(self) -> None:
        if self.holder.earlier_ns is None:
            self._lock.remove_stamp()
        else:
            self._lock.write_stamp(self.holder, "failed", self.holder.earlier_ns)

    def _end(self, last_act: Callable[[], None]) -> None:
        """Do what is done last, unless the run is over, and let go of the lock whatever comes of it."""
        with self._ending:
            descriptor = self._descriptor
            if descriptor is None:
                return
            try:
                if self._lock.is_lock(descriptor):
                    last_act()
                else:
                    raise StorageError(
                        f"{self._lock.lock_path} was removed while a dream was running; leave it where it is",
                        path=self._lock.lock_path,
                    )
            finally:
                self._descriptor = None
                _all_held.discard(self)
                _unlock(descriptor)

    def abandon(self) -> None:
        """Close the file in a forked child: the run is the parent's, and ends with the parent."""
        descriptor, self._descriptor = self._descriptor, None
        self._ending = threading.Lock()
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.fail()


def _unlock(descriptor: int) -> None:
    """Say that nobody holds the lock, then let go of it."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # at once, though a child being started may share the file
    os.close(descriptor)


def _ns(seconds: float) -> int:
    return max(1, round(seconds * _NS))


def _as_json(holder: Holder) -> dict[str, object]:
    who = holder.who
    return {
        "pid": who.pid,
        "started": who.started,
        "boot": who.boot,
        "space": who.space,
        "began": holder.began,
        "began_at": datetime.fromtimestamp(holder.began, UTC).isoformat(timespec="seconds"),
        "taken": holder.taken,
        "earlier_ns": holder.earlier_ns,
    }


def _holder_in(data: bytes) -> Holder | None:
    """Read who holds the lock; None where nobody is named, or nothing that could be one of ours."""
    try:
        said = cast("dict[str, Any]", json.loads(data))
        who = ProcessIdentity(int(said["pid"]), str(said["started"]), str(said["boot"]), str(said["space"]))
        earlier = said["earlier_ns"]
        found = Holder(who, float(said["began"]), float(said["taken"]), None if earlier is None else int(earlier))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return found if who.pid > 0 else None


_all_held: set[Held] = set()  # one that is dropped without an end stays held: the safe way round


def _abandon_all() -> None:
    for held in list(_all_held):
        held.abandon()
    _all_held.clear()


os.register_at_fork(after_in_child=_abandon_all)
