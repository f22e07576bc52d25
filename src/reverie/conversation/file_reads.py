"""The files that an agent has read or written: the version of each, and the lines that were shown.

Results of tool calls name them in the log, so this state is a fold of the log and no cut removes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from ..values import field, record, replace, rows_of
from .layered_map import LayeredMap

FILES: Final = "files"
"""The key of an entry's body that lists the files which its result read or wrote."""
LineSpans: TypeAlias = tuple[tuple[int, int], ...]


@record
class FileRead:
    """One file as it was read or written: its version, and the lines that were shown (from 1, both ends included).

    ``version`` is the SHA-256 of its content; ``spans`` is None if the whole file was shown. ``before`` is the version
    that a write replaced, empty for a new file, None if it was not kept.
    """

    path: str
    version: str
    spans: LineSpans | None = None
    before: str | None = None

    def shows(self, first: int, last: int) -> bool:
        """Return whether all lines from ``first`` to ``last`` (both included) were shown."""
        return self.spans is None or any(start <= first and last <= end for start, end in self.spans)


def _no_files() -> LayeredMap[tuple[int, FileRead]]:
    return LayeredMap()


@record
class FileReads:
    """The last read or write of each file; a part joins earlier parts of the same version."""

    count: int = 0
    """How many reads and writes there were."""
    _files: LayeredMap[tuple[int, FileRead]] = field(default_factory=_no_files)

    def get(self, path: str) -> FileRead | None:
        """Return the last read or write of a file; None if there is none."""
        found = self._files.get(path)
        return found[1] if found is not None else None

    def after(self, reads: Iterable[FileRead]) -> FileReads:
        """Return the state after further reads and writes, in order."""
        count, files = self.count, self._files
        for one in reads:
            count += 1
            before = files.get(one.path)
            known = _merged(before[1], one) if before is not None and before[1].version == one.version else one
            files = files.changed({one.path: (count, known)})
        return FileReads(count, files)

    def since(self, count: int) -> list[str]:
        """Return the paths that were read or written after the first ``count`` reads and writes."""
        return [read.path for number, read in self._files.values() if number > count]

    def newest_first(self) -> list[FileRead]:
        """Return all files, the most recently read or written first."""
        return [read for _, read in sorted(self._files.values(), key=lambda one: -one[0])]


def _merged(before: FileRead, after: FileRead) -> FileRead:
    """Return the joined lines of two reads of the same version."""
    if before.spans is None or after.spans is None:
        return replace(after, spans=None)
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*before.spans, *after.spans)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return replace(after, spans=tuple(merged))


def named_files(reads: Iterable[FileRead]) -> dict[str, Any]:
    """Return the part of an entry's body that names reads and writes; empty if there are none."""
    found: list[dict[str, Any]] = []
    for one in reads:
        shown = {} if one.spans is None else {"lines": [list(span) for span in one.spans]}
        replaced = {} if one.before is None else {"before": one.before}
        found.append({"path": one.path, "version": one.version, **shown, **replaced})
    return {FILES: found} if found else {}


def logged_reads(listed: Any) -> list[FileRead]:
    """Return the reads and writes that an entry of the log lists; leave out those that cannot be understood."""
    found: list[FileRead] = []
    for fields in rows_of(listed):
        path, version = fields.get("path"), fields.get("version")
        spans = _spans(fields["lines"]) if "lines" in fields else None
        if isinstance(path, str) and isinstance(version, str):
            before = fields.get("before")
            found.append(FileRead(path, version, spans, before if isinstance(before, str) else None))
    return found


def _spans(lines: Any) -> LineSpans:
    """Return logged line spans; none of them if they cannot be understood, so that no line counts as shown."""
    try:
        return tuple((int(first), int(last)) for first, last in lines)
    except (TypeError, ValueError):
        return ()
