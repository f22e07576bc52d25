"""The lock of a memory directory, and the time of its last dream.

Two files. ``.journal/dream-lock`` is the lock: it is never removed, a process holds it by ``flock``, and the system
frees it when that process dies. It names the holder, so that a hung process can be stopped. ``.consolidate-lock`` is
the stamp: its modification time is the start of the last successful dream; its text, which names that dream's process,
is for people only and no decision uses it.

The stamp is replaced once, by a rename, after a dream has succeeded. A run that fails or is killed never touches it, so
nothing needs repair and one ``stat`` reads the time.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ...errors import StorageError
from ...memories.store.journal_files import JOURNAL
from ...memories.store.store import MemoryStore
from ...paths import (
    explain,
    explained,
    flush,
    lock_file,
    open_plain,
    opened_folder,
    refuse_unless_plain,
    replace_file,
    sync_folder,
    temporary_file,
    unlock,
)
from ...storage.lock_files import FileLease
from ...values import record
from ..places.processes import ProcessIdentity, is_alive, own_identity

STAMP: Final = ".consolidate-lock"
LOCK: Final = "dream-lock"
_STAMP_DRAFT: Final = "dream-stamp"  # one fixed name: only the holder writes it, over any leftover of a killed holder
_NOTE_BYTES: Final = 512  # one sector, so that a write is complete or absent
_MAX_READ_BYTES: Final = 4_096


@record
class LockHolder:
    """The process that holds the lock, and the time at which it took the lock."""

    who: ProcessIdentity
    began: float
    """The time the run began, by its own clock, in seconds since 1970."""
    taken: float
    """The time the lock was taken, on the monotonic clock."""

    @property
    def pid(self) -> int:
        """The holder's process id."""
        return self.who.pid

    @property
    def note(self) -> bytes:
        """The holder as a line of JSON, for its files."""
        began_at = datetime.fromtimestamp(self.began, UTC).isoformat(timespec="seconds")
        fields = {"began": self.began, "began_at": began_at, "taken": self.taken}
        return msgspec.json.encode({**msgspec.to_builtins(self.who), **fields}) + b"\n"

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
                with opened_folder(self.root, (JOURNAL,)) as folder:
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
            lease = FileLease(LOCK, descriptor)
            try:
                holder = LockHolder(own_identity(), now, time.monotonic())
                self._name(descriptor, holder)
                return HeldLock(self, lease, holder, os.fstat(descriptor))
            except BaseException:
                lease.release()
                raise

    def _lock(self) -> int:
        return lock_file(self.root, (JOURNAL,), LOCK, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _is_locked(self) -> bool:
        try:
            unlock(self._lock())
        except BlockingIOError:
            return True
        return False

    def _name(self, descriptor: int, holder: LockHolder) -> None:
        """Write the holder into the lock file, over that of a killed process; refuse a stamp that is a link."""
        with opened_folder(self.root, ()) as root:
            self._refuse_link(root)
        line = holder.note[:-1].ljust(_NOTE_BYTES - 1) + b"\n"
        if os.pwrite(descriptor, line, 0) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(descriptor, len(line))
        flush(descriptor)

    def _refuse_link(self, root: int) -> None:
        with suppress(FileNotFoundError):
            refuse_unless_plain(os.stat(STAMP, dir_fd=root, follow_symlinks=False), self.stamp_path)

    def write_stamp(self, holder: LockHolder) -> None:
        """Replace the stamp in one step by one that names this holder and has the time its run began."""
        with opened_folder(self.root, (JOURNAL,)) as journal, opened_folder(self.root, ()) as root:
            self._refuse_link(root)
            with suppress(FileNotFoundError):
                os.unlink(_STAMP_DRAFT, dir_fd=journal)
            with temporary_file(journal, holder.note, _STAMP_DRAFT):
                os.utime(_STAMP_DRAFT, ns=(_ns(holder.began), _ns(holder.began)), dir_fd=journal)
                os.rename(_STAMP_DRAFT, STAMP, src_dir_fd=journal, dst_dir_fd=root)
            with suppress(OSError):  # the old stamp, after a power cut, costs one more dream
                sync_folder(root)


class HeldLock:
    """A run that holds the lock; as a context manager it fails unless ``succeed`` was called."""

    def __init__(self, lock: DreamLock, lease: FileLease, holder: LockHolder, file: os.stat_result) -> None:
        self.holder = holder
        self._lock, self._lease, self._file = lock, lease, file

    def succeed(self) -> None:
        """End the run, set the time of the last dream to the run's start, and release the lock."""
        if not self._lease.held:
            return
        lock = self._lock
        try:
            with explained("write", lock.stamp_path):
                if not self._is_current():
                    raise StorageError(
                        f"{lock.lock_path} was removed while a dream was running; do not remove it",
                        path=lock.lock_path,
                    )
                lock.write_stamp(self.holder)
        finally:
            self.fail()

    def fail(self) -> None:
        """End the run without a new time of the last dream and release the lock; ignore a run that has ended."""
        with suppress(OSError):
            self._lease.release()

    def _is_current(self) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError):
            return os.path.samestat(self._file, os.stat(self._lock.lock_path, follow_symlinks=False))
        return False

    def __enter__(self) -> HeldLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.fail()


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


def _ns(seconds: float) -> int:
    return max(1, round(seconds * 1e9))


def _holder_in(data: bytes) -> LockHolder | None:
    """Return the holder named in a lock file; None if there is none or the data is not valid."""
    try:
        said: Any = msgspec.json.decode(data)
        found = LockHolder(msgspec.convert(said, ProcessIdentity), float(said["began"]), float(said["taken"]))
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return found if found.who.pid > 0 else None
