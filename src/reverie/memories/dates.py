"""Days that are said by their distance: two weeks on, the Friday of next week, the end of the quarter."""

from __future__ import annotations

from calendar import monthrange
from datetime import date, timedelta
from typing import Final

__all__ = ["DAYS", "MONTHS", "end_of", "moved", "next_weekdays", "span_start", "weekday_on"]

DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_FRIDAY: Final = 4


def moved(day: date, count: int, unit: str) -> date:
    """Return the day so many days, weeks, months or years later; a month that is too short ends on its last day."""
    kind = unit.lower().rstrip("s")
    if kind in ("day", "week"):
        return day + timedelta(days=count * (7 if kind == "week" else 1))
    months = day.year * 12 + day.month - 1 + count * (12 if kind == "year" else 1)
    year, month = divmod(months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def weekday_on(said: str, today: date, which: str) -> date:
    """Return the day a weekday names: ``next`` is that of the following week, ``this`` may be today."""
    number = next(at for at, name in enumerate(DAYS) if name.startswith(said.lower()[:3]))
    if which == "last":
        return today - timedelta(days=(today.weekday() - number - 1) % 7 + 1)
    ahead = (number - today.weekday()) % 7
    if which == "next":  # the one of the following week
        return today - timedelta(days=today.weekday()) + timedelta(days=7 + number)
    return today + timedelta(days=ahead or (0 if which == "this" else 7))


def next_weekdays(said: str, today: date) -> tuple[date, ...]:
    """Return the days that "next Friday" may be: people on a Monday mean this week's or the following one's."""
    coming, following = weekday_on(said, today, ""), weekday_on(said, today, "next")
    return (coming,) if coming == following else (coming, following)


def span_start(span: str, today: date, step: int) -> date:
    """Return the first day of the week, month, quarter or year so many steps from that of today."""
    match span:
        case "week":
            return today - timedelta(days=today.weekday()) + timedelta(days=7 * step)
        case "month":
            return moved(today.replace(day=1), step, "months")
        case "quarter":
            first = today.replace(month=(today.month - 1) // 3 * 3 + 1, day=1)
            return moved(first, 3 * step, "months")
        case _:
            return date(today.year + step, 1, 1)


def end_of(span: str, today: date, step: int) -> date:
    """Return the last day of a span so many steps from today's; a week ends on its Friday."""
    start = span_start(span, today, step)
    if span == "week":
        return start + timedelta(days=_FRIDAY)
    return moved(start, {"month": 1, "quarter": 3, "year": 12}[span], "months") - timedelta(days=1)
