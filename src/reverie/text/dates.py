"""Make relative English dates absolute, counted from the date they were written; change nothing else.

A phrase that may recur, may be a duration or is vague stays: a bare weekday, "December 5", "in two weeks", "last week",
"the end of the month". Quotes, code and links stay: a quoted "tomorrow" belongs to the quoted person. A phrase beside
an ISO date stays too.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections import deque
from datetime import date, timedelta
from typing import Final

from ..values import record

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS: Final = {
    **{"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6},
    **{"seven": 7, "eight": 8, "nine": 9, "ten": 10},
}
_DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|mon|tues?|wed|thu(?:rs)?|fri|sat|sun"
_COUNT: Final = rf"\d{{1,3}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))}"
_UNIT: Final = r"days?|weeks?|months?|years?"
_SPANS: Final = ("month", "quarter", "year")
_SPAN: Final = "|".join(_SPANS)
_PHRASE: Final = re.compile(
    rf"""(?<![\w/.@#-])(?:
      (?P<near>(?:the\ )?day\ (?:after\ tomorrow|before\ yesterday)|today|tonight|tomorrow|yesterday)
    | (?P<end>(?:the\ )?end\ of\ (?:this|next)\ (?:{_SPAN}))
    | (?<!\bevery\ )(?<!\beach\ )(?P<which>next|this|last|coming)\ (?P<span>{_SPAN}|{_DAY})(?!\ of\b)
    | in\ (?P<count>{_COUNT})\ (?P<unit>{_UNIT})['’]?s?\ time
    | (?P<past>{_COUNT})\ (?P<past_unit>days?|months?|years?)\ (?P<way>ago|from\ (?:now|today))
    )(?![\w@-]|['’]\w|\.\w|/\w|[ ,]*\(?\d{{4}}-\d\d)""",
    re.IGNORECASE | re.VERBOSE,
)
_MASKED: Final = re.compile(
    r"^(?:```|~~~).*?(?:^(?:```|~~~)[^\n]*$|\Z)|`[^`\n]+`|https?://\S+|\]\((?:[^()\n]|\([^()\n]*\))*\)|\[\[[^\[\]\n]*\]\]"
    r"|\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|„[^“”\n]{1,300}[“”]|«[^»\n]{1,300}»|<!--(?:(?!<!--).)*?-->|^>[^\n]*$|(?<!\w)'[^'\n]{1,200}'(?!\w)",
    re.MULTILINE | re.DOTALL,
)
_NEAR_CHARS: Final = 40
_BOUNDARY: Final = ".!?:;,"


@record
class DatedText:
    """A text with its relative dates made absolute, and the phrases that were replaced or stayed."""

    text: str
    replaced: tuple[tuple[str, str], ...] = ()
    """Pairs of a phrase and its replacement."""
    unknown: tuple[str, ...] = ()
    """Phrases that stay because the date on which they were written is unknown."""


def iso_day(text: str) -> date | None:
    """Return the day that an ISO date or time begins with; None if it begins with none."""
    try:
        return date.fromisoformat(text[:10]) if len(text) >= len("2026-01-01") else None
    except ValueError:
        return None


def without_quotes(text: str) -> str:
    """Return a text without its quoted parts, code and links."""
    return _MASKED.sub(" ", text)


def absolute(text: str, written_on: date | None) -> DatedText:
    """Return the text with each relative date as an absolute one, counted from ``written_on`` (None: unknown)."""
    masked = deque(found.span() for found in _MASKED.finditer(text))
    replaced: list[tuple[str, str]] = []
    unknown: list[str] = []
    parts: list[str] = []
    at = 0
    for found in _PHRASE.finditer(text):
        start, end = found.span()
        while masked and masked[0][1] <= start:
            masked.popleft()
        if (masked and masked[0][0] < end) or _is_span_to_now(found) or _is_name(found):
            continue
        named = _days_of(found, written_on)
        if not named:
            unknown += [found.group()] if written_on is None else []
            continue
        shown = _shown(found, named)
        parts += (_joined(text[at:start], shown), shown)
        at = end
        if shown != found.group():
            replaced.append((found.group(), shown))
    made = "".join((*parts, text[at:]))
    return DatedText(made, tuple(replaced), tuple(unknown))


def _joined(before: str, shown: str) -> str:
    """Return the text before a date without an article that no longer fits, as in "on the 2026-11-20"."""
    return re.sub(r"\b(by|on|until|before|after) the \Z", r"\1 ", before) if shown[:1].isdigit() else before


def _is_span_to_now(found: re.Match[str]) -> bool:
    """Say whether a phrase is a span that ends now, as in "over the last month"."""
    before = found.string[max(0, found.start() - 4) : found.start()].lower()
    return (found["span"] or "").lower() in _SPANS and before == "the "


def _is_name(found: re.Match[str]) -> bool:
    """Say whether a phrase is capitalised inside a sentence, as in "the Today show"."""
    before = found.string[max(0, found.start() - _NEAR_CHARS) : found.start()].rstrip(" \t*_#>(-")
    return found.group()[0].isupper() and bool(before) and before[-1] not in f"{_BOUNDARY}\n"


def _shown(found: re.Match[str], days: tuple[date, ...]) -> str:
    iso = days[0].isoformat()
    unit = (found["unit"] or found["past_unit"] or "").lower().rstrip("s")
    span = (found["span"] or "").lower()
    shapes = {"month": iso[:7], "quarter": f"Q{(days[0].month + 2) // 3} {days[0].year}", "year": iso[:4]}
    if span in shapes or unit in ("month", "year"):
        shown = shapes[span or unit]
    elif span:
        shown = f"{_DAYS[days[0].weekday()].capitalize()} {' or '.join(map(str, days))}"
    else:
        shown = f"the night of {iso}" if found.group().lower() == "tonight" else iso
    return shown[0].upper() + shown[1:] if found.group()[0].isupper() else shown


# -- the days of a phrase


def _days_of(found: re.Match[str], today: date | None) -> tuple[date, ...]:
    """Return the one or two days that a phrase may mean, counted from ``today``; empty if it means none."""
    try:
        return _relative(found, today) if today is not None else ()
    except (ValueError, OverflowError):
        return ()


def _relative(found: re.Match[str], today: date) -> tuple[date, ...]:
    if near := found["near"]:
        ahead = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}
        return (today + timedelta(days=ahead.get(near.lower(), 2 if "after" in near.lower() else -2)),)
    if found["end"]:
        return (_end(found["end"].lower(), today),)
    if found["span"]:
        which, span = found["which"].lower(), found["span"].lower()
        if span in _SPANS:
            return (_span_start(span, today, {"next": 1, "coming": 1, "last": -1}.get(which, 0)),)
        return _weekdays(span, which, today)
    count, unit = found["count"] or found["past"], found["unit"] or found["past_unit"]
    number = int(count) if count.isdigit() else _NUMBERS[count.lower()]
    back = (found["way"] or "").lower() == "ago"
    return (_moved(today, -number if back else number, unit),)


def _weekdays(name: str, which: str, today: date) -> tuple[date, ...]:
    """Return the one or two days that a weekday may mean: "next Friday" is this week's or the following one's."""
    number = next(at for at, day in enumerate(_DAYS) if day.startswith(name.lower()[:3]))
    monday = today - timedelta(days=today.weekday())
    coming = today + timedelta(days=(number - today.weekday()) % 7 or 7)
    if which == "last":
        recent = coming - timedelta(days=14 if coming - today == timedelta(days=7) else 7)
        before = monday + timedelta(days=number - 7)
        return tuple(dict.fromkeys((before, recent)))
    if which == "next":
        return tuple(dict.fromkeys((coming, monday + timedelta(days=7 + number))))
    return (today,) if which == "this" and number == today.weekday() else (coming,)


def _moved(day: date, count: int, unit: str) -> date:
    """Return the day ``count`` units later (earlier if negative), at most the last day of its month."""
    kind = unit.lower().rstrip("s")
    if kind in ("day", "week"):
        return day + timedelta(days=count * (7 if kind == "week" else 1))
    months = day.year * 12 + day.month - 1 + count * (12 if kind == "year" else 1)
    year, month = divmod(months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def _span_start(span: str, today: date, step: int) -> date:
    """Return the first day of the month, quarter or year ``step`` spans after today's."""
    match span:
        case "month":
            return _moved(today.replace(day=1), step, "months")
        case "quarter":
            return _moved(today.replace(month=(today.month - 1) // 3 * 3 + 1, day=1), 3 * step, "months")
        case _:
            return date(today.year + step, 1, 1)


def _end(phrase: str, today: date) -> date:
    span = phrase.rsplit(" ", 1)[-1]
    start = _span_start(span, today, 1 if " next " in phrase else 0)
    return _moved(start, {"month": 1, "quarter": 3, "year": 12}[span], "months") - timedelta(days=1)
