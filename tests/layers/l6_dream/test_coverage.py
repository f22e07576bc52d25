"""Which sentences of one text another one lacks: this tells a merge from a deletion, and a rewrite from a loss."""

from __future__ import annotations

import random
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.layers.l6_dream.plan import missing

MONDAY = date(2026, 11, 16)
COVERED = {
    "the same words": ("Use the real database in tests.", "Use the real database in tests."),
    "another order of sentences": ("Ask Anna. Never ask Bob.", "Never ask Bob. Ask Anna."),
    "case, punctuation and markup": ("- **Why:** the mock hid bug 17", "The mock hid bug 17!"),
    "another line length": ("Use the real\ndatabase in tests.", "Use the real database\nin tests."),
    "a sentence among others": ("Port 5432 is taken", "As everybody knows. Port 5432 is taken. And 5433 too."),
    "a date for tomorrow": ("The freeze starts tomorrow", "The freeze starts 2026-11-17"),
    "a date for last month": ("We moved last month.", "We moved 2026-10."),
    "a link that follows its target": ("See [the note](a.md).", "See [the note](b.md)."),
    "a link to nothing as text": ("See [it](gone.md).", "See it (gone.md, a memory that is no longer there)."),
    "another language": ("Nie am Freitag ausliefern.", "nie am freitag ausliefern"),
    "text without spaces": ("我喜欢茶。他喜欢水。", "他喜欢水。我喜欢茶。"),
}
LOST = {
    "a number": ("The port is 5432", "The port is 5433"),
    "a name": ("Ask Anna about it", "Ask somebody about it"),
    "a path": ("The script is tools/sync.sh", "The script is somewhere in tools"),
    "an address": ("See https://a.example/x", "See the page"),
    "a not": ("Never deploy on a weekend", "Deploy on a weekend"),
    "a not that is added": ("Deploy on a weekend", "Never deploy on a weekend"),
    "a not in another language": ("Nie am Freitag ausliefern.", "Am Freitag ausliefern."),
    "an only": ("Merge only after review", "Merge after review"),
    "the order of words": ("Prefer tabs over spaces", "Prefer spaces over tabs"),
    "a paraphrase": ("Prefers dark roast coffee", "Likes his coffee dark"),
    "a date": ("Due 2026-11-20", "Due 2026-11-21"),
    "a date of another day": ("The freeze starts tomorrow", "The freeze starts 2026-11-18"),
    "a day of a month": ("5. Mai ist frei", "6. Mai ist frei"),
    "a power": ("It holds 10² rows", "It holds 102 rows"),
    "all": ("The cache lives in memory", ""),
}


@pytest.mark.requirement("L6.6", "L6.11")
@pytest.mark.parametrize("what", COVERED)
def test_a_sentence_with_the_same_words_in_order_is_covered(what: str) -> None:
    assert missing(*COVERED[what], written_on=MONDAY) == []


@pytest.mark.requirement("L6.6", "L6.11")
@pytest.mark.parametrize("what", LOST)
def test_a_sentence_in_other_words_is_missing(what: str) -> None:
    assert missing(*LOST[what], written_on=MONDAY) != []


@pytest.mark.parametrize("what", ["a not that is added", "the order of words", "a power"])
def test_a_check_by_the_bag_of_words_would_miss_it(what: str) -> None:
    """The known-bad twin: shared words, whatever their order and company."""
    old, new = LOST[what]
    assert set(old.casefold().replace("²", "2").split()) <= set(new.casefold().split())


words = st.sampled_from(["river", "stone", "4711", "Anna", "tools/a.py", "never", "only", "the", "lamp", "not", "iron"])
texts = st.lists(st.lists(words, min_size=2, max_size=8).map(" ".join), min_size=1, max_size=5)


@given(texts, texts, st.randoms())
def test_the_union_of_two_texts_covers_both(one: list[str], other: list[str], chance: random.Random) -> None:
    both = [*one, *other]
    chance.shuffle(both)
    assert missing(". ".join(one), ". ".join(both)) == []


@given(texts)
def test_a_text_that_lacks_a_sentence_never_covers_it(text: list[str]) -> None:
    assert missing(". ".join([*text, "the count is 90125 now"]), ". ".join(text)) == ["the count is 90125 now"]


@given(st.text(max_size=400), st.text(max_size=400))
def test_every_text_can_be_compared_and_covers_itself(one: str, other: str) -> None:
    missing(one, other, written_on=MONDAY)
    assert missing(one, one) == []
