"""A sentence in lower case with its dates, times, numbers and expressions in one form. Pure.

Two ways to write one value become the same text here: 5 March 2026 and 2026-03-05, 9.30 am and 09:30, 1.5k and 1500.
"""

from __future__ import annotations

import re
from typing import Final

from ...memories.dates import DAYS, MONTHS
from .lexicon import phrases

__all__ = ["CURRENCIES", "NUMBERS", "UNITS", "plain"]

_MONTH: Final = "|".join(MONTHS) + "|jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec"
UNITS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds", "msec"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "second"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "minute"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "hour"),
    **dict.fromkeys(("d", "day", "days"), "day"),
    **dict.fromkeys(("week", "weeks", "wk", "wks"), "week"),
    **dict.fromkeys(("month", "months"), "month"),
    **dict.fromkeys(("year", "years", "yr", "yrs"), "year"),
    **dict.fromkeys(("kb", "kib", "kilobytes", "kilobyte"), "kb"),
    **dict.fromkeys(("mb", "mib", "megabytes", "megabyte"), "mb"),
    **dict.fromkeys(("gb", "gib", "gigabytes", "gigabyte", "gigs"), "gb"),
    **dict.fromkeys(("tb", "tib", "terabytes", "terabyte"), "tb"),
    **dict.fromkeys(("%", "percent", "pct"), "percent"),
    **dict.fromkeys(("px", "pixels", "pixel"), "pixel"),
    **dict.fromkeys(("km", "kilometer", "kilometre", "kilometers", "kilometres"), "km"),
    **dict.fromkeys(("mile", "miles", "mi"), "mile"),
    **dict.fromkeys(("meter", "metre", "meters", "metres"), "meter"),
    **dict.fromkeys(("cm", "centimeter", "centimetre", "centimeters", "centimetres"), "cm"),
    **dict.fromkeys(("mm", "millimeter", "millimetre", "millimeters", "millimetres"), "mm"),
    **dict.fromkeys(("kg", "kilos", "kilo", "kilogram", "kilograms"), "kg"),
    **dict.fromkeys(("g", "gram", "grams"), "gram"),
    **dict.fromkeys(("mg", "milligram", "milligrams"), "mg"),
    **dict.fromkeys(("l", "liter", "litre", "liters", "litres"), "liter"),
    **dict.fromkeys(("ml", "milliliter", "millilitre", "milliliters", "millilitres"), "ml"),
    **dict.fromkeys(("°c", "celsius"), "celsius"),
    **dict.fromkeys(("°f", "fahrenheit"), "fahrenheit"),
}
CURRENCIES: Final = {
    **dict.fromkeys(("$", "usd", "dollar", "dollars"), "usd"),
    **dict.fromkeys(("€", "eur", "euro", "euros"), "eur"),
    **dict.fromkeys(("£", "gbp", "pounds"), "gbp"),
}
_ONES: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBERS: Final = {
    **{word: str(number) for number, word in enumerate(re.findall(r"\w+", _ONES))},
    **{word: str(10 * number) for number, word in enumerate(re.findall(r"\w+", _TENS), 2)},
    **{"hundred": "100", "thousand": "1000"},
}
_RULES: Final = (
    (re.compile(rf"\b({_MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}})\b"), 1, 2, 3),
    (re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})\.?,? (\d{{4}})\b"), 2, 1, 3),
)
_MONTH_YEAR: Final = re.compile(rf"\b({_MONTH})\.? (\d{{4}})\b")
_BESIDE_DATE: Final = re.compile(r"(\d{4}-\d\d(?:-\d\d)?) \((?:" + "|".join((*DAYS, *MONTHS)) + r")\)")
_LETTER: Final = re.compile(r"(?<=[\w,;)] )([A-HJ-Z])\b(?!\.\s?\w|['’]|\s?&)")
"""A letter by itself inside a sentence: model A, plan B."""
_DIGITS: Final = {word: int(number) for word, number in NUMBERS.items()} | {"million": 10**6, "billion": 10**9}
_SPELT_NUMBER: Final = re.compile(
    rf"(?:\b(?:{'|'.join(_DIGITS)})|\b\d{{1,3}}(?:\.\d+)?(?= (?:hundred|thousand|million|billion)\b))"
    rf"(?:(?: and |[ -])(?:{'|'.join(_DIGITS)})\b)+"
)
_SIGNED: Final = re.compile(r"(?:(?<=[\s(])|^)[-−](?=\d)")
_SLASHED_DATE: Final = re.compile(r"(?<![\d/])(\d{4})/(\d\d)/(\d\d)(?![\d/])")
_NUMERIC_DATE: Final = re.compile(r"(?<![\d.])(\d\d)\.(\d\d)\.(\d{4})(?![\d.])")
_DAY_OF_DATE: Final = re.compile(rf"\b(?:{'|'.join(DAYS)}),? (?=\d{{4}}-\d\d-\d\d)")
_SIGNS: Final = (
    (re.compile(r"(?:≤|<=)\s?(?=\d)"), "at most "),
    (re.compile(r"(?:≥|>=)\s?(?=\d)"), "at least "),
    (re.compile(r"(?<![-=<>\w])<\s?(?=\d)"), "less than "),
    (re.compile(r"(?<![-=<>\w])>\s?(?=\d)"), "more than "),
)
_NOT_LARGER: Final = re.compile(
    r"\bnot (?:exceed|be (?:larger|bigger|higher|longer|greater|older|more) than) (?=[$€£]?\d)"
)
_LARGER: Final = re.compile(
    r"\b(?<!no )(?<!not )(?:(larger|bigger|higher|longer|greater|heavier|older)|smaller|lower|shorter|younger|lighter) "
    r"than (?=[$€£]?\d)"
)
_LEFT: Final = re.compile(
    r"(?<=\bthe )left\b|\bleft(?=-|\s(?:hand|side|of|corner|edge|margin|panel|column|foot|arm|leg|eye)\b)"
)
"""The side, and not what somebody left."""
_EVERY_OTHER: Final = re.compile(
    rf"\bevery (?:other|second|2nd) (?=(?:{'|'.join(DAYS)}|day|month|year|night|morning|evening|sprint)\b)"
)
_USED_TO: Final = re.compile(r"(?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bbe )(?<!\bwere )(?<!\bget )\bused to (?=[a-z])")
_CLOCK: Final = re.compile(r"\b(\d{1,2})(?:[:.](\d\d))?(?: ?h)? ?(a\.?m\b\.?|p\.?m\b\.?)|\b(\d{1,2}):(\d\d)\b(?![:\d])")
_ONE: Final = re.compile(
    r"(?<!the )(?<!this )(?<!that )(?<!each )(?<!every )(?<!any )(?<!no )(?<!which )\bone "
    r"(?=[a-z])(?!(?:of|is|that|who|which|should|can|must|may|more|another|has|by|for|in|and|or|to)\b)"
)
_SPELT: Final = re.compile(
    rf"\b(?:{'|'.join(word for word in NUMBERS if word != 'one')})"
    rf"(?= (?:{'|'.join(unit for unit in UNITS if len(unit) > 1 and unit.isalpha())})\b)"
)
_AFTER_SPAN: Final = re.compile(
    r"\bafter (?=\d+ ?(?:" + "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True)) + r")(?!\w))"
)
_NOT_WITHOUT: Final = re.compile(r"\b(?:do not|don't|never) ([^.;,:]{1,120}?) without (?:first )?([a-z]+ing\b[^.;,:]*)")
"""Not to do one thing without another is to do the other one first."""
_THOUSANDS: Final = re.compile(r"(?<=\d)[,_](?=\d{3}\b)")
_KILO: Final = re.compile(r"\b(\d+)k\b")
_PREFIX: Final = re.compile(r"(?<![\w/.-])(re|un|non|co|sub|multi|auto|inter)-(?=[a-z])")
"""What is written as one word too."""


def plain(text: str) -> str:
    """Return a text in lower case with dates, times and numbers in one form."""
    low = _LETTER.sub(r"letter_\1", text).lower().replace("’", "'").replace("`", " ")
    low = _SPELT_NUMBER.sub(_spelt, low)
    low = _SIGNED.sub("minus_", _NUMERIC_DATE.sub(r"\3-\2-\1", _SLASHED_DATE.sub(r"\1-\2-\3", low)))
    for sign, meant in _SIGNS:
        low = sign.sub(meant, low)
    low = _NOT_WITHOUT.sub(r"\2 before \1", low)
    for rule, month, day, year in _RULES:
        low = rule.sub(lambda found: _iso(found[year], found[month], found[day]), low)  # noqa: B023 - runs at once
    low = _MONTH_YEAR.sub(lambda found: f"{found[2]}-{_number_of(found[1]):02}", low)
    low = re.sub(r"\bnoon\b", "12:00", re.sub(r"\bmidnight\b", "00:00", low))
    low = _DAY_OF_DATE.sub("", _BESIDE_DATE.sub(r"\1", low))
    low = _CLOCK.sub(_clock, low)
    low = _KILO.sub(r"\g<1>000", _THOUSANDS.sub("", low))
    low = re.sub(r" o'clock\b", "", re.sub(r"\bper cent\b", "%", low))
    low = _ONE.sub("1 ", low)
    low = _SPELT.sub(lambda found: NUMBERS[found.group()], low)
    low = _AFTER_SPAN.sub("in ", low)
    low = re.sub(r"\b(?:under|below|beneath) (?=[$€£]?\d)", "less_than ", low)
    low = re.sub(r"\b(?:over|above|exceed(?:s|ing)?|surpass(?:es|ing)?) (?=[$€£]?\d)", "more_than ", low)
    low = _NOT_LARGER.sub("at_most ", low)
    low = _LARGER.sub(lambda found: "more_than " if found[1] else "less_than ", low)
    low = re.sub(r"\bjust (?=(?:an?|the|one|\d+)\b)", "only ", low)
    low = _EVERY_OTHER.sub("every_other ", low)
    low = _LEFT.sub("leftward", _USED_TO.sub("formerly ", low))
    return phrases(_PREFIX.sub(r"\1", " ".join(low.split())))


def _spelt(found: re.Match[str]) -> str:
    """Return a number of several words in digits; "one two" and the like are left as they are."""
    total = part = 0.0
    last = 10.0**12
    for word in re.findall(r"[a-z]+|[\d.]+", found.group()):
        if word == "and":
            continue
        value = _DIGITS.get(word) or float(word if word not in _DIGITS else 0)
        if value in (100, 1_000, 10**6, 10**9):
            part = (part or 1) * value
            if value > 100:
                total, part = total + part, 0.0
        elif value >= last:
            return found.group()
        else:
            part += value
        last = value
    whole = total + part
    return str(int(whole)) if whole == int(whole) else str(whole)


def _number_of(month: str) -> int:
    return next(at for at, name in enumerate(MONTHS, 1) if name.startswith(month[:3]))


def _iso(year: str, month: str, day: str) -> str:
    return f"{year}-{_number_of(month):02}-{int(day):02}"


def _clock(found: re.Match[str]) -> str:
    if found[4]:
        return f"{int(found[4]):02}:{found[5]}"
    hour = int(found[1]) % 12 + (12 if found[3].startswith("p") else 0)
    return f"{hour:02}:{found[2] or '00'}"
