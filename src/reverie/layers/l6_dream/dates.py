"""Relative dates in a memory, made absolute by the day it was written; what only looks like a date stays.

Text in quotes, code and links is not touched: a quoted "tomorrow" is what somebody said. A phrase that a date already
stands beside is absolute enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from functools import lru_cache
from typing import Final

from ...memories.dates import DAYS, MONTHS, end_of, moved, span_start, weekday_on
from ...values import record
from .habits import has_habit_word, is_generic, is_habit, is_over, is_over_at_once

__all__ = ["Redated", "redated"]

_COUNTS: Final = {
    **{"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8},
    **{"nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fourteen": 14, "twenty": 20, "thirty": 30, "ninety": 90},
    **{"a couple of": 2, "couple of": 2, "a few": 3, "another": 1},
}
_COUNT: Final = r"\d{1,3}|a\ couple\ of|couple\ of|a\ few|another|" + "|".join(
    sorted((word for word in _COUNTS if " " not in word and word != "another"), key=len, reverse=True)
)
_DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_SHORT_DAY: Final = rf"{_DAY}|mon|tues?|wed|thu(?:rs?)?|fri|sat|sun"
_MONTH: Final = "|".join(MONTHS)
_SEASON: Final = r"spring|summer|autumn|fall|winter"
_UNIT: Final = r"(?:business\ |working\ |work\ |calendar\ )?days?|nights?|weeks?|months?|quarters?|years?|fortnights?"
_SPAN: Final = r"week|month|quarter|year"
_AHEAD: Final = r"next|this|last|coming|upcoming|previous|past|following|current"
_PART: Final = r"(?:\ (?P<part{}>morning|afternoon|evening|night|noon|lunchtime))?"

_SAID: Final = re.compile(
    rf"""(?<![\w/.@#-])(?:
      (?:the\ )?(?P<two>day\ after\ tomorrow|day\ before\ yesterday)
    | (?P<near>today|tonight|tomorrow|yesterday){_PART.format(1)}(?P<own>['’]s)?
    | (?P<now>this\ (?:morning|afternoon|evening)|last\ night|earlier\ today|later\ today)
    | (?P<far>a|one|two|three|\d{{1,2}})\ (?P<funit>weeks?|days?|months?)\ (?P<dir>from|after|before)
        \ (?P<anchor>today|tomorrow|yesterday|now|(?:(?:next|this|coming)\ )?{_DAY})
    | (?:at\ )?(?:the\ )?(?P<edge>end|close|start|beginning|middle|first\ half|second\ half)\ of
        \ (?:the\ |(?P<ewhich>{_AHEAD})\ |the\ (?P<ewhich2>{_AHEAD})\ )?(?P<espan>{_SPAN}|day)(?!\ (?:on\ )?{_DAY})
    | (?:half\ )?(?P<soon>{_COUNT})\ (?:hours?|minutes?|hrs?|mins?)\ ago
    | (?P<eo>EOD|EOW|EOM|EOQ|EOY|COB)(?!\ (?:on\ )?(?:today|tomorrow|next|this|{_DAY}))
    | (?P<wday1>{_DAY})\ (?P<wwhich>next|this|last)\ week | (?P<wday1b>{_DAY})\ week
    | (?P<wwhich2>next|this|last)\ week(?:\ on)?\ (?P<wday2>{_DAY})
    | (?P<wday3>{_DAY})\ after\ next
    | (?P<wown>{_DAY})['’]s
    | (?:the\ )?(?P<skip>week|month|quarter|year)\ (?:after\ next|before\ last)
    | (?P<hedge>early|late|mid|later|earlier)[ -](?P<hwhich>{_AHEAD})\ (?P<hspan>{_SPAN})
    | (?:the\ )?(?P<which>{_AHEAD})\ (?P<span>{_SPAN}|weekend|{_SEASON}|{_SHORT_DAY}|{_MONTH}){_PART.format(2)}
        (?P<own2>['’]s)?
    | (?P<lead>in|within)\ (?:the\ next\ |about\ |around\ |roughly\ )?(?P<count>{_COUNT})\ (?P<unit>{_UNIT})
        (?:['’]?\ time|\ from\ now)?
    | (?P<from>{_COUNT})\ (?P<fromunit>{_UNIT})\ from\ (?:now|today)
    | (?:about\ |around\ |roughly\ )?(?P<past>{_COUNT})\ (?P<punit>{_UNIT})\ (?:ago|earlier\ than\ today)
    | (?P<lately>(?:over|in|during|for)\ the\ (?:last|past))\ (?P<lcount>{_COUNT}|)\ ?(?P<lunit>{_UNIT})
    | (?P<prep>(?:by\ )?(?:EOD|COB|end\ of\ (?:the\ )?day|close\ of\ business)(?:\ on)?
          |(?:set|planned|agreed|booked|scheduled|slated)\ for
          |by|until|till|before|due|due\ on|due\ by|starting|beginning|effective|no\ later\ than|after|since|from
          |(?:moved|postponed|pushed|rescheduled|delayed|slipped|brought\ forward)(?:\ back|\ out)?\ (?:to|until))
        \ (?P<weekday>{_DAY}){_PART.format(3)}
    | (?P<onday>on\ |come\ |(?<=\bis\ )(?={_DAY}\ at\ \d))(?P<weekday2>{_DAY}){_PART.format(4)}
    | (?P<prep2>by|on|until|before|due|due\ on|due\ by|after|since)\ the\ (?P<nth>\d{{1,2}})(?:st|nd|rd|th)
        (?:\ of\ (?P<nwhich>this|next|last|the)\ month)?
    )(?![\w@-]|['’][a-z]|\.\w|/\w)""",
    re.IGNORECASE | re.VERBOSE,
)
_MASKED: Final = re.compile(
    r"^(?:```|~~~).*?(?:^(?:```|~~~)[^\n]*$|\Z)|`[^`\n]+`|https?://\S+|\]\([^)\n]*\)|\[\[[^\]\n]*\]\]"
    r"|\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|«[^»\n]{1,300}»|<!--.*?-->|^>[^\n]*$|(?<!\w)'[^'\n]{1,200}'(?!\w)",
    re.MULTILINE | re.DOTALL,
)
_ABSTRACT: Final = re.compile(
    r" (?:[\w-]+ )?(?:standards?|world|market|practices?|technology|terms|web|hardware|software|browsers?|users"
    r"|date|day)\b"
)
_HOURS_OF_A_DAY: Final = 5
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
    kept = [(found.start(), found.end()) for found in _MASKED.finditer(text)]
    dates: list[tuple[str, str]] = []
    unknown: list[str] = []
    parts: list[str] = []
    at = 0
    for found in _SAID.finditer(text):
        start, end = found.span()
        if any(one <= start < other or start <= one < end for one, other in kept) or _is_no_date(found, text, one_off):
            continue
        if said_on is None:
            unknown.append(found.group())
            continue
        shown = _shown(found, said_on)
        if not shown:
            continue
        before = text[:start]
        if _starts_with_preposition(shown) and _BEFORE.search(before[-24:]):
            shown = shown.split(" ", 1)[1]
        if found.group()[0].isupper() and not found.group().isupper() and _opens(before):
            shown = shown[0].upper() + shown[1:]
        parts += (text[at:start], shown)
        at = end
        dates.append((found.group(), shown))
    return Redated("".join((*parts, text[at:])), tuple(dates), tuple(unknown))


def _opens(before: str) -> bool:
    return not before.strip(" *_#->\t") or before.rstrip(" *_")[-1:] in ".!?\n:" or before.endswith("\n")


def _starts_with_preposition(shown: str) -> bool:
    return shown.startswith(("on ", "in ", "at "))


def _sentence(found: re.Match[str]) -> tuple[str, str]:
    """Return what stands before and behind in the same sentence."""
    before, after = found.string[max(0, found.start() - 200) : found.start()], found.string[found.end() :][:40]
    return re.split(r"[.!?\n]", before)[-1], re.split(r"[.!?\n]", after, maxsplit=1)[0]


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


def _count(said: str) -> int:
    return int(said) if said.isdigit() else _COUNTS.get(said.lower(), 1)


def _later(today: date, count: int, unit: str) -> date:
    unit = unit.lower()
    if unit.startswith("night"):
        return moved(today, count, "days")
    if unit.startswith("fortnight"):
        return moved(today, 2 * count, "weeks")
    if unit.startswith("quarter"):
        return moved(today, 3 * count, "months")
    if unit.startswith(("business", "work")):
        step = 1 if count > 0 else -1
        while count:
            today += timedelta(days=step)
            count -= step if today.weekday() < 5 else 0
        return today
    return moved(today, count, unit.rsplit(" ", 1)[-1])


def _near(found: re.Match[str], today: date) -> str:
    if found["two"]:
        return _day(today + timedelta(days=2 if "after" in found["two"].lower() else -2))
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
    count = _count(found["far"]) * (-1 if found["dir"].lower() == "before" else 1)
    return _day(_later(base, count, found["funit"]))


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
    if span in _SEASON.split("|"):
        return f"in {span} {_year_of(span, which, today)}"
    if span in MONTHS:
        return _month(_of_month(MONTHS.index(span) + 1, which, today))
    direction = {1: "next" if which in ("next", "following") else "", -1: "last"}.get(_step(which), "this")
    return _with_part(weekday_on(span, today, direction), _part(found))


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


def _distant(found: re.Match[str], today: date) -> str:
    """Return the day that is so far from this one, or the day of the month."""
    if found["count"]:
        return _day(
            _later(today, _count(found["count"]), found["unit"]), "by" if found["lead"].lower() == "within" else "on"
        )
    if found["from"]:
        return _day(_later(today, _count(found["from"]), found["fromunit"]))
    if found["soon"]:
        return _day(today) if _count(found["soon"]) <= _HOURS_OF_A_DAY or "min" in found.group().lower() else ""
    if found["past"]:
        return _day(_later(today, -_count(found["past"]), found["punit"]))
    if found["lately"] and found["lunit"].lower() == "quarter" and found["lately"].lower() == "in the last":
        return _of_span("quarter", span_start("quarter", today, -1))
    if found["lately"]:
        return f"since {_day(_later(today, -_count(found['lcount'] or 'a'), found['lunit']), '')}"
    if not found["nth"]:
        return ""
    which, prep = (found["nwhich"] or "").lower(), found["prep2"].lower()
    day = span_start("month", today, {"next": 1, "last": -1}.get(which, 0)).replace(day=int(found["nth"]))
    if not which and prep != "since" and day < today:
        day = moved(day, 1, "month")
    return f"{prep} {_day(day, '')}"


_WAYS: Final[tuple[Callable[[re.Match[str], date], str], ...]] = (_near, _anchored, _edge, _weekday, _named, _distant)
