"""Relative dates made absolute by the day they were written; a phrase that may mean something else stays."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.text.dates import absolute, iso_day

MONDAY = date(2026, 11, 16)

CERTAIN = [
    ("The demo is tomorrow.", "The demo is 2026-11-17."),
    ("Yesterday it was decided.", "2026-11-15 it was decided."),
    ("Due the day after tomorrow.", "Due 2026-11-18."),
    ("We moved last month.", "We moved 2026-10."),
    ("Planned for next quarter.", "Planned for Q1 2027."),
    ("Done by the end of next month.", "Done by 2026-12-31."),
    ("Lena left three days ago.", "Lena left 2026-11-13."),
    ("Lena left two years ago.", "Lena left 2024."),
    ("It ends in two weeks' time.", "It ends 2026-11-30."),
    ("It ends 3 days from now.", "It ends 2026-11-19."),
    ("The audit is this Friday.", "The audit is Friday 2026-11-20."),
    ("The audit is next Monday.", "The audit is Monday 2026-11-23."),
]
AMBIGUOUS = [
    "Never deploy on Friday.",
    "The audit is on Thursday.",
    "Timesheets are due by Friday.",
    "Her birthday is March 5.",
    "Invoices are paid in 30 days.",
    "Payslips are sent at the end of the month.",
    "Fixed over the last month.",
    "The audit is on the last Friday of the month.",
    "The last week of March is quiet.",
    "It broke a few days ago.",
    "The vendor asked for it last week.",
    "Next week it starts.",
    "Lena left two weeks ago.",
]
NO_DATES = [
    "The rota changes every Monday.",
    "Today's standard is higher.",
    "She was on the Today show.",
    "Ask for the last name in the next step.",
    'The banner says "tomorrow is another day".',
    "The filter is `last week`.",
    "Das Schild sagt „tomorrow is another day“.",
    "Das Schild sagt „tomorrow is another day”.",
    "> tomorrow, he wrote",
    "See https://example.net/tomorrow for more.",
    "Due tomorrow (2026-11-20).",
    "You may 3 times.",
    "Das Treffen ist morgen, also am Freitag.",
    "会议是明天。",
]


@pytest.mark.requirement("L6.4", "L6.11")
@pytest.mark.parametrize(("said", "written"), CERTAIN)
def test_a_certain_phrase_becomes_the_date_it_means(said: str, written: str) -> None:
    assert absolute(said, MONDAY).text == written


def test_a_weekday_that_may_mean_two_days_names_both() -> None:
    wednesday = date(2026, 11, 18)
    assert absolute("next Friday", wednesday).text == "Friday 2026-11-20 or 2026-11-27"
    assert absolute("last Monday", wednesday).text == "Monday 2026-11-09 or 2026-11-16"
    assert absolute("last Friday", wednesday).text == "Friday 2026-11-13"


@pytest.mark.requirement("L6.11")
@pytest.mark.parametrize("text", [*AMBIGUOUS, *NO_DATES])
def test_a_phrase_that_may_mean_something_else_stays(text: str) -> None:
    assert absolute(text, MONDAY).text == text


def test_without_a_day_a_relative_phrase_is_unknown_and_stays() -> None:
    found = absolute("The demo is tomorrow, the audit 2026-12-01.", None)
    assert found.unknown == ("tomorrow",)


def test_an_iso_day_is_read_strictly() -> None:
    assert iso_day("2026-11-16T08:00:00Z") == MONDAY
    assert iso_day("2026-11") is iso_day("soon enough") is None


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)), st.text(max_size=40))
@settings(max_examples=60)
def test_a_second_reading_changes_nothing(day: date, noise: str) -> None:
    said = f"The demo is tomorrow. {noise} By Friday, in two weeks, last month, next Friday, at the end of the week."
    once = absolute(said, day).text
    assert absolute(once, day.replace(year=day.year + 1, day=1)).text == once


@given(st.text(max_size=80), st.dates())
def test_no_text_and_no_day_breaks_the_reading(text: str, day: date) -> None:
    for said in (text, f"{text} next year", f"999 years ago {text}", f"Feb 30 {text}", "last week", "in 999 months"):
        assert bool(absolute(said, day).text) is bool(said)
