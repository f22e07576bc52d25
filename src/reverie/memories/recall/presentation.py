"""Render memories: each in its fence, within the budgets of a file and a session, with a note on cuts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ..store.records import MemoryRecord
from .fence import escaped, fenced
from .policy import RecallPolicy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

__all__ = ["shown_text"]

_MIN_CUT_BYTES: Final = 400


def shown_text(
    memories: Sequence[MemoryRecord], *, tag: str, now: datetime, used_bytes: int = 0, policy: RecallPolicy
) -> tuple[list[str], str] | None:
    """Return the files of the memories that fit and the text that shows them; None if none fits the budget.

    ``used_bytes`` is the size of all memories shown in the session so far.
    """
    opening = "Memories that may help (relevant_memories):"
    parts, names, left_out = [opening], list[str](), list[str]()
    room = policy.session_bytes - used_bytes - len(opening.encode())
    for memory in memories:
        part = _shown(memory, tag, now, policy, room - 2)
        if part is None:
            left_out.append(memory.file)
            continue
        parts.append(part)
        names.append(memory.file)
        room -= len(part.encode()) + 2
    if not names:
        return None
    note = _left_out(left_out, room - 2)
    text = "\n\n".join([*parts, note] if note else parts)
    return names, text


def _left_out(files: list[str], room: int) -> str:
    if not files:
        return ""
    named = ", ".join(map(escaped, files))
    note = f"[Left out, since the session's budget for memories is used up: {named}]"
    short = "[Others were left out: the session's budget for memories is used up]"
    return next((text for text in (note, short) if len(text.encode()) <= room), "")


def _shown(memory: MemoryRecord, tag: str, now: datetime, policy: RecallPolicy, room: int) -> str | None:
    """Return a memory in its fence, cut to the file limits and the remaining room; None if that is too little."""
    whole = memory.body.strip("\n")
    limit = policy.file_bytes
    for _ in range(2):
        text = _cut(whole, policy.file_lines, limit)
        note = "" if text == whole else _cut_note(memory, whole, text)
        part = fenced(memory, tag=tag, now=now, text=text, note=note)
        over = len(part.encode("utf-8", "replace")) - room
        if over <= 0:
            return part
        limit = len(escaped(text).encode("utf-8", "replace")) - over - 200  # room for the note about the cut
        if limit < _MIN_CUT_BYTES:
            return None
    return None


def _cut_note(memory: MemoryRecord, whole: str, text: str) -> str:
    lines, shown = whole.count("\n") + 1, text.count("\n") + 1
    size, left = len(whole.encode("utf-8", "replace")), len(text.encode("utf-8", "replace"))
    return f"cut: the first {left} of {size} bytes, {shown} of {lines} lines; read {memory.file} for the rest"


def _cut(text: str, max_lines: int, max_bytes: int) -> str:
    """Return the start of a text that fits both limits once escaped, cut at a newline if possible."""
    kept = "\n".join(text.split("\n")[:max_lines])
    if _size(kept) <= max_bytes:
        return kept
    low, high = 0, len(kept)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _size(kept[:middle]) <= max_bytes else (low, middle - 1)
    cut = kept[:low]
    newline = cut.rfind("\n")
    return cut[:newline] if newline >= low // 2 > 0 else cut


def _size(text: str) -> int:
    return len(escaped(text).encode("utf-8", "replace"))
