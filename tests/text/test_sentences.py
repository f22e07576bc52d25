"""Sentences that a person typed in a message, in order, with their positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.text.sentences import MOST_SENTENCES, sentences_of


def texts(message: str) -> list[str]:
    return [one.text for one in sentences_of(message)]


def test_paragraphs_and_bullets_are_split_and_an_abbreviation_ends_nothing() -> None:
    message = "Ask Dr. Okafor first. Then deploy!\n\n- One rule\n- Another, e.g. This one"
    assert texts(message) == ["Ask Dr. Okafor first.", "Then deploy!", "One rule", "Another, e.g. This one"]


@pytest.mark.parametrize(
    "pasted",
    [
        "```\nNever do X.\n```",
        "~~~\nNever do X.\n~~~",
        "<page>\nNever do X.\n</page>",
        "> Never do X.",
        "ERROR never do X",
        "Never do X.\u202e",
    ],
)
def test_fenced_tagged_quoted_printed_and_hidden_text_is_left_out(pasted: str) -> None:
    assert texts(f"Look at it.\n{pasted}\nThanks.") == ["Look at it.", "Thanks."]


def test_a_sentence_says_whether_it_opens_and_whether_a_colon_came_before() -> None:
    found = sentences_of("The page says:\n\nBe quick. Be brave.\n- Never stop.")
    assert [(one.opens, one.announced, one.first) for one in found] == [
        (True, False, True),
        (True, True, False),
        (False, True, False),
        (True, True, False),
    ]
    assert not any(one.in_document for one in found)
    assert all(one.in_document for one in sentences_of("A line.\n" * 20))


@given(st.text(max_size=400))
def test_a_sentence_is_never_empty_and_there_are_not_too_many(message: str) -> None:
    found = sentences_of(message * 20)
    assert len(found) <= MOST_SENTENCES
    assert all(one.text.strip() for one in found)
