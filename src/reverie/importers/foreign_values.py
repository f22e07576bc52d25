"""Read values of a foreign file without trusting their types."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from ..conversation.entries import clean

__all__ = ["Record", "as_count", "as_dict", "as_list", "as_number", "as_text", "compact_json", "first_of", "rows_of"]

Record = dict[str, Any]

_MOST: Final = 2**53


def as_text(value: Any) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_dict(value: Any) -> Record:
    """Return the value if it is an object, else an empty one."""
    return cast(Record, value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is an array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def rows_of(value: Any) -> list[Record]:
    """Return the objects of an array and leave out all other items."""
    return [cast(Record, item) for item in as_list(value) if isinstance(item, dict)]


def first_of(value: Any) -> Record:
    """Return the first object of an array, else an empty one."""
    rows = rows_of(value)
    return rows[0] if rows else {}


def as_count(value: Any) -> int:
    """Return the value if it is a plausible count, else 0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else 0


def as_number(value: Any) -> float | None:
    """Return the value if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) >= _MOST:
        return None
    return float(value) if value == value else None


def compact_json(value: Any) -> str:
    """Return a value as one line of JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return msgspec.json.encode(clean(value)).decode()
