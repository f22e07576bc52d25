"""Unified diffs, complete: a person decides on them."""

from __future__ import annotations

import difflib
from typing import Final

_CONTEXT: Final = 3
_MAX_COMPARED: Final = 2_000
_NO_NEWLINE: Final = "\\ No newline at end of file"


def unified_diff(before: str, after: str, path: str) -> str:
    """Return a unified diff of two texts with ``path`` in its header; '' if they are equal.

    A passage of very many lines is shown as removed and added as a whole.
    """
    old, new = _lines(before), _lines(after)
    start = _shared_line_count(old, new)
    end = _shared_line_count(old[start:][::-1], new[start:][::-1])
    first, last = max(0, start - _CONTEXT), max(0, end - _CONTEXT)
    removed, added = old[start : len(old) - end], new[start : len(new) - end]
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    if max(len(removed), len(added)) > _MAX_COMPARED:
        above, below = old[: start - first], old[len(old) - (end - last) :]
        spans = (f"{first + bool(lines)},{len(lines)}" for lines in (old, new))
        rows = ["@@ -{} +{} @@".format(*spans), *_marked(" ", above)]
        rows += [*_marked("-", removed), *_marked("+", added), *_marked(" ", below)]
    else:
        rows = _hunks(old, new, first)
    if not rows:
        return ""
    return "\n".join([f"--- {path}", f"+++ {path}", *rows]) + "\n"


def _lines(text: str) -> list[str]:
    """Return the lines of a text; a last line without a newline is followed by git's mark for that."""
    *lines, last = text.split("\n")
    return [*lines, f"{last}\n{_NO_NEWLINE}"] if last else lines


def _marked(mark: str, lines: list[str]) -> list[str]:
    return [mark + line for line in lines]


def _hunks(old: list[str], new: list[str], first: int) -> list[str]:
    rows = list(difflib.unified_diff(old, new, lineterm="", n=_CONTEXT))[2:]
    return [_moved(row, first) if row.startswith("@@ ") else row for row in rows]


def _moved(header: str, lines: int) -> str:
    """Return a hunk header (``@@``) with ``lines`` added to its line numbers."""
    _, old, new, _ = header.split(" ")
    return f"@@ -{_later(old[1:], lines)} +{_later(new[1:], lines)} @@"


def _later(span: str, lines: int) -> str:
    start, comma, count = span.partition(",")
    return f"{int(start) + lines}{comma}{count}"


def _shared_line_count(old: list[str], new: list[str]) -> int:
    count = 0
    for one, two in zip(old, new, strict=False):
        if one != two:
            break
        count += 1
    return count
