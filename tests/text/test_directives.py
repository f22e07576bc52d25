"""Sentences that bind later work, ranked by grammar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.text.directives import binding_part, typed_sentences

BINDING = [
    "Show me the letter before you send it.",
    "Never push without asking.",
    "All amounts are in euros, nothing else.",
    "Refer to my boss as Dr. Lindqvist, not by first name.",
    "You must not install packages.",
    "keep answers short from here on",
    "When you quote a price, include tax.",
    "Schicke nichts ab, bevor ich es gesehen habe.",
    "Halte jede Antwort unter 100 Wörtern.",
    "没有我的同意，不要推送到主分支。",
]
TALK = [
    "Can you help me plan the week?",
    "I'm trying to find the right shoes for the festival, and I've never bought any online.",
    "Thanks for all the help!",
    "Got it!",
    "The build took nine minutes yesterday.",
    "We had dinner with Carla at the harbour.",
    "Kannst du mir bei der Planung helfen?",
    "我昨天去了图书馆。",
]


@pytest.mark.requirement("W10")
@pytest.mark.parametrize("sentence", BINDING)
def test_a_sentence_that_binds_ranks_above_every_sentence_of_talk(sentence: str) -> None:
    assert binding_part(sentence)[0] >= 1.0 > max(binding_part(one)[0] for one in TALK)


def test_the_part_of_a_long_sentence_that_binds_is_quoted_without_the_rest() -> None:
    story = "I went through the figures of last year with Megan on the phone, which took the whole afternoon as usual"
    score, part = binding_part(f"{story}, but never show her the salaries, {story}.")
    assert "never show her the salaries" in part
    assert len(part) <= 200
    assert score > binding_part(f"{story}, and she liked them, {story}.")[0]


def test_sentences_are_exact_and_pasted_text_is_left_out() -> None:
    message = "Ask Dr. Okafor first. then deploy!\n- One rule\n```\nNever do X.\n```\n> Always do Y.\n先看。再说。"
    assert typed_sentences(message) == [
        "Ask Dr. Okafor first.",
        "then deploy!",
        "One rule",
        "先看。",
        "再说。",
    ]


@given(st.text(max_size=400))
def test_every_part_is_in_its_message(message: str) -> None:
    for sentence in typed_sentences(message):
        assert sentence in message
        assert binding_part(sentence)[1] in sentence
