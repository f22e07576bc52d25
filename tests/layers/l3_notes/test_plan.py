"""When notes are due, which messages they cover, and how they shrink with the window."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, call, text
from random_logs import random_log
from reverie.conversation.decisions import Cause, Compacted, NotesUpdated, Replacement, ResultsCleared
from reverie.conversation.entries import rounds
from reverie.conversation.view import View
from reverie.layers.l3_notes.activity import Activity
from reverie.layers.l3_notes.plan import NotesLimits, covered_by, notes_due, notes_limits, worth_logging
from reverie.layers.l3_notes.policy import NotesPolicy
from reverie.layers.l3_notes.sections import CURRENT, WORKLOG, Notes, Template

POLICY = NotesPolicy()
LIMITS = notes_limits(POLICY, 180_000)
CAUSE = Cause("notes", "due")


def is_due(script: Script, limits: NotesLimits = LIMITS) -> bool:
    view = script.view
    return notes_due(view, POLICY, limits, calls=Activity().follow(view).calls)


def used(tokens: int) -> dict[str, int]:
    return {"input_tokens": tokens - 100, "output_tokens": 100}


def noted(script: Script, tokens: int, calls: int = 0) -> None:
    script.decide(NotesUpdated(CAUSE, {CURRENT: "here"}, None, "local", tokens, calls))


@pytest.mark.requirement("L3.3")
@pytest.mark.parametrize(("count", "expected"), [(9_999, False), (10_000, True)])
def test_notes_start_at_the_count_whatever_was_called(count: int, expected: bool) -> None:
    script = Script()
    script.user("begin")
    script.reply(text("yes"), usage=used(count))
    assert is_due(script) is expected


@pytest.mark.requirement("L3.3")
@pytest.mark.parametrize(
    ("grown", "calls", "quiet", "expected"),
    [
        (5_000, 3, False, True),
        (5_000, 2, False, False),
        (5_000, 0, True, True),
        (4_999, 9, False, False),
        (4_999, 0, True, False),
    ],
)
def test_an_update_needs_the_tokens_and_either_calls_or_a_quiet_reply(
    grown: int, calls: int, quiet: bool, expected: bool
) -> None:
    script = Script()
    script.user("begin")
    script.reply(text("yes"), usage=used(20_000))
    noted(script, 20_000)
    for number in range(calls - (not quiet)):
        script.reply(call(f"t{number}"))
        script.result(f"t{number}")
    last = [text("done")] if quiet else [call("last")]
    script.reply(*last[: 1 if quiet or calls else 0] or [call("last")], usage=used(20_000 + grown))
    assert is_due(script) is expected


@pytest.mark.requirement("L3.3")
def test_the_count_is_the_last_replys_and_never_a_sum() -> None:
    script = Script()
    script.user("begin")
    for _ in range(40):
        script.reply(text("still small"), usage=used(900))
        script.user("go on")
    assert not is_due(script)


@pytest.mark.requirement("L3.3")
def test_what_is_freed_is_taken_off_what_the_growth_is_counted_from() -> None:
    script = Script()
    script.user("begin")
    first = script.reply(text("yes"), usage=used(150_000))
    noted(script, 150_000)
    last = script.reply(text("more"), usage=used(160_000))
    script.user("go on")
    summary = "what came before"
    script.decide(Compacted(Cause("compact", "full", frees=130_000), "auto", "notes", summary, 160_000, first, last))
    assert script.view.facts.notes_tokens == 20_000
    script.reply(text("after"), usage=used(24_000))
    assert not is_due(script)
    script.reply(text("later"), usage=used(25_000))
    assert is_due(script)
    cleared = ResultsCleared(Cause("trim", "cold", frees=4_000), [Replacement("t1", "gone")])
    script.decide(cleared)
    assert script.view.facts.notes_tokens == 16_000


@pytest.mark.requirement("T8")
@pytest.mark.parametrize("window", [4_000, 16_000, 60_000, 200_000, 1_000_000])
def test_every_count_is_its_default_or_its_share_of_a_small_window(window: int) -> None:
    effective = window - min(20_000, window // 4)
    limits = notes_limits(POLICY, effective)
    shares = ((10_000, 0.06), (5_000, 0.03), (2_000, 0.0125), (12_000, 0.08))
    expected = [min(default, int(effective * share)) for default, share in shares]
    assert [limits.start, limits.step, limits.section, limits.total] == expected
    assert notes_limits(NotesPolicy(start_tokens=50_000), effective).start == min(50_000, int(effective * 0.06))


@pytest.mark.requirement("L3.7")
def test_the_cursor_is_the_last_message_of_the_last_complete_round() -> None:
    script = Script()
    asked = script.user("begin")
    script.reply(call("t1"), call("t2"))
    assert covered_by(script.view) == asked
    script.result("t1")
    assert covered_by(script.view) == asked, "the second call is still open"
    answered = script.result("t2")
    assert covered_by(script.view) == answered
    script.reply(call("t3"))
    assert covered_by(script.view) == answered, "an autonomous run moves it too"
    script.result("t3")
    said = script.reply(text("done"))
    assert covered_by(script.view) == said
    assert covered_by(View()) is None


@pytest.mark.requirement("L3.7", "K9")
@given(st.integers(0, 10**6))
def test_the_cursor_never_splits_a_call_from_its_result(seed: int) -> None:
    view = View().fold_all(random_log(Random(seed), entries=30))
    covered = covered_by(view)
    if covered is None:
        return
    shown = [piece.uuid for group in view.groups for piece in group.pieces]
    at = shown.index(covered) + 1
    before, after = set(shown[:at]), set(shown[at:])
    for group in view.groups:
        if group.role != "assistant" or not group.uses:
            continue
        pieces = {piece.uuid for piece in group.pieces}
        results = {result.message for result in view.results if result.tool_use_id in group.uses}
        assert not (pieces & before and (results & after))
    entries = [entry for entry in view.history if entry.uuid in before]
    assert rounds(entries) or not entries


@pytest.mark.requirement("L3.5")
def test_a_log_gets_the_current_state_and_what_says_enough_that_is_new(template: Template) -> None:
    lines = "\n".join(f"- step {number}" for number in range(20))
    before = Notes({CURRENT: "a", WORKLOG: lines})
    little = Notes({CURRENT: "b", WORKLOG: f"{lines}\n- one more"})
    assert worth_logging(before, little, template) == {CURRENT: "b"}
    much = Notes({CURRENT: "b", WORKLOG: lines + "\n- something else" * 12})
    assert set(worth_logging(before, much, template)) == {CURRENT, WORKLOG}
    assert worth_logging(before, before, template) == {}
    counted = Notes({CURRENT: "b", WORKLOG: "- `a/b.py`: read 3x, changed 1x\n" * 20})
    again = Notes({CURRENT: "b", WORKLOG: "- `a/b.py`: read 4x, changed 2x\n" * 20})
    assert worth_logging(counted, again, template) == {}  # how often is not news
