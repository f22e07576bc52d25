"""The lock of a memory directory, and the time of its last dream.

Two files. ``.journal/dream-lock`` is the lock: it is never removed, a process holds it by ``flock``, and the system
frees it when that process dies. It names the holder, so that a hung process can be stopped. ``.consolidate-lock`` is
the stamp: its modification time is that of the last dream; its text is for people only and no decision uses it.

The stamp's time changes once, by a rename, after a dream has succeeded. A run that fails or is killed does not change
it, so nothing needs repair and one ``stat`` reads the time.
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
from typing import Any, Final, Literal, TypeAlias, cast

from ...errors import StorageError
from ...memories.store.journal_files import JOURNAL
from ...memories.store.store import MemoryStore
from ...paths import (
    explain,
    explained,
    flush,
    open_plain,
    opened_folder,
    refuse_unless_plain,
    replace_file,
    sync_folder,
)
from ...values import record
from ..places.processes import ProcessIdentity, is_alive, own_identity

STAMP: Final = ".consolidate-lock"
LOCK: Final = "dream-lock"
_STAMP_DRAFT: Final = "dream-stamp"  # one fixed name: only the holder writes it, over any leftover of a killed holder
_NEVER_NS: Final = 1  # the stamp's time during a first dream: 1970 opens every gate, and no other program sets it
_RECORD_BYTES: Final = 512  # one sector, so that a write is complete or absent
_MAX_READ_BYTES: Final = 4_096
_NS: Final = 1_000_000_000

State: TypeAlias = Literal["running", "completed", "failed"]


@record
class LockHolder:
    """The process that holds the lock, and the time at which it took the lock."""

    who: ProcessIdentity
    began: float
    """The time the run began, by its own clock, in seconds since 1970."""
    taken: float
    """The time the lock was taken, on the monotonic clock."""
    earlier_ns: int | None
    """The time of the dream before this one in nanoseconds since 1970; None if there was none."""

    @property
    def pid(self) -> int:
        """The holder's process id."""
        return self.who.pid

    def held_seconds(self) -> float:
        """Return how long the lock has been held, by the monotonic clock."""
        return max(0.0, time.monotonic() - self.taken)

    def is_hung(self, hung_seconds: float) -> bool:
        """Return whether the recorded process is alive and has held the lock for at least ``hung_seconds``."""
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
        """Return the time of the last dream by the stamp, in seconds since 1970; None if there was none."""
        try:
            found = os.lstat(self.stamp_path).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise explain(error, "look at", self.stamp_path) from error
        return found if found >= 1.0 else None

    def holder(self) -> LockHolder | None:
        """Return the process that holds the lock, None if it is free; only ``take`` decides who gets the lock."""
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
            if alive is None:  # of another boot, machine or container: only its lock shows whether it lives
                alive = self._is_locked()
        return found if alive else None

    def take(self, now: float) -> HeldLock | None:
        """Take the lock and begin a run at the time ``now``; return None if another process holds the lock."""
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
        """Lock the lock file, check that it was not replaced meanwhile, and return its descriptor."""
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
        """Return whether an open file is still the lock file on disk."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return os.path.samestat(os.fstat(descriptor), os.stat(self.lock_path, follow_symlinks=False))
        return False

    def _is_locked(self) -> bool:
        try:
            _unlock(self._lock())
        except BlockingIOError:
            return True
        return False

    def _begun(self, descriptor: int, now: float) -> HeldLock:
        """Write the holder into the lock file, over that of a killed process, and return the started run."""
        earlier = self._stamped_ns()
        holder = LockHolder(own_identity(), now, time.monotonic(), earlier)
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
        return HeldLock(self, descriptor, holder)

    # -- the stamp

    def _stamped_ns(self) -> int | None:
        try:
            found = os.lstat(self.stamp_path).st_mtime_ns
        except FileNotFoundError:
            return None
        return None if found == _NEVER_NS else found  # left by a first run that was killed

    def write_stamp(self, holder: LockHolder, state: State, time_ns: int) -> None:
        """Replace the stamp in one step by one with this holder, state and modification time."""
        with self._folder() as journal, opened_folder(self.root, ()) as root:
            with suppress(FileNotFoundError):
                refuse_unless_plain(os.stat(STAMP, dir_fd=root, follow_symlinks=False), self.stamp_path)
            with suppress(FileNotFoundError):
                os.unlink(_STAMP_DRAFT, dir_fd=journal)
            path = os.path.join(self.root, JOURNAL, _STAMP_DRAFT)
            descriptor = open_plain(journal, _STAMP_DRAFT, os.O_WRONLY | os.O_CREAT | os.O_EXCL, path)
            try:
                os.write(descriptor, (json.dumps({**_as_json(holder), "state": state}) + "\n").encode())
                os.utime(descriptor, ns=(time_ns, time_ns))
                flush(descriptor)
            finally:
                os.close(descriptor)
            os.rename(_STAMP_DRAFT, STAMP, src_dir_fd=journal, dst_dir_fd=root)
            sync_folder(root)

    def remove_stamp(self) -> None:
        """Remove the stamp if there is one."""
        with opened_folder(self.root, ()) as root, suppress(FileNotFoundError):
            os.unlink(STAMP, dir_fd=root)
            sync_folder(root)


def push_stamp(store: MemoryStore) -> None:
    """Tell the machines that share these memories the time of the last dream."""
    last = DreamLock(store.root).last()
    if store.is_shared and last is not None:
        store.files.replace(STAMP, json.dumps({"dreamt": last}).encode())


def pull_stamp(store: MemoryStore) -> None:
    """Bring the stamp of this machine to the time of the last dream on any machine, if the memories are shared."""
    lock = DreamLock(store.root)
    if not store.is_shared or not os.path.isdir(store.root):
        return
    with suppress(ValueError, KeyError, TypeError):
        last = float(json.loads(store.files.read(STAMP) or b"")["dreamt"])
        if last > (lock.last() or 0.0):
            replace_file(lock.root, STAMP, store.files.read(STAMP) or b"")
            os.utime(lock.stamp_path, ns=(_ns(last), _ns(last)), follow_symlinks=False)


class HeldLock:
    """A run that holds the lock; as a context manager it fails unless ``succeed`` was called."""

    def __init__(self, lock: DreamLock, descriptor: int, holder: LockHolder) -> None:
        self.holder = holder
        self._lock = lock
        self._descriptor: int | None = descriptor
        self._ending = threading.Lock()
        _all_held.add(self)

    @property
    def began(self) -> float:
        """The time the run began, by its own clock, in seconds since 1970."""
        return self.holder.began

    @property
    def earlier(self) -> float | None:
        """The time of the dream before this one, in seconds since 1970; None if there was none."""
        return None if self.holder.earlier_ns is None else self.holder.earlier_ns / _NS

    def succeed(self) -> None:
        """End the run, set the time of the last dream to the run's start, and release the lock."""
        with explained("write", self._lock.stamp_path):
            self._end(self._complete)

    def fail(self) -> None:
        """End the run without a new time of the last dream and release the lock; ignore a run that has ended."""
        with suppress(OSError, StorageError):  # only the stamp's text is wrong then, its time has not changed
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

    def _end(self, last_step: Callable[[], None]) -> None:
        """Run ``last_step`` and release the lock in any case; do nothing if the run has ended."""
        with self._ending:
            descriptor = self._descriptor
            if descriptor is None:
                return
            try:
                if self._lock.is_lock(descriptor):
                    last_step()
                else:
                    raise StorageError(
                        f"{self._lock.lock_path} was removed while a dream was running; do not remove it",
                        path=self._lock.lock_path,
                    )
            finally:
                self._descriptor = None
                _all_held.discard(self)
                _unlock(descriptor)

    def abandon(self) -> None:
        """Close the lock file in a forked child; the run goes on in the parent."""
        descriptor, self._descriptor = self._descriptor, None
        self._ending = threading.Lock()
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> HeldLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.fail()


def _unlock(descriptor: int) -> None:
    """Clear the holder in the lock file, release the lock and close the file."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough while a starting child shares the file
    os.close(descriptor)


def _ns(seconds: float) -> int:
    return max(1, round(seconds * _NS))


def _as_json(holder: LockHolder) -> dict[str, object]:
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


def _holder_in(data: bytes) -> LockHolder | None:
    """Return the holder named in a lock file; None if there is none or the data is not valid."""
    try:
        said = cast("dict[str, Any]", json.loads(data))
        who = ProcessIdentity(int(said["pid"]), str(said["started"]), str(said["boot"]), str(said["space"]))
        earlier = said["earlier_ns"]
        found = LockHolder(who, float(said["began"]), float(said["taken"]), None if earlier is None else int(earlier))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return found if who.pid > 0 else None


_all_held: set[HeldLock] = set()  # a run that is dropped without an end keeps its lock, which is the safe choice


def _abandon_all() -> None:
    for held in list(_all_held):
        held.abandon()
    _all_held.clear()


os.register_at_fork(after_in_child=_abandon_all)
