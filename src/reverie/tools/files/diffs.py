"""Unified diffs of limited length."""

from __future__ import annotations

import difflib
from typing import Final

__all__ = ["MAX_DIFF_LINES", "unified_diff"]

MAX_DIFF_LINES: Final = 400
_CONTEXT: Final = 3
_MAX_COMPARED: Final = 2_000
_MAX_LINE_CHARS: Final = 500


def unified_diff(before: str, after: str, path: str) -> str:
    """Return a unified diff of two texts with ``path`` in its header, cut with a note if long; '' if equal."""
    old, new = before.split("\n"), after.split("\n")
    start = _shared_line_count(old, new)
    end = _shared_line_count(old[start:][::-1], new[start:][::-1])
    first = max(0, start - _CONTEXT)
    last = max(0, end - _CONTEXT)
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    if max(len(old), len(new)) > _MAX_COMPARED:
        rows = [f"@@ -{first + 1},{len(old)} +{first + 1},{len(new)} @@", *_marked("-", old), *_marked("+", new)]
    else:
        rows = _hunks(old, new, first)
    if not rows:
        return ""
    cut = len(rows) - MAX_DIFF_LINES
    if cut > 0:
        rows = [*rows[:MAX_DIFF_LINES], f"[... {cut:,} more lines of this diff ...]"]
    return "\n".join([f"--- {path}", f"+++ {path}", *(_short(row) for row in rows)]) + "\n"


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


def _marked(mark: str, lines: list[str]) -> list[str]:
    shown = lines[: MAX_DIFF_LINES // 2]
    more = len(lines) - len(shown)
    return [*(mark + line for line in shown), *([f"{mark}[... {more:,} more lines ...]"] if more else [])]


def _shared_line_count(old: list[str], new: list[str]) -> int:
    count = 0
    for one, two in zip(old, new, strict=False):
        if one != two:
            break
        count += 1
    return count


def _short(row: str) -> str:
    return row if len(row) <= _MAX_LINE_CHARS else f"{row[:_MAX_LINE_CHARS]}[...]"
