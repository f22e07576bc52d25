"""Events that are dated by their distance from the day they were written down, and words that only look like it."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import date, timedelta
from random import Random
from typing import Final

from ...values import record

__all__ = ["EVENTS", "LOOKALIKES", "Relative", "phrase_for"]


@record
class Relative:
    """A relative date in a file."""

    file: str
    phrase: str
    accepted: tuple[str, ...]
    """Ways to write the day or span that is meant; one of them must stand in the file."""


EVENTS: Final = (
    ("The {svc} demo for the board takes place {when}.", "Demo of {svc}"),
    ("{When} the {svc} certificate runs out.", "Certificate of {svc}"),
    ("{person} presents the {svc} roadmap {when}.", "Roadmap of {svc}"),
    ("The load test of {svc} was agreed for {when}.", "Load test of {svc}"),
    ("Legal answers the {svc} question {when}; nothing ships before that.", "Legal question of {svc}"),
    ("The contract for {svc} has to be signed {when}, says {person}.", "Contract for {svc}"),
    ("{person} wants the {svc} cost report {when}.", "Cost report of {svc}"),
    ("The penetration test of {svc} ends {when}.", "Penetration test of {svc}"),
    ("Interviews for the {svc} opening are planned {when}.", "Interviews for {svc}"),
)
PAST: Final = (
    ("{person} left the {svc} team {when}.", "Change in {svc}"),
    ("The {svc} outage happened {when} and lasted an hour.", "Outage of {svc}"),
    ("We signed the {svc} contract {when}.", "Signed {svc} contract"),
    ("The {svc} quota was doubled {when} by {person}.", "Quota of {svc}"),
)
LOOKALIKES: Final = (
    ("The {svc} rota changes every Monday.", "every Monday"),
    ("In {svc} the last name comes before the first one.", "last name"),
    ("The next step in the {svc} wizard is the payment form.", "next step"),
    ("By today's standard the {svc} interface is old.", "today's standard"),
    ('The {svc} banner says "tomorrow is another day" and must stay.', "tomorrow is another day"),
    ("The {svc} filter is called `last_week` in the API.", "last_week"),
    ("The {svc} backlog is sorted on Mondays.", "on Mondays"),
    ("Type `next month` to jump ahead in the {svc} calendar.", "next month"),
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WORDS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def phrase_for(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    """Return a relative date, what may stand for it, and whether it lies in the past."""
    return random.choice(_PHRASES)(random, day)


def _near(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    word, days = random.choice((("tomorrow", 1), ("the day after tomorrow", 2), ("today", 0), ("tonight", 0)))
    return word, (_iso(day, days),), False


def _past(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    word, days = random.choice((("yesterday", -1), ("the day before yesterday", -2), ("last night", -1)))
    return word, (_iso(day, days), _iso(day, 0)) if "night" in word else (_iso(day, days),), True


def _ahead(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    count = random.randint(2, 10)
    unit, size = random.choice((("days", 1), ("weeks", 7)))
    shown = str(count) if random.random() < 0.5 else _WORDS[count]
    form = random.choice(("in {} {}", "in {} {}' time" if random.random() < 0.3 else "in {} {}"))
    return form.format(shown, unit), (_iso(day, count * size),), False


def _ago(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    count = random.randint(2, 10)
    unit, size = random.choice((("days", 1), ("weeks", 7)))
    shown = str(count) if random.random() < 0.5 else _WORDS[count]
    return f"{shown} {unit} ago", (_iso(day, -count * size),), True


def _one(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    return random.choice((("in a week", (_iso(day, 7),), False), ("a week ago", (_iso(day, -7),), True)))


def _month(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    past = random.random() < 0.5
    number = day.year * 12 + day.month - 1 + (-1 if past else 1)
    return "last month" if past else "next month", (f"{number // 12}-{number % 12 + 1:02}",), past


def _in_months(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    count = random.randint(2, 6)
    number = day.year * 12 + day.month - 1 + count
    year, month = number // 12, number % 12 + 1
    there = min(day.day, monthrange(year, month)[1])
    return f"in {_WORDS[count]} months", (f"{year}-{month:02}-{there:02}",), False


def _week(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    past = random.random() < 0.4
    start = day - timedelta(days=day.weekday()) + timedelta(days=-7 if past else 7)
    accepted = (*(_iso(start, ahead) for ahead in range(7)), f"{start.isocalendar()[0]}-W{start.isocalendar()[1]:02}")
    return "last week" if past else "next week", accepted, past


def _weekday(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    number = random.randrange(5)
    coming = (number - day.weekday() - 1) % 7 + 1
    if random.random() < 0.5:
        return f"by {_DAYS[number]}", (_iso(day, coming),), False
    following = 7 + number - day.weekday()
    return f"next {_DAYS[number]}", (_iso(day, coming), _iso(day, following)), False


def _ends(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    friday = 4 - day.weekday()
    if random.random() < 0.5:
        return "by the end of the week", (_iso(day, friday), _iso(day, friday + 2), _iso(day, friday + 7)), False
    last = monthrange(day.year, day.month)[1]
    return "at the end of the month", (f"{day.year}-{day.month:02}-{last:02}",), False


def _last_day(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    number = random.randrange(5)
    return f"last {_DAYS[number]}", (_iso(day, -((day.weekday() - number - 1) % 7 + 1)),), True


def _rarer(random: Random, day: date) -> tuple[str, tuple[str, ...], bool]:
    number = random.randrange(5)
    return random.choice(
        (
            ("a fortnight ago", (_iso(day, -14),), True),
            ("earlier today", (_iso(day, 0),), True),
            ("the night before last", (_iso(day, -2),), True),
            ("in twenty-five days", (_iso(day, 25),), False),
            ("within ten days", (_iso(day, 10),), False),
            ("in a week's time", (_iso(day, 7),), False),
            (f"on {_DAYS[number]} of next week", (_iso(day, 7 + number - day.weekday()),), False),
        )
    )


def _iso(day: date, days: int) -> str:
    return (day + timedelta(days=days)).isoformat()


_PHRASES: Final[tuple[Callable[[Random, date], tuple[str, tuple[str, ...], bool]], ...]] = (
    *(_near, _past, _ahead, _ago, _one, _month, _in_months, _week, _weekday, _ends, _last_day, _rarer),
)
