"""What of one text stands in another: a merge is told from a deletion, and a rewriting from a gutting."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.layers.l6_dream.standing import missing, sentences

STANDS = {
    "the same words": ("Use the real database in tests.", "Use the real database in tests."),
    "another order": ("Ask Anna. Never ask Bob.", "Never ask Bob. Ask Anna."),
    "marks do not count": ("- **Why:** the mock hid bug 17", "the mock hid bug 17"),
    "a date for tomorrow": ("The freeze starts tomorrow", "The freeze starts 2026-11-17"),
    "a date for three days": ("It ends in 3 days", "It ends 2026-11-19"),
    "a date for a weekday": ("The release is on Tuesday", "The release is on 2026-11-17"),
    "a date for a day of a month": ("Due on Nov 20", "Due on 2026-11-20"),
    "a date for a month": ("The migration was done earlier this month", "The migration was done in 2026-11"),
    "a date for a week from now": ("The freeze ends a week from tomorrow", "The freeze ends on 2026-11-18"),
    "within more": ("Port 5432 is taken", "As everybody knows, port 5432 is taken, and 5433 too"),
}
LOST = {
    "a number": ("The port is 5432", "The port is 5433"),
    "a name": ("Ask Anna about it", "Ask somebody about it"),
    "a path": ("The script is tools/sync.sh", "The script is somewhere in tools"),
    "an address": ("See https://a.example/x", "See the page"),
    "a not": ("Never deploy on a weekend", "Deploy on a weekend"),
    "a not in another place": ("Tests do not use mocks", "Tests use mocks. Deploys do not use scripts"),
    "an only": ("Merge only after review", "Merge after review"),
    "a plain sentence": ("prefers dark roast coffee in the morning", "likes to be asked before a deploy"),
    "a span that is no date": ("Logs are kept for 30 days", "Logs are kept"),
    "a date": ("Due 2026-11-20", "Due 2026-11-21"),
    "all": ("The cache lives in memory", ""),
}


@pytest.mark.requirement("L6.6")
@pytest.mark.parametrize("old", STANDS)
def test_what_is_said_in_other_words_stands(old: str) -> None:
    assert missing(*STANDS[old]) == []


@pytest.mark.requirement("L6.6")
@pytest.mark.parametrize("old", LOST)
def test_what_is_not_said_any_more_is_missing(old: str) -> None:
    assert missing(*LOST[old]) != []


words = st.sampled_from(["river", "stone", "4711", "Anna", "tools/a.py", "never", "only", "the", "lamp", "not", "iron"])
texts = st.lists(st.lists(words, min_size=2, max_size=8).map(" ".join), min_size=1, max_size=5)


@given(texts, texts, st.randoms())
def test_all_of_two_texts_stands_in_their_union(one: list[str], other: list[str], chance: random.Random) -> None:
    both = [*one, *other]
    chance.shuffle(both)
    assert missing(". ".join(one), ". ".join(both)) == []


@given(texts)
def test_of_a_text_with_a_number_nothing_that_lacks_it_keeps_all(text: list[str]) -> None:
    said = ". ".join([*text, "the count is 90125 now"])
    assert missing(said, ". ".join(text)) != []


@given(st.text(max_size=400), st.text(max_size=400))
def test_any_text_can_be_asked_about(one: str, other: str) -> None:
    missing(one, other)
    assert missing(one, one) == []
    assert all(sentence == sentence.casefold() for sentence in sentences(one))
