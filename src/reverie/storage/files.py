"""Storage in a directory: acknowledged data survives kill -9, and a power failure if the disk honours a flush."""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from ..digests import hex_of
from ..errors import StorageConflict, StorageError, UnsafePath
from ..keys import check_key
from ..paths import (
    explained,
    open_folder,
    open_plain,
    opened_folder,
    read_all,
    refuse_unless_plain,
    remove_orphans,
    replace_file,
    sync_folder,
)
from ..ports import Document, Stamp
from .lock_files import FileLease, find_holder, locked, take_lease
from .log_files import Durability, LogFiles

T = TypeVar("T")

_MAX_RACES: Final = 32


class FileStorage:
    """A store of documents, logs and leases as plain files beneath one root directory.

    With ``durability="second"``, an append returns once the operating system has the data and is flushed to disk within
    a second: a killed process loses nothing, a power failure loses at most the last second.
    """

    def __init__(self, root: str | Path, durability: Durability = "always") -> None:
        if durability not in ("always", "second"):
            raise ValueError(f'durability is "always" or "second", not {durability!r}')
        self.root = Path(os.path.abspath(root))
        self._root = str(self.root)
        self._logs = LogFiles(partial(_open_log, self._root), durability)
        self._leases: set[FileLease] = set()
        self._settled: set[tuple[str, ...]] = set()
        weakref.finalize(self, self._logs.close)

    def read(self, key: str) -> Document | None:
        """Return the document, or None if it does not exist."""
        data = self.load(key)
        return None if data is None else Document(data, hex_of(data))

    def load(self, key: str, start: int = 0, size: int = -1) -> bytes | None:
        """Return the bytes of a log or document, including damaged lines, or None if it does not exist.

        With a ``size`` return a part from the offset ``start`` on; of a log that is leased here also if its file was
        removed or replaced.
        """
        *folders, name = check_key(key)
        if size >= 0 and not any(one.name == key and one.held for one in self._leases):
            self._logs.renew(key)
        if size >= 0 and (part := self._logs.part(key, start, size)) is not None:
            return part
        path = os.path.join(self._root, key)
        with explained("read", path), _opened(self._root, folders) as folder:
            return None if folder is None else _content(folder, name, path, start, size)

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        """Create or replace the document atomically and durably, and return its new version.

        Raise ``StorageConflict`` if the current version is not ``expect``, or if ``create`` is set and it exists.
        """
        *folders, _ = check_key(key)
        path = os.path.join(self._root, key)

        def refuse_conflict(folder: int, name: str) -> None:
            if create or expect is not None:
                found = _content(folder, name, path)
                if (found is not None) if create else (found is None or hex_of(found) != expect):
                    raise _conflict(path, create)

        @contextmanager
        def unchanged(folder: int, name: str) -> Generator[None]:
            refuse_conflict(folder, name)  # a conflict found here needs no lock
            with locked(self._root):
                refuse_conflict(folder, name)
                yield

        def replace() -> None:
            self._settle(tuple(folders), path)
            replace_file(self._root, key, data, guard=unchanged)

        _despite_removal(replace)
        return hex_of(data)

    def delete(self, key: str) -> bool:
        """Delete a document or log and the folders that this leaves empty, and say whether it existed."""
        *folders, name = check_key(key)
        path = os.path.join(self._root, key)
        self._logs.forget(key)
        with explained("delete", path), _opened(self._root, folders) as folder:
            if folder is None:
                return False
            with locked(self._root):
                try:
                    refuse_unless_plain(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
                    os.unlink(name, dir_fd=folder)
                except FileNotFoundError:
                    return False
            sync_folder(folder)
            self._remove_empty(folders)
        return True

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys under a folder prefix, sorted."""
        yield from (one.key for one in self.stamps(prefix))

    def stamps(self, prefix: str = "") -> Iterator[Stamp]:
        """Yield the stamps of the files under a folder prefix, sorted by key."""
        folders = check_key(prefix.rstrip("/")) if prefix.rstrip("/") else ()
        with explained("list", os.path.join(self._root, *folders)):
            found = dict(_files_below(self._root, folders))
        for key in sorted(found):
            yield Stamp(key, found[key].st_size, found[key].st_mtime_ns, found[key].st_ino)

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        """Append one line, without a newline, to a log, and return when it is as safe as ``durability`` says.

        Raise ``LogLost`` if the size in bytes is not ``expect``, or if the path leads to another file than before.
        """
        if b"\n" in line:
            raise ValueError("a log line must not contain a newline; append one line at a time")
        self._logs.append(key, line, expect)

    def unsynced(self, key: str) -> AbstractContextManager[None]:
        """Let appends to a log return before they are on disk, for the duration of a block.

        ``sync`` waits for the disk, and a thread flushes them within a second; a killed process loses nothing.
        """
        return self._logs.unsynced(key)

    def flush(self, key: str) -> None:
        """Flush the lines of an open log; the next ``sync`` or ``append`` reports a failure."""
        self._logs.flush_early(key)

    def sync(self, key: str, *, expect: int) -> None:
        """Return when every line of a log of ``expect`` bytes is as safe as ``durability`` says.

        Raise ``LogLost`` if the path leads to another file than before.
        """
        self._logs.sync(key, expect)

    def lease(self, name: str, *, holder: str = "") -> FileLease:
        """Take the lease on a name for ``holder``, or raise ``SessionBusy`` that names the present holder."""
        check_key(name)
        lease = take_lease(self._root, name, holder or f"process {os.getpid()}")
        self._logs.renew(name)
        self._leases = {lease, *(one for one in self._leases if one.held)}
        return lease

    def holder(self, name: str) -> str | None:
        """Return the holder of the lease on a name, or None if the lease is free."""
        check_key(name)
        return find_holder(self._root, name)

    def close(self) -> None:
        """Flush and close every log and release every lease taken here; raise the first failed flush."""
        try:
            self._logs.close()
        finally:
            while self._leases:
                self._leases.pop().release()

    def _settle(self, folders: tuple[str, ...], path: str) -> None:
        """Create a missing folder, make it durable, and delete old temporary files in it; only once per folder."""
        if folders in self._settled:
            return
        with explained("write", path):
            _sync_folders(self._root, folders)
            with _opened(self._root, folders) as folder:
                if folder is not None:
                    remove_orphans(folder)
        self._settled.add(folders)

    def _remove_empty(self, folders: Sequence[str]) -> None:
        for depth in range(len(folders), 0, -1):
            *above, name = folders[:depth]
            with _opened(self._root, above) as parent:
                if parent is None:
                    return
                try:
                    os.rmdir(name, dir_fd=parent)
                except OSError:
                    return  # not empty, or not ours to delete


def _open_log(root: str, key: str, create: bool) -> tuple[int, str]:
    """Open a log for appending and return its descriptor and path; ``create`` makes it and its folders durably."""
    *folders, name = check_key(key)
    path = os.path.join(root, key)

    def open_it() -> int:
        with explained("append to", path):
            if create:
                _sync_folders(root, folders, but_last=True)
            with opened_folder(root, folders, create=create) as folder:
                descriptor = open_plain(folder, name, os.O_RDWR | os.O_APPEND | (create and os.O_CREAT), path)
                try:
                    sync_folder(folder)
                except BaseException:
                    os.close(descriptor)
                    raise
                return descriptor

    return _despite_removal(open_it) if create else open_it(), path


def _despite_removal(act: Callable[[], T]) -> T:
    """Run an action and return its result; run it again if another process removed an empty folder meanwhile."""
    for _ in range(_MAX_RACES):
        try:
            return act()
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
    return act()


@contextmanager
def _opened(root: str, folders: Sequence[str]) -> Generator[int | None]:
    """Open a folder for the duration of the block; yield None if it does not exist."""
    try:
        folder = open_folder(root, folders)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield folder
    finally:
        os.close(folder)


def _sync_folders(root: str, folders: Sequence[str], *, but_last: bool = False) -> None:
    """Create missing folders, and flush the entries of the root and of each folder (``but_last``: not the last).

    A process that created a folder may have died before it flushed it.
    """
    for depth in range(len(folders) + (not but_last)):
        with opened_folder(root, folders[:depth], create=True) as folder:
            sync_folder(folder)


def _content(folder: int, name: str, path: str, start: int = 0, size: int = -1) -> bytes | None:
    try:
        descriptor = open_plain(folder, name, os.O_RDONLY, path)
    except FileNotFoundError:
        return None
    if size < 0 and not start:
        return read_all(descriptor)
    with open(descriptor, "rb") as file:
        file.seek(start)
        return file.read(size)


def _files_below(root: str, folders: Sequence[str]) -> Generator[tuple[str, os.stat_result]]:
    with _opened(root, folders) as folder:
        if folder is None:
            return
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            try:
                key = "/".join((*folders, name))
                check_key(key)
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except (UnsafePath, FileNotFoundError):
                continue  # not a valid key, or deleted meanwhile
            if stat.S_ISDIR(found.st_mode):
                yield from _files_below(root, (*folders, name))
            elif stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                yield key, found


def _conflict(path: str, create: bool) -> StorageConflict:
    reason = "it exists already" if create else "another writer changed it first"
    return StorageConflict(f"cannot write {path}: {reason}; read it again, then retry", path=path)
