"""The files of a memory directory and a cache of their heads.

The cache repeats only the files' own claims and hashes, decides nothing about trust, and may be deleted at any time.
With it a scan reads only files that changed.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from ...errors import StorageError
from ...paths import (
    closed_after,
    open_file,
    open_folder,
    open_plain,
    opened_folder,
    read_all,
    refuse_unless_plain,
    temporary_file,
)
from . import frontmatter, records, trust
from .names import FOLDERS, is_memory
from .records import MemoryRecord, Scope
from .trust import Trust

JOURNAL: Final = ".journal"
JOURNAL_FILE: Final = f"{JOURNAL}/journal.jsonl"
READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # never block on a pipe
LOCK: Final = "lock"
_HEADS: Final = "heads"
_MAX_DEPTH: Final = 3
_HEAD_BYTES: Final = 2_048
MAX_MEMORY_BYTES: Final = 2**22
"""A larger file is not a memory: it is reported, and only its size is looked at."""
_MAX_HEAD_BYTES: Final = 70_000
_MAX_KEPT_BYTES: Final = 256 * 2**20
_FEWEST: Final = 64
"""The fewest files for which the cache is written; reading fewer is as fast as reading the cache."""
_WORTH: Final = 8
"""The cache is written again if more than one in this many files was read or is gone."""
_GRAIN_NS: Final = 250_000_000
"""The age in nanoseconds from which a file has settled, more than one clock tick."""
_COARSE_GRAIN_NS: Final = 2_500_000_000
_KIND: Final = 0o170000
_REGULAR: Final = 0o100000


def memory_files(root: str) -> Iterator[tuple[str, int, str]]:
    """Yield path, open folder descriptor and name of each memory file; use the descriptor before the next step."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        try:
            folder = open_folder(root, parts)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            with os.scandir(folder) as found:
                entries = [(one.name, one.is_dir(follow_symlinks=False)) for one in found if one.name[0] != "."]
            folders = [name for name, is_folder in entries if is_folder and (parts or name not in FOLDERS)]
            waiting += [(*parts, name) for name in sorted(folders) if len(parts) < _MAX_DEPTH]
            prefix = "/".join([*parts, ""]) if parts else ""
            for name in sorted([name for name, is_folder in entries if not is_folder and name.endswith(".md")]):
                if is_memory(prefix + name):
                    yield prefix + name, folder, name
        finally:
            os.close(folder)


def refuse_large(size: int, file: str) -> None:
    """Raise ``StorageError`` for the size of a file that is too large to be a memory."""
    if size > MAX_MEMORY_BYTES:
        most = MAX_MEMORY_BYTES // 2**20
        raise StorageError(
            f"{file} has {size:,} bytes, and a memory at most {most} MB; shorten it or move it away", path=file
        )


def read_head(folder: int, name: str, file: str) -> tuple[bytes, os.stat_result]:
    """Return the first bytes of a file, as far as its front matter can reach, and its status; raise if special."""
    with closed_after(os.open(name, READ_FLAGS, dir_fd=folder)) as descriptor:
        found = os.fstat(descriptor)
        if found.st_mode & _KIND != _REGULAR or found.st_nlink > 1:
            refuse_unless_plain(found, file)
        refuse_large(found.st_size, file)
        head = os.read(descriptor, _HEAD_BYTES)
        if len(head) == _HEAD_BYTES and b"\n---" not in head[3:]:
            head += os.read(descriptor, _MAX_HEAD_BYTES)
        return head, found


def print_of(found: os.stat_result) -> int:
    """Return a fingerprint of a file's status that differs whenever the file may have changed."""
    return hash((found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_nlink))


def has_settled(found: os.stat_result, now_ns: int) -> bool:
    """Say whether a file's last change is so old that another change will alter its times."""
    changed = found.st_ctime_ns
    return changed < now_ns - (_GRAIN_NS if changed % 1_000_000_000 else _COARSE_GRAIN_NS)


class Head(NamedTuple):
    """The cached head of one memory file: its fields without the body."""

    print: int
    """The fingerprint of the file's status, see ``print_of``."""
    version: str
    """The hash of the file's bytes; empty if it was not needed yet."""
    claim: Trust
    """The trust that the file itself claims."""
    memory: MemoryRecord
    """The memory without its body, with its trust at the last scan."""


_heads: Final = msgspec.msgpack.Decoder(tuple[list[int], list[Head]])


class HeadCache:
    """The cached heads of one directory: in this process, and on disk beside the journal.

    A team directory is read again by each process: others write there, and trust differs by user.
    """

    def __init__(self, root: str, scope: Scope) -> None:
        self._root = root
        self._is_shared = scope != "private"
        self._heads: Mapping[str, Head] | None = None
        self._written: int = 0

    def heads(self) -> Mapping[str, Head]:
        """Return the cached heads by file, at first from disk; empty if there is no usable cache."""
        if self._heads is None:
            self._heads = self._read()
            self._written = len(self._heads)
        return self._heads

    def has_place(self) -> bool:
        """Say whether the directory is private and has a journal, beside which the cache can be stored."""
        return not self._is_shared and os.path.isdir(os.path.join(self._root, JOURNAL))

    def keep(self, heads: Mapping[str, Head], read: int) -> None:
        """Replace the cached heads, and try to write them to disk if many changed.

        ``read`` is the number of heads that were read from their files again.
        """
        self._heads = heads
        gone = self._written - (len(heads) - read)
        if self._is_shared or len(heads) < _FEWEST or max(read, gone) * _WORTH <= len(heads):
            return
        with suppress(OSError, StorageError, ValueError, TypeError):  # the cache is optional
            self._write(heads)
            self._written = len(heads)

    def forget(self) -> None:
        """Delete the cache in memory and on disk; the caller holds the journal's lock."""
        self._heads, self._written = {}, 0
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._root, JOURNAL, _HEADS))

    def _read(self) -> dict[str, Head]:
        if self._is_shared:
            return {}
        try:
            data = self._bytes()
            if int(data[:8], 16) != zlib.crc32(memoryview(data)[8:]):
                return {}
            made_by, heads = _heads.decode(memoryview(data)[8:])
        except (OSError, StorageError, ValueError, RecursionError, MemoryError, msgspec.MsgspecError):
            return {}
        return {one.memory.file: one for one in heads} if made_by == _makers() else {}

    def _bytes(self) -> bytes:
        descriptor = open_file(self._root, f"{JOURNAL}/{_HEADS}", READ_FLAGS)
        if os.fstat(descriptor).st_size > _MAX_KEPT_BYTES:
            os.close(descriptor)
            return b""
        return read_all(descriptor)

    def _write(self, heads: Mapping[str, Head]) -> None:
        """Write the cache to a temporary file and rename it.

        This happens under the journal's lock and only for existing files, so that erased text does not return.
        """
        with opened_folder(self._root, (JOURNAL,)) as folder:
            path = os.path.join(self._root, JOURNAL, LOCK)
            with closed_after(open_plain(folder, LOCK, os.O_RDWR, path)) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), os.stat(path, follow_symlinks=False)):
                    body = _encoded(self._root, heads)
                    with temporary_file(folder, b"%08x%b" % (zlib.crc32(body), body)) as name:
                        os.rename(name, _HEADS, src_dir_fd=folder, dst_dir_fd=folder)


def _encoded(root: str, heads: Mapping[str, Head]) -> bytes:
    """Return the readable heads of still existing files as bytes."""
    there = [
        one for one in heads.values() if not one.memory.problem and os.path.lexists(os.path.join(root, one.memory.file))
    ]
    return msgspec.msgpack.encode((_makers(), there), enc_hook=dict)


def _makers() -> list[int]:
    """Return a fingerprint of the parsing code; another version of this program ignores the cache."""
    with suppress(OSError):
        found = [os.stat(room.__file__) for room in (frontmatter, records, trust) if room.__file__]
        return [number for one in found for number in (one.st_mtime_ns, one.st_size)]
    return [os.getpid()]  # unknown version: each process uses its own cache
