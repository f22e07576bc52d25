"""Dates as people say them, made absolute by the day on which they were said."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Final

from ...memories.dates import DAYS, MONTHS, end_of, moved, next_weekdays, span_start, weekday_on
from ...values import record

__all__ = ["Dated", "absolute", "has_date"]

_NUMBERS: Final = {
    **{"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6},
    **{"seven": 7, "eight": 8, "nine": 9, "ten": 10, "a couple of": 2, "a few": 3},
}
_DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|mon|tues?|wed|thu(?:rs)?|fri|sat|sun"
_MONTH: Final = (
    r"january|february|march|april|may|june|july|august|september|october|november|december"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec"
)
_COUNT: Final = r"\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|a couple of|a few"
_UNIT: Final = r"days?|weeks?|months?|years?"
_SAID: Final = re.compile(
    rf"""\b(?:
      (?P<iso>\d{{4}}-\d\d-\d\d)
    | (?P<near>day\ after\ tomorrow|today|tonight|tomorrow|yesterday)
    | (?P<end>(?:the\ )?end\ of\ (?:the\ |this\ |next\ )?(?:week|month|quarter|year)|eo[wmqy])
    | (?P<which>next|this|last|coming)\ (?P<span>week|month|quarter|year|{_DAY})
    | in\ (?P<count>{_COUNT})\ (?P<unit>{_UNIT})(?:'?\ time)?
    | (?P<past>{_COUNT})\ (?P<punit>{_UNIT})\ ago
    | (?P<month>{_MONTH})\.?\ (?P<mday>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\ (?P<year>\d{{4}}))?
    | (?P<dday>\d{{1,2}})(?:st|nd|rd|th)?\ (?:of\ )?(?P<dmonth>{_MONTH})(?:,?\ (?P<dyear>\d{{4}}))?
    | (?<!every\ )(?<!each\ )(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b(?!\ \d{{4}}-\d\d))
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)


@record
class Dated:
    """A text with its dates made absolute, and the last of them."""

    text: str
    last: date | None = None
    unknown: bool = False
    """Whether a date in it could not be made absolute, since nobody knows when it was said."""


def has_date(text: str) -> bool:
    """Say whether a text names a day or a span by date."""
    return any(not _is_plain_word(found) for found in _SAID.finditer(text))


def absolute(text: str, said_on: date | None) -> Dated:
    """Return the text with each relative date as an absolute one; without a day of reference it stays as it is."""
    last: date | None = None
    unknown = False

    def written(found: re.Match[str]) -> str:
        nonlocal last, unknown
        if _is_plain_word(found) or (found["weekday"] or "").lower().endswith("days"):
            return found.group()
        day = _day(found, said_on)
        if day is None:
            unknown = True
            return found.group()
        last = day if last is None else max(last, day)
        return _shown(found, day, said_on)

    made = _SAID.sub(written, text)
    # "on the 2026-11-20" and "by on" do not come from people.
    return Dated(re.sub(r"\b(by|on|until|before|after) (?:on|the) (?=\d{4}-)", r"\1 ", made), last, unknown)


def _is_plain_word(found: re.Match[str]) -> bool:
    """Say whether this is a word that only looks like a date: the verbs may and march, or 'sat' and 'sun'."""
    text = found.group()
    return bool(re.match(r"(?:may|march|mar) \d", text)) or text.lower() in ("sat", "sun", "wed", "mon")


def _shown(found: re.Match[str], day: date, said_on: date | None) -> str:
    said, iso = found.group().lower(), day.isoformat()
    span = (found["span"] or "").lower()
    if span == "week":
        return f"the week of {iso}"
    if span in ("month", "quarter", "year"):
        shapes = {"month": iso[:7], "quarter": f"Q{(day.month + 2) // 3} {day.year}", "year": iso[:4]}
        return shapes[span]
    if span and found["which"].lower() == "next" and said_on is not None:
        return f"{DAYS[day.weekday()].capitalize()} {' or '.join(map(str, next_weekdays(span, said_on)))}"
    if found["weekday"] or span:
        return f"{DAYS[day.weekday()].capitalize()} {iso}"
    return f"the night of {iso}" if said == "tonight" else iso


def _day(found: re.Match[str], said_on: date | None) -> date | None:
    try:
        if found["iso"]:
            return date.fromisoformat(found["iso"])
        year = found["year"] or found["dyear"]
        if found["mday"] or found["dday"]:
            return _in_year(found["month"] or found["dmonth"], int(found["mday"] or found["dday"]), year, said_on)
        return _relative(found, said_on) if said_on is not None else None
    except (ValueError, OverflowError):
        return None


def _in_year(month: str, day: int, year: str | None, said_on: date | None) -> date | None:
    number = next(at for at, name in enumerate(MONTHS, 1) if name.startswith(month.lower()[:3]))
    if year:
        return date(int(year), number, day)
    if said_on is None:
        return None
    found = date(said_on.year, number, day)
    return found if found >= said_on - timedelta(days=60) else date(said_on.year + 1, number, day)


def _relative(found: re.Match[str], today: date) -> date | None:
    if found["near"]:
        ahead = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}
        return today + timedelta(days=ahead.get(found["near"].lower(), 2))
    if found["end"]:
        return _end(found["end"].lower(), today)
    if found["weekday"]:
        return weekday_on(found["weekday"], today, "")
    if found["span"]:
        return _span(found["which"].lower(), found["span"].lower(), today)
    if found["count"]:
        return moved(today, _number(found["count"]), found["unit"])
    return moved(today, -_number(found["past"]), found["punit"])


def _number(said: str) -> int:
    return int(said) if said.isdigit() else _NUMBERS[said.lower()]


def _span(which: str, span: str, today: date) -> date:
    if span not in ("week", "month", "quarter", "year"):
        return weekday_on(span, today, which)
    return span_start(span, today, {"next": 1, "coming": 1, "last": -1}.get(which, 0))


def _end(said: str, today: date) -> date:
    short = {"eow": "week", "eom": "month", "eoq": "quarter", "eoy": "year"}
    span = short.get(said) or said.rsplit(" ", 1)[-1]
    return end_of(span, today, 1 if " next " in f" {said} " else 0)
