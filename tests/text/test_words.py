"""Normalised words and sentences: layout and sentence punctuation are removed, possible facts stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.text.words import has_run, sentences, words

EQUAL = [
    ("Never commit to main.", "  never   COMMIT to\nmain"),
    ("**Ask** Anna (always)", "ask anna always"),
    ("- one\n- two", "one two"),
    ("Der Ｔest ist „gut“.", "der test ist gut"),
    ("Straße", "STRASSE"),
]
DIFFERENT = [
    ("port 5433", "port 5434"),
    ("1.5 seconds", "15 seconds"),
    ("-5 degrees", "5 degrees"),
    ("10² rows", "102 rows"),
    ("written in C++", "written in C"),
    ("read .env", "read env"),
    ("cd ..", "cd ."),
    ("allow src/*", "allow src/"),
    ("A -> B", "A <- B"),
    ("Deploys on Friday?", "Deploys on Friday."),
    ("never push", "push"),
    ("tabs over spaces", "spaces over tabs"),
    ("喜欢茶", "不喜欢茶"),
]


@pytest.mark.requirement("L6.11")
@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_layout_case_and_sentence_punctuation_do_not_count(one: str, other: str) -> None:
    assert words(one) == words(other)


@pytest.mark.requirement("L6.11")
@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_may_carry_a_fact_counts(one: str, other: str) -> None:
    assert words(one) != words(other)


def test_a_sentence_ends_at_its_mark_or_line_and_goes_on_with_a_small_letter() -> None:
    assert sentences("# Title\nOne two\nthree. Four!\n\n- five\n- six") == [
        ("title",),
        ("one", "two", "three"),
        ("four",),
        ("five",),
        ("six",),
    ]


@given(st.text(max_size=200))
def test_any_text_can_be_read_and_no_word_is_empty(text: str) -> None:
    assert all(words(text))
    assert all(word for sentence in sentences(text) for word in sentence)
    assert has_run(words(text), words(text))
