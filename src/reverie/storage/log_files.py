"""Log files that stay open for appending, and the thread that flushes lines whose append did not wait for it."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final, Literal

from ..errors import LogLost, StorageError
from ..paths import append_line, explain, flush

Durability = Literal["always", "second"]

_MAX_OPEN: Final = 64
_FLUSH_AFTER_SECONDS: Final = 0.5  # leaves the other half of the second for the flush itself
_MAX_REOPENINGS: Final = 16
_COPY_BYTES: Final = 1_048_576


class _LogFile:
    """An open log: its descriptor and the identity and size of its file."""

    __slots__ = ("closed", "descriptor", "device", "dirty", "failure", "flushing", "inode", "lock", "path", "size")

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor, self.path = descriptor, path
        try:
            found = os.fstat(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise explain(error, "append to", path) from error
        self.device, self.inode = found.st_dev, found.st_ino
        self.size = -1
        self.dirty, self.closed = True, False  # an earlier descriptor of the file may have failed to flush it
        self.failure: StorageError | None = None
        self.lock = threading.RLock()
        self.flushing = threading.Lock()  # apart from the lock of appends, which do not wait for a flush

    def check(self) -> None:
        """Raise ``LogLost`` if the path no longer leads to this file."""
        if not self.is_current():
            gone = "was replaced" if os.path.lexists(self.path) else "was removed or moved"
            raise LogLost(f"{self.path} {gone}", path=self.path)

    def is_current(self) -> bool:
        """Say whether the path still leads to this file and the file has no other name."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return found.st_ino == self.inode and found.st_dev == self.device and found.st_nlink == 1

    def read(self, size: int) -> bytes | None:
        """Return the first bytes of the file, which may have lost its name; None if it has fewer."""
        try:
            with open(os.dup(self.descriptor), "rb") as file:
                file.seek(0)
                data = file.read(size)
        except OSError:
            return None
        return data if len(data) == size else None

    def flush(self) -> None:
        """Flush appended lines to disk if any are not flushed yet; raise ``StorageError`` if that fails or failed."""
        with self.flushing:
            try:
                with self.lock:
                    self.check_flushed()
                    if self.closed or not self.dirty:
                        return
                    descriptor = os.dup(self.descriptor)
                    self.dirty = False
                try:
                    flush(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                self.failure = explain(error, "flush", self.path)
                raise self.failure from error

    def check_flushed(self) -> None:
        """Raise the error of an earlier flush: the system reports it once, and a later flush would seem to succeed."""
        if self.failure is not None:
            raise self.failure

    def write_again(self) -> None:
        """Write the file's bytes over themselves: after a failed flush the system takes them for flushed."""
        flags, start = fcntl.fcntl(self.descriptor, fcntl.F_GETFL), 0
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags & ~os.O_APPEND)
            while part := os.pread(self.descriptor, _COPY_BYTES, start):
                start += os.pwrite(self.descriptor, part, start)
            fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags)
        except OSError as error:
            os.close(self.descriptor)
            raise explain(error, "append to", self.path) from error

    def close(self) -> None:
        """Flush and close the file; a second call does nothing."""
        if not self.closed:
            self.closed = True
            try:
                if self.dirty:
                    flush(self.descriptor)
            except OSError as error:
                self.failure = explain(error, "flush", self.path)
                raise self.failure from error
            finally:
                with suppress(OSError):
                    os.close(self.descriptor)


class LogFiles:
    """The open logs of a store, at most 64, the most recently used last."""

    def __init__(self, open_log: Callable[[str, bool], tuple[int, str]], durability: Durability) -> None:
        self._open_log = open_log
        self._durability: Durability = durability
        self._damaged: set[str] = set()  # logs with lines that a failed flush may have lost
        self._start_empty()
        _alive.add(self)

    def _start_empty(self) -> None:
        self._logs: OrderedDict[str, _LogFile] = OrderedDict()
        self._lock = threading.RLock()  # garbage collection may close the store in a thread that holds the lock
        self._failures: dict[str, StorageError] = {}
        self._unsynced: set[str] = set()
        self._dirty = threading.Event()
        self._stopping = threading.Event()
        self._flusher: threading.Thread | None = None

    def append(self, key: str, line: bytes, expect: int | None = None) -> None:
        """Append one line to a log and return when it is as safe as ``durability`` requires.

        Raise the error of an earlier flush of this log in the background, without appending. With ``expect``, the
        size of the log in bytes, raise ``LogLost`` if it has another size or is not the same file as before.
        """
        for _ in range(_MAX_REOPENINGS):
            log = self._borrow(key, create=not expect)
            with log.lock:
                if log.closed:
                    continue
                if expect is None and not log.is_current():
                    self._drop(key, log)
                    continue
                try:
                    self._append(key, log, line, expect)
                except BaseException as error:
                    if not isinstance(error, LogLost):
                        self._damaged.add(key)
                    self._drop(key, log)
                    raise
                log.dirty = not self._flushes(key)
            if log.dirty:
                self._flush_soon()
            return
        raise StorageError(
            f"cannot append to {key}: another process keeps replacing the file; stop that process", path=key
        )

    def _append(self, key: str, log: _LogFile, line: bytes, expect: int | None) -> None:
        """Append one line; with ``expect``, check before and after that the path leads to this file, of this size.

        ``sync`` makes that check for an append that leaves the flush to it.
        """
        try:
            log.check_flushed()
            durable = self._flushes(key)
            if expect is not None and key not in self._unsynced:
                log.check()
            log.size = append_line(
                log.descriptor, line, path=log.path, clean_size=log.size, durable=durable, expect=expect
            )
            if expect is not None and durable:
                log.check()
        except LogLost as lost:
            lost.data = log.read(expect or 0)
            raise

    def _flushes(self, key: str) -> bool:
        return self._durability == "always" and key not in self._unsynced

    @contextmanager
    def unsynced(self, key: str) -> Generator[None]:
        """Let appends to a log return before they are flushed, for the duration of the block."""
        self._unsynced.add(key)
        try:
            yield
        finally:
            self._unsynced.discard(key)

    def flush_early(self, key: str) -> None:
        """Flush the lines of a log if it is open; ``sync`` or the next append raises the error of a failure."""
        with self._lock:
            log = self._logs.get(key)
        if log is not None and self._durability == "always":
            with suppress(StorageError):
                log.flush()

    def sync(self, key: str, expect: int) -> None:
        """Return when every line of a log is as safe as ``durability`` requires; raise ``LogLost`` if it is gone."""
        if self._durability != "always":
            return
        log = self._borrow(key, create=False)
        try:
            log.flush()
            log.check()
        except BaseException as error:
            if isinstance(error, LogLost):
                error.data = log.read(expect)
            with log.lock:
                self._drop(key, log)
            raise

    def part(self, key: str, start: int, size: int) -> bytes | None:
        """Return at most ``size`` bytes of an open log from an offset on; None if the log is not open."""
        with self._lock:
            log = self._logs.get(key)
        if log is None:
            return None
        with log.lock:
            return None if log.closed else _read_fully(log.descriptor, start, size)

    def renew(self, key: str) -> None:
        """Close a log that is open if its path leads to another file by now, so that its next use opens that one."""
        with self._lock:
            log = self._logs.get(key)
        if log is not None:
            with log.lock:
                if not log.is_current():
                    self._drop(key, log)

    def forget(self, key: str) -> None:
        """Close a log that is being deleted, if it is open, and ignore its flush errors."""
        with self._lock:
            log = self._logs.pop(key, None)
            self._failures.pop(key, None)
            self._damaged.discard(key)
        if log is not None:
            with log.lock, suppress(StorageError):
                log.close()

    def flush(self) -> None:
        """Flush every open log; an error closes that log and is raised by the next append to it."""
        with self._lock:
            logs = list(self._logs.items())
        for key, log in logs:
            try:
                log.flush()
            except StorageError as error:
                self._failures[key] = error
                with log.lock:
                    self._drop(key, log)

    def close(self) -> None:
        """Flush and close every log and stop the flush thread; raise the first failed flush."""
        self._stopping.set()
        self._dirty.set()
        if self._flusher is not None and self._flusher is not threading.current_thread():
            self._flusher.join()
        self.flush()
        with self._lock:
            logs, failures = list(self._logs.values()), list(self._failures.values())
            self._logs.clear()
            self._failures.clear()
            self._flusher = None
            self._stopping = threading.Event()
        for log in logs:
            with log.lock:
                log.close()
        if failures:
            raise failures[0]

    def abandon(self) -> None:
        """Reset in a forked child process; descriptors, locks and thread belong to the parent."""
        logs = list(self._logs.values())
        self._start_empty()
        for log in logs:
            if not log.closed:
                os.close(log.descriptor)

    def _borrow(self, key: str, *, create: bool) -> _LogFile:
        with self._lock:
            if key in self._failures:
                raise self._failures.pop(key)
            log = self._logs.get(key)
            if log is not None:
                self._logs.move_to_end(key)
                return log
        try:
            log = _LogFile(*self._open_log(key, create))
        except StorageError as error:
            if create or error.errno != errno.ENOENT:
                raise
            raise LogLost(f"{error.path} was removed", path=error.path) from error
        if key in self._damaged:
            log.write_again()
            self._damaged.discard(key)
        with self._lock:
            known = self._logs.setdefault(key, log)
            idle = self._logs.popitem(last=False) if len(self._logs) > _MAX_OPEN else None
        if known is not log:
            log.close()
        if idle is not None:
            self._close_idle(*idle)
        return known

    def _close_idle(self, key: str, log: _LogFile) -> None:
        with log.lock:
            try:
                log.close()
            except StorageError as error:
                self._failures[key] = error
                self._damaged.add(key)

    def _drop(self, key: str, log: _LogFile) -> None:
        with self._lock:
            if self._logs.get(key) is log:
                del self._logs[key]
        with suppress(StorageError):
            log.close()
        if log.failure is not None:
            self._damaged.add(key)

    def _flush_soon(self) -> None:
        if self._flusher is None:
            with self._lock:
                if self._flusher is None:
                    self._flusher = threading.Thread(
                        target=_flush_in_turn,
                        args=(self, self._dirty, self._stopping),
                        name="reverie-flush",
                        daemon=True,
                    )
                    self._flusher.start()
        self._dirty.set()


def _read_fully(descriptor: int, start: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := os.pread(descriptor, size, start)):
        parts.append(part)
        start, size = start + len(part), size - len(part)
    return b"".join(parts)


def _flush_in_turn(logs: LogFiles, dirty: threading.Event, stopping: threading.Event) -> None:
    while not stopping.is_set():
        dirty.wait()
        stopping.wait(_FLUSH_AFTER_SECONDS)
        dirty.clear()
        logs.flush()


_alive: weakref.WeakSet[LogFiles] = weakref.WeakSet()


def _abandon_all() -> None:
    for logs in list(_alive):
        logs.abandon()


os.register_at_fork(after_in_child=_abandon_all)
