"""What a dream asks a person, in words that can be answered without opening the files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ...memories.store.records import MemoryRecord
from .changes import Question
from .differences import Difference

__all__ = ["contradiction", "doubtful", "undated"]

_CHARS: Final = 240


def contradiction(one: MemoryRecord, other: MemoryRecord, difference: Difference) -> Question:
    """Ask which of two memories holds."""
    text = (
        f"{_said(one, difference.left.text)} {_said(other, difference.right.text)} {_in_what(difference)} "
        f"{_newer(one, other)} Which one holds? Correct or forget the other."
    )
    return Question("contradiction", (one.file, other.file), text)


def doubtful(one: MemoryRecord, other: MemoryRecord, difference: Difference) -> Question:
    """Ask whether two memories are one."""
    text = (
        f"{_said(one, difference.left.text)} {_said(other, difference.right.text)} {_in_what(difference)} "
        "If they are one memory, keep one of them."
    )
    return Question("duplicate", (one.file, other.file), text)


def undated(memory: MemoryRecord, said: str) -> Question:
    """Ask for the day that a memory means."""
    text = f"{memory.file} says “{_short(said)}” and not when it was written. Write the date that is meant."
    return Question("vague", (memory.file,), text)


def _said(memory: MemoryRecord, statement: str) -> str:
    return f"{memory.file} ({_when(memory) or 'no date'}) says “{_short(statement)}”"


def _in_what(difference: Difference) -> str:
    words, others = ", ".join(difference.words[:4]), ", ".join(difference.others[:4])
    match difference.way:
        case "denial":
            return "— one denies what the other says."
        case "mark":
            return f"— one says {words or 'it without that word'}, the other {others or 'does not'}."
        case "exchange":
            return f"— the same words the other way round ({words})."
        case _:
            return f"— they differ in {words or 'nothing'} against {others or 'nothing'}."


def _newer(one: MemoryRecord, other: MemoryRecord) -> str:
    first, second = _moment(one), _moment(other)
    if first is None or second is None or first == second:
        return "Neither is known to be newer."
    return f"{one.file if first > second else other.file} is newer."


def _when(memory: MemoryRecord) -> str:
    return (memory.modified or memory.created)[:10]


def _moment(memory: MemoryRecord) -> datetime | None:
    """Return when a memory was last changed, to the second; a day without a time is its beginning."""
    try:
        found = datetime.fromisoformat(memory.modified or memory.created)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _CHARS else plain[: _CHARS - 1] + "…"
