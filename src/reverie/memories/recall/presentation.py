"""Render memories: each in its fence, within the budgets of a file and a session, with a note on cuts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ...digests import hex_of
from ...values import record, replace
from ..store.records import MemoryRecord
from .fence import escaped, fenced
from .policy import RecallPolicy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

OPENING: Final = "Memories that may help (relevant_memories):"
_MIN_CUT_BYTES: Final = 400
_NO_TAG: Final = "0" * 8


@record
class ShownMemories:
    """The memories that fit the budget, each as its file and its fenced text, and the files that did not fit."""

    texts: dict[str, str]
    left_out: tuple[str, ...] = ()
    note: str = ""
    """A sentence in brackets about the files left out; empty if there are none or no room for it."""

    @property
    def text(self) -> str:
        """The whole text that shows the memories; empty if none fits."""
        return "\n\n".join(filter(None, [OPENING, *self.texts.values(), self.note])) if self.texts else ""


def shown_memories(
    memories: Sequence[MemoryRecord], *, tag: str, now: datetime, used_bytes: int = 0, policy: RecallPolicy
) -> ShownMemories:
    """Return the memories that fit the session's budget, in their fences; ``used_bytes`` of it are used already."""
    texts, left_out = dict[str, str](), list[str]()
    room = policy.session_bytes - used_bytes - len(OPENING.encode())
    for memory in memories:
        part = fitted_memory(memory, tag=tag, now=now, policy=policy, room=room - 2)
        if part is None:
            left_out.append(memory.file)
            continue
        texts[memory.file] = part
        room -= len(part.encode("utf-8", "replace")) + 2
    return ShownMemories(texts, tuple(left_out), _left_out(left_out, room - 2))


def memory_digest(memory: MemoryRecord) -> str:
    """Return the identity of a memory as it is shown, without its age and the random tag of its fence."""
    ageless = replace(memory, modified="")
    return hex_of(fenced(ageless, tag=_NO_TAG, now=datetime.min.replace(tzinfo=UTC)).encode("utf-8", "replace"))


def _left_out(files: list[str], room: int) -> str:
    if not files:
        return ""
    named = ", ".join(map(escaped, files))
    note = f"[Left out, since the session's budget for memories is used up: {named}]"
    short = "[Others were left out: the session's budget for memories is used up]"
    return next((text for text in (note, short) if len(text.encode()) <= room), "")


def fitted_memory(
    memory: MemoryRecord, *, tag: str, now: datetime, policy: RecallPolicy, room: int | None = None
) -> str | None:
    """Return a memory in its fence, cut to the file limits and the room in bytes; None if that is too little."""
    whole = memory.body.strip("\n")
    limit = policy.file_bytes
    for _ in range(2):
        text = _cut(whole, policy.file_lines, limit)
        note = "" if text == whole else _cut_note(memory, whole, text)
        part = fenced(memory, tag=tag, now=now, text=text, note=note)
        over = len(part.encode("utf-8", "replace")) - room if room is not None else 0
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
