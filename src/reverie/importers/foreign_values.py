"""Read values of a foreign file without trusting their types."""

from __future__ import annotations

from typing import Any, Final, cast

from ..conversation.entries import compact_json as compact_json
from ..values import rows_of

Record = dict[str, Any]

_MOST: Final = 2**53


def as_text(value: Any) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def first_of(value: Any) -> Record:
    """Return the first dict in a list; an empty dict if there is none or the value is not a list."""
    rows = rows_of(value)
    return rows[0] if rows else {}


def as_count(value: Any) -> int:
    """Return the value as an int if it is a whole number from 0 to 2**53 - 1, else 0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else 0


def as_number(value: Any) -> float | None:
    """Return the value as a float if it is a number with an absolute value below 2**53, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) >= _MOST:
        return None
    return float(value) if value == value else None
