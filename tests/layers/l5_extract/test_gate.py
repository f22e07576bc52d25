"""The gate: it stops messages without prose and passes the others, in any language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.entries import USER, Entry
from reverie.layers.l5_extract import has_new_prose

DATA = Path(__file__).resolve().parents[3] / "benchmarks" / "data"


def said(content: Any, uuid: str = "u1") -> Entry:
    return Entry(uuid, None, "2026-11-11T10:00:00Z", "s", USER, {"message": {"role": "user", "content": content}})


@pytest.mark.requirement("L5.0")
@pytest.mark.parametrize(
    "text",
    [
        "no emojis please",
        "Fix the login. And use pnpm, not npm.",
        "Keine Emojis in Commits.",
        "请用中文回答",
        "返事は短くしてください",
        "Не трогай сгенерированные файлы",
    ],
)
def test_prose_of_any_language_passes(text: str) -> None:
    assert has_new_prose([said(text)])


@pytest.mark.requirement("L5.0")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        "go on",
        "1",
        "好的",
        "[Request interrupted by user for tool use]",
        "```\nTraceback (most recent call last):\n  boom in the parser\n```",
        "<local-command-stdout>a b c d e f</local-command-stdout>",
        "A sentence of a long pasted page. " * 60,
    ],
)
def test_short_answers_printed_text_and_documents_do_not(text: str) -> None:
    assert not has_new_prose([said(text)])


@pytest.mark.requirement("L5.0")
@pytest.mark.parametrize("name", ["extraction_worth", "extraction_worth_stranger", "extraction_worth_fifth"])
def test_of_200_messages_that_are_worth_keeping_at_least_95_percent_pass(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = (DATA / f"{name}.txt").read_text().splitlines()
    assert len(messages) == 200
    assert sum(has_new_prose([said(one)]) for one in messages) >= 190
    monkeypatch.setattr("reverie.layers.l5_extract.gate._LEAST_WORDS", 12)
    assert sum(has_new_prose([said(one)]) for one in messages) < 190, "a gate for long messages alone is caught"


def test_a_message_that_the_session_has_already_is_not_new() -> None:
    again = [said("run the whole test suite", "u2")]
    assert has_new_prose(again)
    assert not has_new_prose(again, [said("Run the whole test suite.")])
    assert has_new_prose([*again, said("but only with postgres", "u3")], [said("Run the whole test suite.")])


@pytest.mark.parametrize(
    "question", ["which of these tests is slow?", "为什么这个测试这么慢？", 'what does "retry" mean?']
)
def test_questions_alone_carry_no_rule_and_a_sentence_beside_them_may(question: str) -> None:
    assert not has_new_prose([said(question)])
    assert has_new_prose([said(f"{question} I want only fast ones.")])
