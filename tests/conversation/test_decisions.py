"""Decisions as data: every one reads back as it was written."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from reverie.conversation import decisions as module
from reverie.conversation.decisions import (
    DECISIONS,
    Cause,
    Replacement,
    ResultsCleared,
    Unknown,
    body_of,
    decision_of,
)
from reverie.conversation.entries import Entry, decode_entry, encode_entry

SAMPLES = {
    "str": "text",
    "int": 7,
    "bool": True,
    "float | None": 0.25,
    "str | None": "uuid",
    "Any": [{"type": "text", "text": "system"}],
    "list[str]": ["a", "b"],
    "dict[str, Any]": {"max_tokens": 5},
    "dict[str, str]": {"Title": "x"},
    "dict[str, int]": {"Read": 120},
    "list[dict[str, Any]]": [{"name": "Read"}],
    "list[Replacement]": [Replacement("toolu_1", "[cleared]", "handle", 12)],
    "PlanState": "approved",
    "list[SaidItem]": [module.SaidItem("date", "date", "the date", "Today is Monday.", "abc", "Replaces.")],
    "list[Image]": [module.Image("uuid", 3)],
}


def sample(name: str) -> module.Decision:
    kind = DECISIONS[name]
    values = {item.name: SAMPLES[str(item.type)] for item in fields(kind) if item.name != "cause"}
    return kind(cause=Cause("trim", "because", 42, True), **values)


@pytest.mark.requirement("K4")
@pytest.mark.parametrize("name", DECISIONS)
def test_every_decision_reads_back_from_its_line(name: str):
    decision = sample(name)
    entry = Entry("u", None, "", "s", "decision", body_of(decision))
    assert decision_of(decode_entry(encode_entry(entry)).body) == decision
    assert {"decision", "layer", "reason", "frees", "moves_prefix"} <= set(entry.body)


@pytest.mark.requirement("K4")
def test_every_kind_of_decision_that_the_specification_lists_exists(corpus: Path):
    spec = corpus.parent / "SPEC.md"
    if not spec.exists():
        pytest.skip("the specification is not beside this clone")
    text = spec.read_text()
    listed = text[text.index("- K4") : text.index("- K5")]
    named: set[str] = set(re.findall(r"\b[a-z]+_[a-z_]+\b|\b(?:snipped|collapsed|compacted|pinned)\b", listed)) - {
        "moves_prefix"
    }
    assert len(named) >= 20
    assert named <= set(DECISIONS)


@pytest.mark.requirement("K4", "K1")
@pytest.mark.parametrize(
    "body", [{}, {"decision": "unheard_of"}, {"decision": 7}, {"decision": "results_cleared", "cleared": "no list"}]
)
def test_a_decision_that_cannot_be_read_is_kept_and_changes_nothing(body: dict[str, object]):
    assert isinstance(decision_of(dict(body)), Unknown)


def test_a_decision_says_who_and_why():
    body = body_of(ResultsCleared(Cause("trim", "idle for 61 minutes", 9_000, True), []))
    assert (body["layer"], body["reason"], body["frees"], body["moves_prefix"]) == (
        "trim",
        "idle for 61 minutes",
        9_000,
        True,
    )
