"""How far one day is from another, as people count it: two weeks, half a year, a month and a half. Pure."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final

from ...memories.dates import moved

__all__ = ["COUNT", "count_of", "is_vague", "later"]

_ONES: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS: Final = (
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_VAGUE: Final = ("a few", "few", "several", "some")
_COUNTS: Final = {
    **{word: number for number, word in enumerate((*_ONES, *_TEENS), 1)},
    **{word: 10 * number for number, word in enumerate(_TENS, 2)},
    **{f"{ten}-{one}": 10 * at + more for at, ten in enumerate(_TENS, 2) for more, one in enumerate(_ONES, 1)},
    **{"a": 1, "an": 1, "another": 1, "a couple of": 2, "couple of": 2, "a hundred": 100},
    **dict.fromkeys(_VAGUE, 3),
}
COUNT: Final = (
    r"\d{1,3}|half\ an?|a(?:\ couple\ of|\ few|\ hundred|nother|n)?|couple\ of|few|several|some"
    rf"|(?:{'|'.join(_TENS)})(?:-(?:{'|'.join(_ONES)}))?|{'|'.join(reversed((*_ONES, *_TEENS)))}"
)
"""How a count is said, as part of a pattern that passes over blanks."""
_HALVES: Final = {"day": (12, "hours"), "week": (3, "days"), "month": (15, "days"), "year": (6, "months")}


def count_of(said: str) -> int:
    """Return the number that a word or its digits say."""
    return int(said) if said.isdigit() else _COUNTS.get(said.lower(), 1)


def is_vague(said: str) -> bool:
    """Say whether a count is no more than a guess: a few, several."""
    return said.lower() in _VAGUE


def later(today: date, said: str, unit: str, *, back: bool = False, half: bool = False) -> date:
    """Return the day so many units after today, or before it; ``half`` adds half a unit."""
    step, unit = -1 if back else 1, unit.lower()
    if said.lower().startswith("half"):
        return _by_half(today, step, unit)
    count = step * count_of(said)
    if unit.startswith(("business", "working", "work ")):
        return _by_working_days(today, count)
    kind = unit.rsplit(" ", 1)[-1]
    kind, count = _plain(kind, count)
    day = moved(today, count, kind)
    return _by_half(day, step, kind) if half else day


def _plain(unit: str, count: int) -> tuple[str, int]:
    """Return a unit that the calendar knows, and how many of them it is."""
    for start, plain, times in (
        *(("night", "days", 1), ("fortnight", "weeks", 2), ("quarter", "months", 3)),
        *(("wk", "weeks", 1), ("yr", "years", 1)),
    ):
        if unit.startswith(start):
            return plain, times * count
    return unit, count


def _by_half(day: date, step: int, unit: str) -> date:
    count, kind = _HALVES.get(unit.removesuffix("s"), (0, "days"))
    return moved(day, step * count, kind) if kind != "hours" else day


def _by_working_days(today: date, count: int) -> date:
    step = 1 if count > 0 else -1
    while count:
        today += timedelta(days=step)
        count -= step if today.weekday() < 5 else 0
    return today
