"""The files an agent has read: which lines it saw, and which version of the file that was."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from ...values import record, replace

__all__ = ["MAX_BYTES", "MAX_ENTRIES", "FileRead", "ReadState", "version_of"]

MAX_ENTRIES: Final = 100
MAX_BYTES: Final = 25_000_000


@record
class FileRead:
    """One file as it was read: its version, and the lines that were shown (counted from 1, both ends included).

    ``spans`` is None if the whole file was shown. ``text`` is the shown text.
    """

    path: str
    version: str
    mtime_ns: int
    text: str
    spans: tuple[tuple[int, int], ...] | None = None

    @property
    def size_bytes(self) -> int:
        """The size of ``text`` in UTF-8."""
        return len(self.text.encode("utf-8", "surrogatepass"))

    def shows(self, first: int, last: int) -> bool:
        """Return whether all lines from ``first`` to ``last`` (both included) were shown."""
        if self.spans is None:
            return True
        return any(start <= first and last <= end for start, end in self.spans)


class ReadState:
    """The files an agent has read; the least recently used ones are dropped beyond a number or a total size."""

    def __init__(self, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._reads: OrderedDict[str, FileRead] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._reads)

    def __contains__(self, path: object) -> bool:
        return path in self._reads

    @property
    def size_bytes(self) -> int:
        """The size of the shown texts of all files, in bytes."""
        return self._bytes

    def note(self, read: FileRead) -> None:
        """Remember a read of a file; join it with an earlier read of the same version, or replace an older one."""
        before = self._drop(read.path)
        if before is not None and before.version == read.version:
            read = _merged(before, read)
        if read.size_bytes > self._max_bytes:
            return
        self._reads[read.path] = read
        self._bytes += read.size_bytes
        while len(self._reads) > self._max_entries or self._bytes > self._max_bytes:
            self._drop(next(iter(self._reads)))

    def get(self, path: str) -> FileRead | None:
        """Return the remembered read of a file and count that as a use; None if there is none."""
        found = self._reads.get(path)
        if found is not None:
            self._reads.move_to_end(path)
        return found

    def forget(self, paths: Iterable[str]) -> None:
        """Forget the reads of these files, which must then be read again before an edit."""
        for path in paths:
            self._drop(path)

    def snapshot(self) -> tuple[FileRead, ...]:
        """Return a tuple of all remembered reads, the most recently used last."""
        return tuple(self._reads.values())

    def clear(self) -> None:
        """Forget the reads of all files."""
        self._reads.clear()
        self._bytes = 0

    def copy(self) -> ReadState:
        """Return an independent copy, with the same reads and limits."""
        copied = ReadState(self._max_entries, self._max_bytes)
        copied._reads = self._reads.copy()
        copied._bytes = self._bytes
        return copied

    def _drop(self, path: str) -> FileRead | None:
        found = self._reads.pop(path, None)
        if found is not None:
            self._bytes -= found.size_bytes
        return found


def version_of(data: bytes) -> str:
    """Return the SHA-256 of a file's content as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


def _merged(before: FileRead, after: FileRead) -> FileRead:
    if before.spans is None:
        return replace(before, mtime_ns=after.mtime_ns)
    if after.spans is None:
        return after
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*before.spans, *after.spans)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    if len(merged) == 1 and merged[0] in before.spans:
        return replace(before, mtime_ns=after.mtime_ns)
    return replace(after, text=f"{before.text}\n{after.text}", spans=tuple(merged))
