"""The view is a pure, incremental fold: one more entry costs one entry, and nothing already folded changes."""

from __future__ import annotations

import copy
from itertools import zip_longest
from random import Random
from typing import Any

import pytest

from log_script import Script, call, text
from pictures import image_block, png
from random_logs import random_log
from reverie.conversation.decisions import (
    Cause,
    Collapsed,
    Compacted,
    CompactionUndone,
    Image,
    ImagesDropped,
    MemoriesSurfaced,
    NotesUpdated,
    Pinned,
    Replacement,
    ResultOffloaded,
    ResultsCleared,
    ResultsKept,
    ResultsRestored,
    Snipped,
)
from reverie.conversation.entries import Entry
from reverie.conversation.log import LoggedEntries
from reverie.conversation.tokens.estimate import estimate_message
from reverie.conversation.view import View
from reverie.conversation.wire.request import build_request

BECAUSE = Cause("test", "because")


def conversation() -> Script:
    script = Script()
    script.user("read it")
    script.reply(call("t1", file_path="/a"), call("t2", file_path="/b"))
    script.result("t1", "A" * 900)
    script.result("t2", "B" * 900)
    script.reply(text("done"))
    script.user("thanks")
    return script


@pytest.mark.requirement("K5")
@pytest.mark.slow
def test_folding_entry_by_entry_equals_folding_all_at_once():
    for seed in range(400):
        log = random_log(Random(seed))
        whole, step = View().fold_all(log), View()
        for entry in log:
            step = step.fold(entry)
        assert build_request(step) == build_request(whole)
        assert (step.tokens, step.images, step.token_count.tokens) == (
            whole.tokens,
            whole.images,
            whole.token_count.tokens,
        )


@pytest.mark.requirement("K5")
def test_running_totals_equal_what_is_shown():
    for seed in range(400):
        view = View().fold_all(random_log(Random(seed), disorder=0.0))
        shown = sum(estimate_message(piece.message) for group in view.groups for piece in group.pieces)
        slack = 3 * len(view.groups) + 3 * sum(len(group.pieces) for group in view.groups)
        if not view.overrides.results and not view.overrides.images:
            assert abs(view.tokens - shown) <= slack


@pytest.mark.requirement("K12")
def test_a_snapshot_never_changes_whatever_is_folded_onto_it():
    for seed in range(300):
        rng = Random(seed)
        log = random_log(rng)
        view = View()
        snapshots: list[tuple[View, Any, Any]] = []
        for entry in log:
            if rng.random() < 0.3:
                snapshots.append((view, copy.deepcopy(build_request(view)), (view.tokens, view.unanswered())))
            view = view.fold(entry)
        for other in random_log(Random(seed + 10_000)):  # two futures of the same past
            for snapshot, _, _ in snapshots[-2:]:
                snapshot.fold(other)
        for snapshot, request, numbers in snapshots:
            assert build_request(snapshot) == request
            assert (snapshot.tokens, snapshot.unanswered()) == numbers


@pytest.mark.requirement("K12")
def test_two_futures_of_one_snapshot_do_not_see_each_other():
    base = conversation().view
    script = Script()
    script.entries = [
        Entry("x1", None, "", "s", "assistant", {"message": {"role": "assistant", "content": [call("z")]}})
    ]
    left = base.fold(script.entries[0])
    right = base.fold(
        Entry("x2", None, "", "s", "assistant", {"message": {"role": "assistant", "content": [call("z")]}})
    )
    assert left.tool_call("z") is not None
    assert right.tool_call("z") is not None
    assert base.tool_call("z") is None
    assert left.messages()[-1]["content"] == right.messages()[-1]["content"] == [call("z")]


@pytest.mark.requirement("K12", "V9")
def test_a_branch_and_its_past_grow_without_seeing_each_other():
    for seed in range(150):
        rng = Random(seed)
        log, others = random_log(rng), random_log(Random(seed + 10_000))
        at = rng.randrange(len(log) + 1)
        view = View().fold_all(log[:at])
        branch = view.branched()
        assert build_request(branch) == build_request(view)
        for entry, other in zip_longest(log[at:], others):
            view = view.fold(entry) if entry is not None else view
            branch = branch.fold(other) if other is not None else branch
        assert build_request(view) == build_request(View().fold_all(log))
        assert build_request(branch) == build_request(View().fold_all([*log[:at], *others]))


@pytest.mark.requirement("K5", "V9")
def test_a_conversation_goes_on_in_the_same_lists_after_a_branch_has_grown():
    script = conversation()
    view = View().fold_all(script.entries[:-1])
    twin = View().fold_all(script.entries[:-1])
    lists, copied = view.finished_messages, twin.finished_messages
    assert lists is not None
    assert copied is not None
    view.branched().fold(Entry("x", None, "", "s", "user", {"message": {"role": "user", "content": "aside"}}))
    twin.fold(Entry("x", None, "", "s", "user", {"message": {"role": "user", "content": "aside"}}))
    after, twins = view.fold(script.entries[-1]).finished_messages, twin.fold(script.entries[-1]).finished_messages
    assert after is not None
    assert twins is not None
    assert after[0] is lists[0]
    assert twins[0] is not copied[0]  # the twin: a plain fold makes the conversation copy its lists


@pytest.mark.requirement("K5")
def test_the_same_entry_twice_counts_once():
    script = conversation()
    assert View().fold_all([*script.entries, *script.entries]).messages() == script.messages


@pytest.mark.requirement("K6")
def test_a_message_no_decision_touches_leaves_as_the_object_it_came_in():
    script = conversation()
    messages = script.messages
    assert messages[0] is script.entries[0].body["message"]
    assert messages[1] is script.entries[1].body["message"]
    assert messages[3] is script.entries[4].body["message"]
    assert [block["tool_use_id"] for block in messages[2]["content"]] == ["t1", "t2"]
    assert messages[2]["content"][0] is script.entries[2].body["message"]["content"][0]


@pytest.mark.requirement("K4", "K6")
def test_clearing_and_restoring_a_result_gives_back_the_same_object():
    script = conversation()
    before = script.messages
    script.decide(ResultsCleared(BECAUSE, [Replacement("t1", "[cleared]", "handle")]))
    cleared = script.view
    assert cleared.messages()[2]["content"][0]["content"] == "[cleared]"
    assert cleared.messages()[2]["content"][1] is before[2]["content"][1]
    assert cleared.tokens < View().fold_all(script.entries[:-1]).tokens
    script.decide(ResultsRestored(BECAUSE, ["t1"]))
    assert script.messages == before
    assert script.view.tokens == View().fold_all(script.entries[:-2]).tokens


@pytest.mark.requirement("K4")
def test_offloaded_and_kept_results_are_remembered():
    script = conversation()
    script.decide(ResultsKept(BECAUSE, ["t2"]))
    script.decide(ResultOffloaded(BECAUSE, "t1", "<preview>", "tool-results/t1.txt", "00", 900))
    view = script.view
    assert view.is_kept("t2")
    assert not view.is_kept("t1")
    found = view.offloaded("t1")
    assert found is not None
    assert found.path == "tool-results/t1.txt"
    assert view.messages()[2]["content"][0]["content"] == "<preview>"


@pytest.mark.requirement("K4")
@pytest.mark.parametrize("archived", [False, True])
def test_a_cut_that_is_only_foreseen_changes_nothing_of_the_view(archived: bool):
    script = conversation()
    script.decide(ResultsKept(BECAUSE, ["t2"]))
    archive = LoggedEntries(lambda start, size: b"")
    view = View(archive if archived else None).fold_all(script.entries)
    script.decide(Compacted(BECAUSE, "auto", "full", "Summary.", 900, None, None))
    foreseen = view.fold(script.entries[-1])
    assert not foreseen.is_kept("t2")
    script.user("go on")
    for one in (view, view.fold(script.entries[-1])):
        assert one.is_kept("t2")


@pytest.mark.requirement("K4")
def test_a_compaction_replaces_what_was_before_it_and_undoing_brings_every_byte_back():
    script = conversation()
    before = script.messages
    boundary = script.decide(Compacted(BECAUSE, "auto", "full", "Summary.", 900, "e5", "e5", [text("attached")]))
    script.user("and now?")
    assert script.messages == [
        {"role": "user", "content": [text("Summary."), text("thanks"), text("attached"), text("and now?")]}
    ]
    script.decide(CompactionUndone(BECAUSE, boundary))
    assert script.messages[:-1] == before[:-1]
    assert script.messages[-1] == {"role": "user", "content": [text("thanks"), text("and now?")]}


@pytest.mark.requirement("K4")
@pytest.mark.parametrize(("summary", "first_kept"), [("", None), ("  ", "e5"), ("Summary.", "not there")])
def test_a_boundary_that_cannot_be_applied_changes_nothing(summary: str, first_kept: str | None):
    script = conversation()
    before = script.messages
    script.decide(Compacted(BECAUSE, "auto", "full", summary, 9, None, first_kept))
    assert script.messages == before


@pytest.mark.requirement("K4")
def test_snipped_rounds_and_collapsed_spans_leave_the_view():
    script = conversation()
    script.decide(Snipped(BECAUSE, ["e1", "e2", "e3"]))
    assert [message["role"] for message in script.messages] == ["user", "assistant", "user"]
    script.decide(Collapsed(BECAUSE, "e0", "e4", "[reading was done]"))
    assert script.messages == [{"role": "user", "content": [text("[reading was done]"), text("thanks")]}]


@pytest.mark.requirement("K4")
def test_surfaced_memories_notes_pins_and_dropped_images_are_folded():
    script = Script()
    image = image_block(png(1, 1))
    shown = script.user([text("look"), image, image])
    script.decide(MemoriesSurfaced(BECAUSE, ["m.md"], "<memory>use the real database</memory>"))
    script.decide(NotesUpdated(BECAUSE, {"Session Title": "Tests"}, shown))
    script.decide(Pinned(BECAUSE, [shown], ["t9"]))
    script.decide(ImagesDropped(BECAUSE, [Image(shown, 1)], "[an image was here]"))
    view = script.view
    assert [block["type"] for block in view.messages()[0]["content"]] == ["text", "image", "text", "text"]
    assert view.images.count == 1
    assert view.facts.notes == {"Session Title": "Tests"}
    assert view.facts.pinned == {shown, "t9"}


@pytest.mark.requirement("K5", "T1")
def test_the_count_is_the_last_report_plus_an_estimate_of_what_followed():
    script = Script()
    script.user("hello")
    script.reply(text("hi"), usage={"input_tokens": 10, "cache_read_input_tokens": 1_000, "output_tokens": 5})
    assert script.view.token_count.tokens in range(1_012, 1_030)
    script.user("word " * 400)
    assert script.view.token_count.tokens in range(1_300, 1_700)
    script.decide(Compacted(BECAUSE, "auto", "full", "Summary.", 1_500, None, None))
    assert not script.view.token_count.known
    assert script.view.token_count.tokens < 1_100


@pytest.mark.requirement("K5")
def test_a_preview_decided_before_its_message_comes_is_counted_once():
    script = Script()
    script.user("go")
    script.reply(call("t1"), call("t2"))
    script.result("t1", "first " * 50)
    script.decide(ResultOffloaded(BECAUSE, "t2", "preview " * 60, "tool-results/t2.txt", "00", 90_000))
    script.result("t2", "preview " * 60)
    shown = sum(estimate_message(message) for message in script.messages)
    assert abs(script.view.tokens - shown) <= 12
