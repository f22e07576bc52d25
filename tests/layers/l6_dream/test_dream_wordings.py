"""The local dreamer on single sentences: which wordings are one fact, and which small words make another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reverie.layers.l6_dream.changes import Question
from reverie.layers.l6_dream.dates import redated
from reverie.layers.l6_dream.lemmas import base_of
from reverie.layers.l6_dream.local import dream
from reverie.layers.l6_dream.policy import DreamPolicy
from reverie.memories.stems import stem
from reverie.memories.store.records import new_text

NOW = datetime(2026, 11, 20, 6, 0, tzinfo=UTC)
POLICY = DreamPolicy()


def memory(text: str, minute: int, kind: str) -> bytes:
    time = f"2026-11-02T08:{minute:02}:00Z"
    head = {"name": text[:30], "description": text, "type": kind, "source": f"s{minute} m1", "trust": "agent"}
    return new_text({**head, "created": time, "modified": time}, f"{text}\n").encode()


def dreamt(one: str, other: str, kind: str = "project") -> tuple[bool, Sequence[Question]]:
    """Say whether two memories become one, and what is asked about them."""
    dreamed = dream({"a.md": memory(one, 1, kind), "b.md": memory(other, 4, kind)}, now=NOW, policy=POLICY)
    return any(change.act == "merged" for change in dreamed.changes), dreamed.questions


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Reviewers must initial the form.", "Reviewers may initial the form."),
        ("Only Petra can open the safe.", "Petra can also open the safe."),
        ("IT approves new laptops.", "HR approves new laptops."),
        ("The buffer is write-through.", "The buffer is write-back."),
        ("Newsletters are opt-in.", "Newsletters are opt-out."),
        ("The loader skips broken lines.", "The loader stops at broken lines."),
        ("The portal calls the quota service through a queue.", "The quota service calls the portal through a queue."),
        ("Plugin north relies on plugin south.", "Plugin south relies on plugin north."),
        ("Parcels are sent to the courier.", "Parcels are sent by the courier."),
        ("The phone syncs, the tablet does not.", "The tablet syncs, the phone does not."),
        ("Nobody but Ines may edit the plan.", "Everybody but Ines may edit the plan."),
        ("Always sign tags when releasing.", "Never sign tags when releasing."),
        ("The wiki allows guest edits.", "The wiki requires guest edits."),
        ("The portal calls the ledger.", "The portal requires the ledger."),
        ("The default quota is 5 GB.", "The current quota is 5 GB."),
        ("Tests need a printer.", "Acceptance tests need a printer."),
        ("Refunds need a signature.", "Refunds over the phone need a signature."),
        ("Guests can remove their own photos.", "Guests can remove photos."),
        ("The parser reads universal tags.", "The parser reads university tags."),
        ("Some parcels are insured.", "Parcels are insured."),
        ("The shop uses the same currency as the bank.", "The shop uses another currency than the bank."),
        ("The archive is built with make.", "The archive is built with ninja."),
        ("Seal the box, then weigh it on the scale.", "Weigh it on the scale, then seal the box."),
        ("The boat is named Aurora.", "The boat is named Real."),
        ("Page Olu.", "Page Olu if it is night."),
        ("The shop desk is at shop.example.net.", "The shop desk is at desk.example.net."),
        ("Guests stay for two nights.", "Guests stay for 3 nights."),
    ],
)
def test_a_small_word_that_makes_another_fact_keeps_two_memories_apart(one: str, other: str) -> None:
    assert not dreamt(one, other)[0]
    assert not dreamt(other, one)[0]


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("Always use uv instead of pip to install packages.", "Use uv, not pip, for installing packages.", "feedback"),
        ("Do not rename columns without asking.", "Ask before renaming columns.", "feedback"),
        ("Secrets have to stay out of the log.", "Secrets must stay out of the log.", "feedback"),
        ("Tests don't touch the network.", "Tests do not touch the network.", "project"),
        ("The dashboard is at https://g.example.net/d/7.", "Dashboard URL: https://g.example.net/d/7", "reference"),
        ("The user speaks Polish and Dutch.", "The user speaks Dutch and Polish.", "user"),
        ("The user would like to be asked before a merge.", "The user wants to be asked before a merge.", "user"),
        ("Tables are re-created on each run.", "Tables are recreated on every run.", "project"),
        ("The backup takes two hours.", "The backup takes 2 h.", "project"),
        ("The warranty period lasts 90 days.", "The warranty period is 90 days long.", "project"),
        ("Ines leads the map team.", "The map team is led by Ines.", "project"),
        ("Note: See docs/keys.md for the key rota.", "The key rota is in docs/keys.md.", "reference"),
        ("Nested ifs are worse, prefer early returns.", "Prefer early returns, nested ifs are worse.", "feedback"),
    ],
)
def test_the_same_rule_in_other_words_becomes_one_memory(one: str, other: str, kind: str) -> None:
    assert dreamt(one, other, kind) == (True, ())


def test_a_rule_for_one_place_is_not_the_rule_for_all() -> None:
    assert not dreamt("Use tabs.", "Use tabs in Makefiles.", "feedback")[0]
    assert not dreamt("The user prefers dark mode.", "The user prefers dark mode in the terminal.", "user")[0]


_SENTENCES = (
    "The nightly export writes 40 files to the archive bucket.",
    "Maria reviews the parser changes before a release.",
    "Use spaces for indentation in the grammar files.",
    "The user prefers short answers with examples.",
    "The gateway rejects requests without a token.",
    "Invoices are sent to customers on the first Monday.",
)
_OTHERS = re.findall(
    r"\w+",
    "harbour lantern violin pepper glacier tunnel orchard helmet copper meadow paint carry borrow measure gather "
    "wooden gentle hollow northern plastic",
)
_GRAMMAR = frozenset(["the", "a", "are", "is", "to", "on", "in", "for", "with", "of", "user", "use"])


@given(st.sampled_from(_SENTENCES), st.integers(0, 20), st.sampled_from(_OTHERS))
@settings(max_examples=60, deadline=None)
def test_no_sentence_is_merged_with_itself_but_for_one_word(sentence: str, at: int, word: str) -> None:
    words = list(re.finditer(r"[A-Za-z]+", sentence))
    found = words[at % len(words)]
    assume(found.group().lower() not in _GRAMMAR)
    put = word.capitalize() if found.group()[0].isupper() else word
    assert not dreamt(sentence, sentence[: found.start()] + put + sentence[found.end() :])[0]


def test_words_that_share_a_stem_for_finding_are_told_apart_for_merging() -> None:
    pairs = [("universal", "university"), ("authorize", "author"), ("internal", "intern"), ("only", "on")]
    assert all(base_of(one) != base_of(other) for one, other in pairs)
    assert all(stem(one) == stem(other) for one, other in pairs[1:3])  # the known-bad twin
    same = [("deploys", "deployment"), ("organise", "organizations"), ("internally", "internal"), ("used", "using")]
    assert all(base_of(one) == base_of(other) for one, other in same)


def test_which_of_two_memories_is_newer_is_told_by_the_minute() -> None:
    _, [question] = dreamt("The config is written in YAML.", "The config is written in TOML.")
    assert question.topic == "contradiction"
    assert "b.md is newer" in question.text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The heater is on in the lab.", "The heater is off in the lab."),
        ("The recipes are on Confluence.", "The recipes are on Notion."),
        ("Style checks are done with ruff.", "We use flake8 for style checks."),
        ("The backup takes two hours.", "The backup takes 30 minutes."),
        ("Use uv instead of pip to install packages.", "Use pip, not uv, for installing packages."),
        ("Always sign tags when releasing.", "Never sign tags when releasing."),
    ],
)
def test_what_cannot_both_hold_is_asked_about(one: str, other: str) -> None:
    merged, questions = dreamt(one, other)
    assert not merged
    assert [question.topic for question in questions] == ["contradiction"]


@pytest.mark.parametrize(
    "text",
    [
        "Rollouts of the map service happen on Tuesday morning.",
        "Snapshots are taken on Sunday nights.",
        "Merges on Friday need a second look.",
        "Invoices are paid on Thursday.",
        "Payslips are sent at the end of the month.",
        "The audit report is due on the last Friday of the month.",
        "Logs older than yesterday's are packed each night.",
        "Take today's date as the default.",
        "The film is Friday the 13th.",
    ],
)
def test_what_happens_again_and_again_gets_no_date(text: str) -> None:
    assert redated(text, date(2026, 11, 18)).text == text


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("The party was on Monday.", "The party was on 2026-11-16 (Monday)."),
        ("The talk on Monday was short.", "The talk on 2026-11-16 (Monday) was short."),
        ("The party is on Monday.", "The party is on 2026-11-23 (Monday)."),
        ("Send it by EOD Friday.", "Send it by EOD 2026-11-20 (Friday)."),
        ("Friday's launch is cancelled.", "2026-11-20's launch is cancelled."),
        ("It broke a few days ago.", "It broke around 2026-11-15 (Sunday)."),
        ("Ready in 3 business days.", "Ready on 2026-11-23 (Monday)."),
        ("It was rewritten last summer.", "It was rewritten in summer 2026."),
        ("Fixed two hours ago.", "Fixed on 2026-11-18 (Wednesday)."),
        ("The tour is set for Thursday.", "The tour is set for 2026-11-19 (Thursday)."),
        ("The rent was raised in the last quarter.", "The rent was raised in Q3 2026."),
    ],
)
def test_a_day_is_found_by_tense_and_by_what_it_is_said_of(said: str, written: str) -> None:
    assert redated(said, date(2026, 11, 18)).text == written
