"""Relative dates in a memory, made absolute by the day it was written; what only looks like a date stays.

Text in quotes, code and links is not touched: a quoted "tomorrow" is what somebody said. A phrase that a date already
stands beside is absolute enough.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from datetime import date, timedelta
from functools import lru_cache
from typing import Final

from ...memories.dates import DAYS, MONTHS, end_of, moved, next_weekdays, span_start, weekday_on
from ...values import record
from .date_phrases import SAID, SEASONS
from .distances import count_of, is_vague, later
from .habits import has_habit_word, is_generic, is_habit, is_over, is_over_at_once

__all__ = ["Redated", "redated"]

_MASKED: Final = re.compile(
    r"^(?:```|~~~).*?(?:^(?:```|~~~)[^\n]*$|\Z)|`[^`\n]+`|https?://\S+|\]\((?:[^()\n]|\([^()\n]*\))*\)|\[\[[^\[\]\n]*\]\]"
    r"|\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|«[^»\n]{1,300}»|<!--(?:(?!<!--).)*?-->|^>[^\n]*$|(?<!\w)'[^'\n]{1,200}'(?!\w)",
    re.MULTILINE | re.DOTALL,
)
_ABSTRACT: Final = re.compile(
    r" (?:[\w-]+ )?(?:standards?|world|market|practices?|technology|terms|web|hardware|software|browsers?|users"
    r"|date|day)\b"
)
_HOURS_OF_A_DAY: Final = 5
_NEAR_CHARS: Final = 200
_SHORT_WORD: Final = 3
_WILL: Final = re.compile(r"\bwill\b|\bgoing to\b|['’]ll\b", re.IGNORECASE)
_VERB: Final = re.compile(r" (?:was|is|were|will|has)\b")
_DAY_NAME: Final = re.compile("|".join(DAYS), re.IGNORECASE)
_NAMED_DAY: Final = re.compile(rf"(?:{'|'.join((*DAYS, *MONTHS))})\b|E\wO?[A-Z]|COB", re.IGNORECASE)
_DATE_NEAR: Final = re.compile(r"[ ,]*\(?(?:on |the |i\.e\. |= ?|that is,? )?\d{4}-\d\d(?:-\d\d)?\b")
_AFTER_DATE: Final = re.compile(r"\d{4}-\d\d(?:-\d\d)?(?: \(|, | or | - | – | — )\Z")
_BEFORE: Final = re.compile(
    r"\b(by|on|until|till|before|after|since|from|to|of|for|at|due|through|between|in|during|starting|effective|around"
    r"|within|than|as of|per|and|or|over|about|the)\s+\Z|[(:–—/,-]\s*\Z",
    re.IGNORECASE,
)
_LISTED: Final = re.compile(
    r"\s*(?:to|through|and|or|-|–|/|,)\s*(?:mon|tues|wednes|thurs|fri|satur|sun)", re.IGNORECASE
)


@record
class Redated:
    """A text with its relative dates made absolute."""

    text: str
    dates: tuple[tuple[str, str], ...] = ()
    """What was said, and what stands there now."""
    unknown: tuple[str, ...] = ()
    """What could not be made absolute, since the file does not say when it was written."""


@lru_cache(maxsize=4_096)
def redated(text: str, said_on: date | None, *, one_off: bool = True) -> Redated:
    """Return the text with each relative date as an absolute one.

    ``one_off`` says that a bare "on Friday" means one Friday; where it is false that is taken for a habit.
    """
    kept = deque(found.span() for found in _MASKED.finditer(text))
    dates: list[tuple[str, str]] = []
    unknown: list[str] = []
    parts: list[str] = []
    at = 0
    for found in SAID.finditer(text):
        start, end = found.span()
        while kept and kept[0][1] <= start:
            kept.popleft()
        if (kept and kept[0][0] < end) or _is_name(found) or _is_no_date(found, text, one_off):
            continue
        if said_on is None:
            unknown.append(found.group())
            continue
        shown = _shown(found, said_on)
        if not shown:
            continue
        before = text[max(0, start - _NEAR_CHARS) : start]
        subject = _opens(before) and _VERB.match(text, end)  # "last week was quiet"
        if _starts_with_preposition(shown) and (subject or _BEFORE.search(before[-24:])):
            shown = shown.split(" ", 1)[1]
        if found.group()[0].isupper() and not found.group().isupper() and _opens(before):
            shown = shown[0].upper() + shown[1:]
        parts += (text[at:start], shown)
        at = end
        dates.append((found.group(), shown))
    return Redated("".join((*parts, text[at:])), tuple(dates), tuple(unknown))


def _opens(before: str) -> bool:
    return not before.strip(" *_#->\t") or before.rstrip(" *_")[-1:] in ".!?\n:(" or before.endswith("\n")


def _starts_with_preposition(shown: str) -> bool:
    return shown.startswith(("on ", "in ", "at "))


def _sentence(found: re.Match[str]) -> tuple[str, str]:
    """Return what stands before and behind in the same sentence."""
    before, after = found.string[max(0, found.start() - 200) : found.start()], found.string[found.end() :][:40]
    return re.split(r"[.!?\n]", before)[-1], re.split(r"[.!?\n]", after, maxsplit=1)[0]


def _is_name(found: re.Match[str]) -> bool:
    """Say whether it is written as a name inside a sentence that is not: the Today show, The Last Week in June."""
    said = found.group()
    if (
        not said[0].isupper()
        or said.isupper()
        or _opens(found.string[max(0, found.start() - _NEAR_CHARS) : found.start()])
    ):
        return False
    if _NAMED_DAY.match(said):
        return False
    before, after = _sentence(found)
    return any(word[0].islower() and len(word) > _SHORT_WORD for word in re.findall(r"[^\W\d_]+", f"{before} {after}"))


def _is_no_date(found: re.Match[str], text: str, one_off: bool) -> bool:
    start, end = found.span()
    before, after = text[max(0, start - 200) : start], text[end : end + 40]
    if _DATE_NEAR.match(after) or _AFTER_DATE.search(before):
        return True
    sentence = " ".join(_sentence(found))
    if re.match(r" the \d{1,2}(?:st|nd|rd|th)\b", after) or (found["eo"] and re.search(r"day\s*\Z", before)):
        return True
    if found["wown"]:
        return not one_off or has_habit_word(sentence) or bool(re.match(r" [\w-]+s\b", after))
    if found["bare"]:
        told = _sentence(found)[0]
        once = told.strip() and (is_over(told) or _WILL.search(told)) and not is_habit(*_sentence(found))
        return not (one_off and once)
    if found["weekend"]:
        return not one_off or is_habit(*_sentence(found))
    if found["weekday"] or found["weekday2"]:
        if _LISTED.match(after) or re.search(r"day(?:s)?\s*(?:to|through|-|–|and|or|/|,)\s*\Z", before, re.IGNORECASE):
            return True
        firm = found["prep"] and found["prep"].lower() not in ("after", "since", "from", "before")
        habit = is_habit(*_sentence(found))
        return habit and not (firm and one_off) if firm else habit or not one_off
    if re.match(r" of (?:the|each|every|a) (?:week|month|quarter|year)\b", after):
        return True  # the last Friday of the month
    if found["edge"] and not (found["ewhich"] or found["ewhich2"]) and is_generic(_sentence(found)[0]):
        return True
    if found["own"] and re.search(r"\b(?:each|every|always|whenever)\b", sentence, re.IGNORECASE):
        return True
    if found["near"] and found["near"].lower() == "today":
        return bool(found["own"] and _ABSTRACT.match(after)) or bool(
            re.search(r"\b(?:even|still)\s+\Z", before, re.IGNORECASE)
        )
    if found["nth"]:
        return has_habit_word(sentence) or bool(re.match(r" (?:of|floor|place|time|century|street)\b", after))
    if (found["span"] or "").lower() in ("sat", "sun", "wed", "mon", "fri") and re.match(r"\w", after):
        return True
    if found["which"] and found["which"].lower() in ("following", "past", "previous", "current"):
        return found["span"].lower() == "weekend" and not one_off
    return bool(re.search(r"\b(?:every|each|any)\s+(?:the\s+)?\Z", before, re.IGNORECASE))


# -- which day is meant


def _shown(found: re.Match[str], today: date) -> str:
    try:
        return next(shown for way in _WAYS if (shown := way(found, today)))
    except (StopIteration, ValueError, OverflowError):
        return ""


def _day(day: date, lead: str = "on") -> str:
    return f"{lead} {day.isoformat()} ({DAYS[day.weekday()].capitalize()})".strip()


def _month(day: date) -> str:
    return f"in {day.isoformat()[:7]} ({MONTHS[day.month - 1].capitalize()})"


def _of_span(span: str, start: date) -> str:
    if span == "week":
        return f"in the week of {start.isoformat()}"
    if span == "month":
        return _month(start)
    return f"in Q{(start.month + 2) // 3} {start.year}" if span == "quarter" else f"in {start.year}"


def _step(which: str | None) -> int:
    word = (which or "").lower()
    return {"next": 1, "coming": 1, "upcoming": 1, "following": 1, "last": -1, "previous": -1, "past": -1}.get(word, 0)


def _near(found: re.Match[str], today: date) -> str:
    if found["two"]:
        said = found["two"].lower()
        if said.endswith("last") and not said.startswith("day"):
            return f"in the {said.split()[0]} of {(today - timedelta(days=2)).isoformat()}"
        return _day(today + timedelta(days=2 if "after" in said else -2))
    if found["now"]:
        said = found["now"].lower()
        if said == "last night":
            return f"in the night of {(today - timedelta(days=1)).isoformat()}"
        part = said.rsplit(" ", 1)[-1]
        return _day(today) if part == "today" else f"in the {part} of {today.isoformat()}"
    if not found["near"]:
        return ""
    said = found["near"].lower()
    day = today + timedelta(days={"tomorrow": 1, "yesterday": -1}.get(said, 0))
    if found["own"]:
        return f"{day.isoformat()}'s"
    part = "night" if said == "tonight" else _part(found)
    return _with_part(day, part)


def _part(found: re.Match[str]) -> str | None:
    return found["part1"] or found["part2"] or found["part3"] or found["part4"]


def _with_part(day: date, part: str | None) -> str:
    if not part:
        return _day(day)
    if part.lower() in ("noon", "lunchtime"):
        return f"{_day(day)} at {part.lower()}"
    return f"in the {part.lower()} of {_day(day, '')}"


def _anchored(found: re.Match[str], today: date) -> str:
    if not found["far"]:
        return ""
    said = found["anchor"].lower()
    base = {"today": today, "now": today, "tomorrow": today + timedelta(1), "yesterday": today - timedelta(1)}.get(said)
    if base is None:
        which, _, name = said.rpartition(" ")
        base = weekday_on(name, today, which)
    return _day(later(base, found["far"], found["funit"], back=found["dir"].lower() == "before"))


def _edge(found: re.Match[str], today: date) -> str:
    if found["eo"]:
        span = {"D": "day", "B": "day", "W": "week", "M": "month", "Q": "quarter", "Y": "year"}[found["eo"].upper()[-1]]
        return _day(today if span == "day" else end_of(span, today, 0))
    if not found["edge"]:
        return ""
    edge, span = found["edge"].lower(), found["espan"].lower()
    step = _step(found["ewhich"] or found["ewhich2"])
    if span == "day":
        return _day(today) if step == 0 and edge in ("end", "close") else ""
    start, last = span_start(span, today, step), end_of(span, today, step)
    if edge in ("end", "close"):
        return _day(last)
    if edge in ("start", "beginning"):
        return _day(start)
    return f"in the {edge} of {_of_span(span, start).removeprefix('in ')}"


def _weekday(found: re.Match[str], today: date) -> str:
    if found["wown"]:
        over = is_over(_sentence(found)[1])
        return f"{weekday_on(found['wown'], today, 'last' if over else '').isoformat()}'s"
    if found["wday3"]:
        return _day(weekday_on(found["wday3"], today, "next") + timedelta(days=7))
    named = found["wday1"] or found["wday2"]
    if named:
        start = span_start("week", today, _step(found["wwhich"] or found["wwhich2"]))
        return _day(weekday_on(named, start, "this"))
    if found["wday1b"]:
        return _day(weekday_on(found["wday1b"], today, "") + timedelta(days=7))
    if found["wago"]:
        day = weekday_on(_DAY_NAME.findall(found["wago"])[0], span_start("week", today, -1), "this")
        return _day(day)
    if found["bare"]:
        over = is_over(_sentence(found)[0])
        return _with_part(weekday_on(found["bare"], today, "last" if over else ""), found["part5"])
    named = found["weekday"] or found["weekday2"]
    if not named:
        return ""
    prep = found["prep"] or found["onday"].strip() or "on"
    prep = prep if prep.isupper() or "EOD" in prep or "COB" in prep else prep.lower()
    over = prep == "since" or (prep == "on" and (is_over(_sentence(found)[0]) or is_over_at_once(_sentence(found)[1])))
    day = weekday_on(named, today, "last" if over else "")
    shown = _with_part(day, _part(found))
    return shown if prep in ("on", "come") else f"{prep} {shown.removeprefix('on ').removeprefix('in ')}"


def _named(found: re.Match[str], today: date) -> str:
    """Return what "next week", "last March" or "this Friday" is."""
    if found["skip"]:
        after = "after" in found.group().lower()
        return _of_span(found["skip"].lower(), span_start(found["skip"].lower(), today, 2 if after else -2))
    if found["weekend"]:
        over = is_over(_sentence(found)[0])
        saturday = span_start("week", today, -1 if over else 0) + timedelta(days=5)
        lead = found["weekend"].lower()
        return f"{'on' if lead in ('over', 'at', 'during') else lead} the weekend of {saturday.isoformat()}"
    if found["wspan"] or found["mspan"]:
        return _day(end_of((found["wspan"] or found["mspan"]).lower(), today, 0), "by" if found["wspan"] else "on")
    if found["hedge"]:
        span, hedge = found["hspan"].lower(), found["hedge"].lower()
        start = span_start(span, today, _step(found["hwhich"]))
        shown = _of_span(span, start).removeprefix("in ")
        if hedge == "mid":
            return f"in the middle of {shown}"
        return f"in {shown}" if hedge in ("later", "earlier") else f"{hedge} in {shown}"
    if not found["span"]:
        return ""
    which, span = found["which"].lower(), found["span"].lower()
    if span in ("week", "month", "quarter", "year"):
        shown = _of_span(span, span_start(span, today, _step(which)))
        return f"{shown.removeprefix('in ')}'s" if found["own2"] else shown
    if span == "weekend":
        saturday = span_start("week", today, _step(which)) + timedelta(days=5)
        return f"on the weekend of {saturday.isoformat()}"
    if span in SEASONS:
        return f"in {span} {_year_of(span, which, today)}"
    if span in MONTHS:
        return _month(_of_month(MONTHS.index(span) + 1, which, today))
    direction = {1: "next" if which in ("next", "following") else "", -1: "last"}.get(_step(which), "this")
    day = weekday_on(span, today, direction)
    shown = _with_part(day, _part(found))
    # Which week "next Friday" means nobody can tell: both days stand there then, and whoever reads it may ask.
    return shown.replace(str(day), " or ".join(map(str, next_weekdays(span, today)))) if which == "next" else shown


def _year_of(season: str, which: str, today: date) -> int:
    """Return the year of a season, by where it lies in the north; a winter has that of its December."""
    first = {"spring": 3, "summer": 6, "winter": 12}.get(season, 9)
    begun = today.month >= first
    if _step(which) > 0:
        return today.year + begun
    if _step(which) < 0:  # the one that is over
        return today.year - (today.month < first + 3)
    return today.year - (season == "winter" and today.month < 3)


def _of_month(number: int, which: str, today: date) -> date:
    here = date(today.year, number, 1)
    if _step(which) > 0:
        return here if number > today.month else date(today.year + 1, number, 1)
    if _step(which) < 0:
        return here if number < today.month else date(today.year - 1, number, 1)
    return here


def _ahead(found: re.Match[str], today: date) -> str:
    """Return the day that comes after so long, or the two between which it comes."""
    count, unit, lead = found["count"], found["unit"], found["lead"].lower()
    if unit.lower() == "hours":
        if not count.isdigit() or int(count) % 24:
            return ""
        count, unit = str(int(count) // 24), "days"
    day = later(today, count, unit, half=bool(found["half1"]))
    if least := found["least"] or found["least2"]:
        first = later(today, least, unit)
        return f"between {_day(first, '')} and {_day(day, '')}" if first < day else ""
    before = "before" if lead.startswith(("in under", "in less")) else "by" if lead != "in" else "on"
    return _day(day, "around" if before == "on" and is_vague(count) else before)


def _hours_ago(found: re.Match[str], today: date) -> str:
    """Return today for what was a moment ago, another day for whole days; else nobody knows which."""
    count = 1 if found["soon"].lower().startswith("half") else count_of(found["soon"])
    if count <= _HOURS_OF_A_DAY or found["sunit"].lower().startswith("m"):
        return _day(today)
    return _day(today - timedelta(days=count // 24)) if count % 24 == 0 else ""


def _distant(found: re.Match[str], today: date) -> str:
    """Return the day that is so far from this one, or the day of the month."""
    if found["count"]:
        return _ahead(found, today)
    if found["soon"]:
        return _hours_ago(found, today)
    if found["past"]:
        back = found["pway"].lower() not in ("from now", "from today", "hence")
        count, guess = ("two", True) if found["ortwo"] else (found["past"], is_vague(found["past"]))
        day = later(today, count, found["punit"], back=back, half=bool(found["half2"]))
        return _day(day, "around" if guess else "on")
    if found["lately"] and found["lunit"].lower() == "quarter" and found["lately"].lower() == "in the last":
        return _of_span("quarter", span_start("quarter", today, -1))
    if found["lately"]:
        return f"since {_day(later(today, found['lcount'] or 'a', found['lunit'], back=True), '')}"
    if not found["nth"]:
        return ""
    which, prep = (found["nwhich"] or "").lower(), found["prep2"].lower()
    day = span_start("month", today, {"next": 1, "last": -1}.get(which, 0)).replace(day=int(found["nth"]))
    if not which and prep != "since" and day < today:
        day = moved(day, 1, "month")
    return f"{prep} {_day(day, '')}"


_WAYS: Final[tuple[Callable[[re.Match[str], date], str], ...]] = (_near, _anchored, _edge, _weekday, _named, _distant)
