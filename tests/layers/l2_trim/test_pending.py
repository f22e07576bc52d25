"""The index of clearable results: it follows the view, and knows which reads are stale."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from log_script import call
from pictures import image_block, png
from random_logs import random_log
from reverie.conversation.decisions import Cause, Compacted, Replacement, ResultsCleared, Snipped
from reverie.conversation.entries import ASSISTANT, USER
from reverie.conversation.view import View
from reverie.layers.l2_trim import TrimCandidates, TrimPolicy

CAUSE = Cause("test", "asked")
PIXEL = image_block(png(1, 1))


def ids(pending: TrimCandidates) -> list[str]:
    return [one.tool_use_id for one in pending.candidates]


@pytest.mark.requirement("L2.1")
@pytest.mark.parametrize(
    "tool", ["Read", "Bash", "Grep", "Glob", "WebFetch", "Edit", "Write", "WebSearch", "web_search"]
)
def test_results_of_the_set_may_be_cleared(bench: Any, tool: str):
    called = bench.turn(tool)
    assert ids(bench.pending()) == [called]


@pytest.mark.requirement("L2.1")
@pytest.mark.parametrize("tool", ["mcp__files__Read", "Task", "TodoWrite", "Skill", "AskUser", "read_image"])
def test_results_of_other_tools_may_not(bench: Any, tool: str):
    bench.turn(tool)
    assert ids(bench.pending()) == []


@pytest.mark.requirement("L2.1")
def test_the_set_is_a_setting_and_mcp_results_stay_whatever_it_says(make_bench: Callable[..., Any]):
    bench = make_bench(TrimPolicy(clearable=frozenset({"Task", "mcp__files__Read"})))
    task = bench.turn("Task")
    bench.turn("mcp__files__Read")
    bench.turn("Read")
    assert ids(bench.pending()) == [task]


@pytest.mark.requirement("L2.1")
def test_results_with_images_are_left_alone(bench: Any):
    bench.turn("Read", [{"type": "text", "text": "a picture"}, PIXEL])
    assert ids(bench.pending()) == []


@pytest.mark.requirement("L2.8")
def test_what_is_not_shown_whole_is_no_candidate(bench: Any):
    first, second = bench.turn(), bench.turn()
    bench.script.decide(ResultsCleared(CAUSE, [Replacement(first, "[gone]")]))
    assert ids(bench.pending()) == [second]


def test_a_clearing_that_others_decided_is_noticed_by_an_index_that_was_there_before(bench: Any):
    first, second = bench.turn(), bench.turn()
    index = bench.pending()
    assert ids(index) == [first, second]
    bench.script.decide(ResultsCleared(CAUSE, [Replacement(first, "[gone]")]))
    index.follow(bench.script.view)
    assert ids(index) == [second]


def test_results_of_the_message_that_is_about_to_be_sent_are_unseen(bench: Any):
    first = bench.turn()
    fresh = bench.parallel(3)
    index = bench.pending()
    assert [one.tool_use_id for one in index.candidates if one.group < index.unseen] == [first]
    bench.asked()
    index.follow(bench.script.view)
    assert [one.tool_use_id for one in index.candidates if one.group < index.unseen] == [first, *fresh]


def views(seed: int) -> list[View]:
    """Return the views of a random log, one after each entry."""
    found = [View()]
    for entry in random_log(Random(seed), entries=40):
        found.append(found[-1].fold(entry))
    return found


@example(seed=854161, every=1)  # a later prefix shows again what the provider had left out
@given(seed=st.integers(0, 2**32), every=st.integers(1, 9))
def test_an_index_that_follows_is_the_one_made_in_one_go(seed: int, every: int):
    policy = TrimPolicy(clearable=frozenset({"Read", "Bash", "Edit", "Grep"}))
    following = TrimCandidates(policy)
    found = views(seed)
    for view in [*found[::every], found[-1]]:
        following.follow(view)
    at_once = TrimCandidates(policy)
    at_once.follow(found[-1])
    assert set(ids(following)) <= set(ids(at_once))  # what was restored is not taken up again by one that saw it go
    assert {*ids(at_once)} - {*ids(following)} <= restored(found)
    assert following.written == at_once.written
    assert following.unseen == at_once.unseen


def restored(found: list[View]) -> set[str]:
    """Return the results that were gone in some view, replaced by us or left out by the provider."""
    replaced = {
        one.tool_use_id for view in found for one in found[-1].results if one.tool_use_id in view.overrides.results
    }
    left_out = {
        one.tool_use_id
        for view in found
        if view.clearing is not None
        for one in view.results
        if one.group <= view.clearing.group + 1
    }
    return replaced | left_out


@pytest.mark.requirement("L4.16")
def test_a_cut_makes_the_index_anew(bench: Any):
    bench.turns(4)
    index = bench.pending()
    entry = bench.script.entries
    replies = [one.uuid for one in entry if one.kind == ASSISTANT]
    bench.script.decide(Compacted(CAUSE, "auto", "full", "A summary.", 10, None, replies[-2]))
    index.follow(bench.script.view)
    assert ids(index) == ["t3", "t4"]
    bench.script.decide(Snipped(CAUSE, [one.uuid for one in entry if one.kind in (USER, ASSISTANT)][-2:]))
    index.follow(bench.script.view)
    assert ids(index) == ["t3"]


READ = {"file_path": "/a"}


@pytest.mark.requirement("L2.10")
@pytest.mark.parametrize(
    ("later", "stale"),
    [
        (("Read", READ), True),
        (("Edit", READ), True),
        (("Write", READ), True),
        (("Read", {"file_path": "/b"}), False),
        (("Read", {**READ, "offset": 5, "limit": 10}), False),
        (("Grep", {"path": "/a"}), False),
        (("Bash", {"command": "cat /a"}), False),
    ],
)
def test_a_read_is_stale_once_the_same_range_was_read_or_the_file_written(
    bench: Any, later: tuple[str, dict[str, Any]], stale: bool
):
    first = bench.turn("Read", **READ)
    bench.turn(later[0], **later[1])
    assert bench.pending().superseded == ({first} if stale else set())


@pytest.mark.requirement("L2.10")
def test_a_range_is_overtaken_by_the_same_range_or_a_write(bench: Any):
    part = {**READ, "offset": 5, "limit": 10}
    first, whole = bench.turn("Read", **part), bench.turn("Read", **READ)
    assert bench.pending().superseded == set()
    second = bench.turn("Read", **part)
    assert bench.pending().superseded == {first}
    bench.turn("Write", **READ)
    assert bench.pending().superseded == {first, whole, second}


@pytest.mark.requirement("L2.10")
@pytest.mark.parametrize("tool", ["Read", "Edit"])
def test_a_call_that_failed_makes_nothing_stale(bench: Any, tool: str):
    bench.turn("Read", **READ)
    bench.turn(tool, "no such text", is_error=True, **READ)
    assert bench.pending().superseded == set()


@pytest.mark.requirement("L2.10")
def test_a_reference_to_an_earlier_result_or_one_on_disk_never_makes_that_one_stale(bench: Any):
    first = bench.turn("Read", **READ)
    bench.serial += 1
    bench.script.reply(call("again", "Read", **READ), id="m-again")
    bench.script.decide(ResultsCleared(CAUSE, [Replacement("again", f"[identical to {first}]", "again")]))
    bench.script.result("again", "word " * 500)
    assert bench.pending().superseded == set()


@pytest.mark.requirement("L2.10")
def test_a_write_makes_reads_stale_even_where_its_own_result_is_gone(bench: Any):
    first = bench.turn("Read", **READ)
    wrote = bench.turn("Edit", **READ)
    bench.script.decide(ResultsCleared(CAUSE, [Replacement(wrote, "[gone]", wrote)]))
    assert bench.pending().superseded == {first}


@given(sizes=st.lists(st.integers(50, 900), min_size=3, max_size=20), data=st.data())
def test_after_a_clearing_distances_count_only_what_is_left(
    make_bench: Callable[..., Any], sizes: list[int], data: st.DataObject
):
    bench = make_bench()
    for size in sizes:
        bench.turn(tokens=size)
    index = bench.pending()
    gone = data.draw(st.sets(st.sampled_from(ids(index)), max_size=len(sizes)))
    cleared = {one.tool_use_id: one for one in index.candidates if one.tool_use_id in gone}
    index.clear(gone)
    for one in index.candidates:
        after = sum(max(0, other.tokens - 40) for other in cleared.values() if other.group > one.group)
        assert index.following(one) == max(0, index.written - index.before(one) - after)
