"""What an agent has read: enough to know whether it has seen the part it edits, and whether the file is still that."""

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
    """A file as it was read: its version, and the lines that were shown (counted from 1, both ends in).

    ``spans`` is None where all of it was shown. ``text`` is what was shown, for whoever shows it again.
    """

    path: str
    version: str
    mtime_ns: int
    text: str
    spans: tuple[tuple[int, int], ...] | None = None

    @property
    def size_bytes(self) -> int:
        """What it takes of the state's room."""
        return len(self.text.encode("utf-8", "surrogatepass"))

    def shows(self, first: int, last: int) -> bool:
        """Say whether these lines were shown, all of them."""
        if self.spans is None:
            return True
        return any(start <= first and last <= end for start, end in self.spans)


class ReadState:
    """The files read last, least recently used first; old ones go when there are too many or they are too large."""

    def __init__(self, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._readings: OrderedDict[str, FileRead] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._readings)

    def __contains__(self, path: object) -> bool:
        return path in self._readings

    @property
    def size_bytes(self) -> int:
        """How much all of them take."""
        return self._bytes

    def note(self, reading: FileRead) -> None:
        """Remember a reading; parts of one version of a file add up."""
        before = self._drop(reading.path)
        if before is not None and before.version == reading.version:
            reading = _together(before, reading)
        if reading.size_bytes > self._max_bytes:
            return
        self._readings[reading.path] = reading
        self._bytes += reading.size_bytes
        while len(self._readings) > self._max_entries or self._bytes > self._max_bytes:
            self._drop(next(iter(self._readings)))

    def get(self, path: str) -> FileRead | None:
        """Return what is known of a file, and count that as a use."""
        found = self._readings.get(path)
        if found is not None:
            self._readings.move_to_end(path)
        return found

    def forget(self, paths: Iterable[str]) -> None:
        """Forget files whose content has left the view: they must be read again before they are edited."""
        for path in paths:
            self._drop(path)

    def snapshot(self) -> tuple[FileRead, ...]:
        """Return all readings, the latest last."""
        return tuple(self._readings.values())

    def clear(self) -> None:
        """Forget everything."""
        self._readings.clear()
        self._bytes = 0

    def copy(self) -> ReadState:
        """Return a state of its own for a fork, which has seen the same."""
        copied = ReadState(self._max_entries, self._max_bytes)
        copied._readings = self._readings.copy()
        copied._bytes = self._bytes
        return copied

    def _drop(self, path: str) -> FileRead | None:
        found = self._readings.pop(path, None)
        if found is not None:
            self._bytes -= found.size_bytes
        return found


def version_of(data: bytes) -> str:
    """Return what tells this content from any other."""
    return hashlib.sha256(data).hexdigest()


def _together(before: FileRead, after: FileRead) -> FileRead:
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
