"""Locks between processes: files that are never deleted, locked by ``flock``, released when their holder dies."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from ..errors import SessionBusy
from ..keys import OWN_PREFIX
from ..paths import explained, lock_file, open_file, unlock

_GATE: Final = OWN_PREFIX + "lock"
_LEASES: Final = OWN_PREFIX + "leases"
_MAX_HOLDER_BYTES: Final = 4096


class FileLease:
    """A lease on a name: a locked file that this process holds until it releases the lease or ends."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor: int | None = descriptor
        self._lock = threading.Lock()
        _held.add(self)

    @property
    def held(self) -> bool:
        """Whether this process still holds the lease."""
        return self._descriptor is not None

    def release(self) -> None:
        """Release the lease; a second call does nothing."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        _held.discard(self)
        if descriptor is not None:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            unlock(descriptor)

    def abandon(self) -> None:
        """Close the descriptor in a forked child process; the lease belongs to the parent."""
        descriptor, self._descriptor = self._descriptor, None
        self._lock = threading.Lock()
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def locked(root: str) -> Generator[None]:
    """Wait for the lock of the store at ``root`` and hold it during the block, across threads and processes."""
    descriptor = lock_file(root, (), _GATE, os.O_RDONLY | os.O_CREAT, fcntl.LOCK_EX)
    try:
        yield
    finally:
        unlock(descriptor)


def take_lease(root: str, name: str, holder: str) -> FileLease:
    """Take the lease on a name and record ``holder``, or raise ``SessionBusy`` that names the present holder."""
    file = _file_name(name)
    path = os.path.join(root, _LEASES, file)
    # Under the store's lock no reader holds the file, and the holder of the lease has written its name.
    with explained("take the lease", path), locked(root):
        try:
            descriptor = lock_file(root, (_LEASES,), file, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder_name = _recorded_holder(root, file)
            raise SessionBusy(
                f"{name} is in use by {holder_name}; close it there, or open it read-only", holder=holder_name
            ) from None
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode("utf-8", "replace")[:_MAX_HOLDER_BYTES], 0)
        except BaseException:
            os.close(descriptor)
            raise
        return FileLease(name, descriptor)


def find_holder(root: str, name: str) -> str | None:
    """Return the recorded holder of the lease on a name, or None if the lease is free."""
    file = _file_name(name)
    with explained("look at the lease", os.path.join(root, _LEASES, file)):
        if not os.path.lexists(os.path.join(root, _LEASES, file)):
            return None
        with locked(root):
            try:
                os.close(lock_file(root, (_LEASES,), file, os.O_RDONLY, fcntl.LOCK_SH | fcntl.LOCK_NB))
            except BlockingIOError:
                return _recorded_holder(root, file)
            except FileNotFoundError:
                pass
            return None


def _recorded_holder(root: str, file: str) -> str:
    try:
        descriptor = open_file(root, f"{_LEASES}/{file}", os.O_RDONLY)
    except OSError as error:
        return f"another process ({errno.errorcode.get(error.errno or 0, 'unknown')} while reading its name)"
    try:
        return os.pread(descriptor, _MAX_HOLDER_BYTES, 0).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def _file_name(name: str) -> str:
    return f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.lock"


_held: set[FileLease] = set()  # keeps an unreleased lease alive, so that it stays locked until the process ends


def _abandon_all() -> None:
    for lease in list(_held):
        lease.abandon()
    _held.clear()


os.register_at_fork(after_in_child=_abandon_all)
