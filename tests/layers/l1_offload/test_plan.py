"""The plan for one result, and for the results of one message together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, call
from pictures import image_block, png
from reverie.conversation.decisions import (
    CacheEdits,
    Cause,
    Pinned,
    Replacement,
    ResultOffloaded,
    ResultsCleared,
    ResultsKept,
)
from reverie.conversation.view import View
from reverie.layers.l1_offload import OffloadPolicy, fitted_policy
from reverie.layers.l1_offload.content import size_chars
from reverie.layers.l1_offload.plan import (
    Aggregate,
    Duplicate,
    KeepResult,
    Offload,
    Placeholder,
    offload_of,
    plan_aggregate,
    plan_result,
    result_key,
    shown_text,
)
from reverie.layers.l1_offload.policy import limit_chars

POLICY = OffloadPolicy()
PIXEL: dict[str, Any] = image_block(png(1, 1, at_least_bytes=75_000))
LONG_TEXT: dict[str, Any] = {"type": "text", "text": "word " * 20_000}
PDF: dict[str, Any] = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0" * 20_000},
}
PLAIN: dict[str, Any] = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "line\n" * 20_000},
}
CAUSE = Cause("test", "test")


@pytest.mark.requirement("L1.1", "L1.2", "L1.3", "L1.8")
@pytest.mark.parametrize(
    ("tool", "output", "kind"),
    [
        ("Bash", "short", KeepResult),
        ("Bash", "x" * 30_000, KeepResult),
        ("Bash", "x" * 30_001, Offload),
        ("Bash", "é" * 30_000, KeepResult),
        ("Grep", "x" * 20_001, Offload),
        ("Glob", "x" * 50_000, KeepResult),
        ("Glob", "x" * 50_001, Offload),
        ("Read", "x" * 5_000_000, KeepResult),
        ("Bash", b"x" * 30_001, Offload),
        ("Bash", b"ok", KeepResult),
        ("Bash", b"\xff\xfe", Offload),
        ("Read", b"\xff\xfe", Offload),
        ("Bash", "caf\udce9", Offload),
        ("mcp__a__b", [LONG_TEXT], Offload),
        ("mcp__a__b", [{"type": "text", "text": "short"}], KeepResult),
        ("mcp__a__b", [LONG_TEXT, PIXEL], KeepResult),
        ("mcp__a__b", [PIXEL], KeepResult),
        ("mcp__a__b", [PDF], KeepResult),
        ("mcp__a__b", [PLAIN], Offload),
        ("mcp__a__b", [{"type": "novel", "x": "y" * 60_000}, 7, None, "bare"], Offload),
        ("Bash", "", Placeholder),
        ("Bash", b"", Placeholder),
        ("Bash", " \n\t", Placeholder),
        ("Read", "", Placeholder),
        ("Bash", [], Placeholder),
        ("Bash", [{"type": "text", "text": " "}], Placeholder),
    ],
)
def test_what_becomes_of_a_result(tool: str, output: Any, kind: type) -> None:
    assert type(plan_result(tool, "toolu_1", output, POLICY, View())) is kind


@pytest.mark.requirement("L1.8")
def test_the_placeholder_of_an_empty_result_is_short_and_names_the_tool() -> None:
    plan = plan_result("Bash", "toolu_1", "", POLICY, View())
    assert isinstance(plan, Placeholder)
    assert "Bash" in plan.text
    assert len(plan.text) < 60
    assert plan.content == ""


@pytest.mark.parametrize(
    "called",
    [
        "../../etc/passwd",
        "a/b",
        "..",
        ".",
        "",
        "a\0b",
        "%2e%2e%2f",
        "é" * 300,
        "x" * 256,
        "‮gnp",
        "CON",
        "\ud800",
        "a.b",
    ],
)
def test_an_id_never_names_a_place_outside_the_folder_of_results(called: str) -> None:
    from reverie.layers.l1_offload import result_forms
    from reverie.paths import check_key

    for hashed in (False, True):
        key = result_key("projects/p/s", offload_of(called, result_forms("text")), hashed=hashed)
        parts = check_key(key)
        assert parts[:4] == ("projects", "p", "s", "tool-results")
        assert len(parts) == 5


def test_two_ids_that_look_alike_once_made_harmless_have_files_of_their_own() -> None:
    from reverie.layers.l1_offload import result_forms

    keys = {
        result_key("f", offload_of(called, result_forms("text"))) for called in ("a/b", "a\\b", "a b", "a-b", "a:b")
    }
    assert len(keys) == 5


# -- repeats


def script_with(content: Any, *, tool: str = "Read") -> Script:
    script = Script()
    script.user("begin")
    script.reply(call("first", tool))
    script.result("first", content)
    script.reply(call("second"))
    return script


@pytest.mark.requirement("L1.10")
@pytest.mark.parametrize(
    ("content", "refers"),
    [
        ("x" * 255, False),
        ("x" * 256, True),
        ("x" * 30_000, True),
        ("é" * 128, True),
        ("é" * 127, False),
        ([{"type": "text", "text": "x" * 300}], True),
        ([{"type": "text", "text": "x" * 300}, PIXEL], False),
    ],
)
def test_a_repeat_of_a_result_in_view_is_a_reference_to_it(content: Any, refers: bool) -> None:
    plan = plan_result("Glob", "second", content, POLICY, script_with(content).view)
    assert isinstance(plan, Duplicate) == refers
    if isinstance(plan, Duplicate):
        assert (plan.first, plan.content) == ("first", content)
        assert "first" in plan.text
        assert "second" in plan.text
        assert len(plan.text) < 200


@pytest.mark.requirement("L1.10")
def test_a_repeat_longer_than_the_maximum_is_shown_whole_where_its_tool_may_show_it() -> None:
    script = script_with("x" * 50_001)
    assert isinstance(plan_result("Read", "second", "x" * 50_001, POLICY, script.view), KeepResult)
    assert isinstance(plan_result("Read", "second", "x" * 50_000, POLICY, script_with("x" * 50_000).view), Duplicate)


@pytest.mark.requirement("L1.10")
def test_only_a_result_that_is_still_shown_whole_is_referred_to() -> None:
    content = "x" * 300
    gone = {
        "cleared": ResultsCleared(CAUSE, [Replacement("first", "[cleared]")]),
        "offloaded": ResultOffloaded(CAUSE, "first", "<persisted-output>", "p", "h", 300),
        "deleted in the cache": CacheEdits(CAUSE, ["first"], "e2"),
    }
    for how, decision in gone.items():
        script = script_with(content)
        script.decide(decision)
        assert isinstance(plan_result("Read", "second", content, POLICY, script.view), KeepResult), how
    script = script_with(content)
    assert isinstance(plan_result("Read", "second", content + "y", POLICY, script.view), KeepResult)
    assert isinstance(plan_result("Read", "first", content, POLICY, script.view), KeepResult)


# -- the results of one message

FRESH, KEPT, REPLACED = "fresh", "kept", "replaced"


def message_of(results: list[tuple[str, int, str]]) -> Script:
    """Write a message of results, each of a tool, a length and a state."""
    script = Script()
    script.user("begin")
    script.reply(*(call(f"t{at}", tool) for at, (tool, _, _) in enumerate(results)))
    for at, (_, length, state) in enumerate(results):
        if state == REPLACED:
            script.decide(ResultOffloaded(CAUSE, f"t{at}", "<persisted-output>" + "p" * 100, "p", "h", length))
        script.result(f"t{at}", f"{at}:".ljust(length, "z")[:length])
        if state == KEPT:
            script.decide(ResultsKept(CAUSE, [f"t{at}"]))
    return script


def offloaded(plan: Aggregate) -> list[str]:
    return [one.tool_use_id for one in plan.offloads]


@pytest.mark.requirement("L1.5", "L1.6")
@pytest.mark.parametrize(
    ("results", "gone", "kept"),
    [
        ([("Bash", 30_000, FRESH)] * 6, [], ["t0", "t1", "t2", "t3", "t4", "t5"]),
        ([("Glob", 50_000, FRESH)] * 4, [], ["t0", "t1", "t2", "t3"]),
        (
            [("Glob", 50_000, FRESH), ("Glob", 49_999, FRESH)] * 2 + [("Bash", 9_000, FRESH)],
            ["t0"],
            ["t1", "t2", "t3", "t4"],
        ),
        ([("Glob", 40_000, FRESH), ("Glob", 50_000, FRESH)] * 3, ["t1", "t3"], ["t0", "t2", "t4", "t5"]),
        ([("Glob", 50_000, FRESH)] * 5, ["t0"], ["t1", "t2", "t3", "t4"]),
        ([("Glob", 50_000, KEPT)] * 5 + [("Bash", 10_000, FRESH)], ["t5"], []),
        ([("Glob", 50_000, KEPT)] * 5, [], []),
        ([("Glob", 50_000, REPLACED)] * 9 + [("Bash", 10_000, FRESH)], [], ["t9"]),
        ([("Read", 250_000, FRESH), ("Bash", 10_000, FRESH)], ["t1"], ["t0"]),
        ([("Bash", 1_000, FRESH)] * 300, [], [f"t{at}" for at in range(300)]),
    ],
)
def test_the_largest_fresh_results_go_until_the_rest_fits(
    results: list[tuple[str, int, str]], gone: list[str], kept: list[str]
) -> None:
    plan = plan_aggregate(message_of(results).view, POLICY, folder="projects/p/s")
    assert offloaded(plan) == gone
    assert list(plan.kept) == kept


@pytest.mark.requirement("L1.5", "L1.8")
def test_pictures_and_pinned_results_stay_whatever_the_total() -> None:
    script = Script()
    script.user("begin")
    script.reply(*(call(f"t{at}", "Glob") for at in range(3)))
    script.result("t0", [{"type": "text", "text": "z" * 120_000}, PIXEL])
    script.result("t1", "y" * 100_000)
    script.result("t2", "x" * 3_000)
    script.decide(Pinned(CAUSE, tool_use_ids=["t1"]))
    assert offloaded(plan_aggregate(script.view, POLICY)) == ["t2"]


@pytest.mark.requirement("L1.5")
def test_results_are_counted_by_the_message_the_provider_will_see() -> None:
    script = Script()
    script.user("begin")
    for turn in range(5):
        script.reply(call(f"t{turn}", "Glob"))
        script.result(f"t{turn}", f"{turn}".ljust(50_000, "z"))
        assert offloaded(plan_aggregate(script.view, POLICY)) == []
    # The same five in one message, given one by one and with words of the user between them.
    script = Script()
    script.user("begin")
    script.reply(*(call(f"t{at}", "Glob") for at in range(5)))
    for at in range(5):
        script.result(f"t{at}", f"{at}".ljust(50_000, "z"))
        script.user("hm")
    assert len(plan_aggregate(script.view, POLICY).offloads) == 1


@pytest.mark.requirement("L1.5")
def test_what_was_sent_is_never_decided_on_again() -> None:
    script = message_of([("Glob", 50_000, FRESH)] * 9)
    script.reply({"type": "text", "text": "Thanks."})
    assert plan_aggregate(script.view, POLICY) == Aggregate((), (), 0)
    script.user("Go on.")
    assert plan_aggregate(script.view, POLICY) == Aggregate((), (), 0)


messages = st.lists(
    st.tuples(
        st.sampled_from(["Read", "Bash", "Glob"]),
        st.integers(1, 6_000),
        st.sampled_from([FRESH, FRESH, KEPT, REPLACED]),
    ),
    min_size=1,
    max_size=8,
)


def broken_promises(
    results: list[tuple[str, int, str]], policy: OffloadPolicy, plan: Callable[[View, OffloadPolicy], Aggregate]
) -> list[str]:
    """Check a plan for the results of one message against what it promises."""
    view = message_of(results).view
    made = plan(view, policy)
    gone = {one.tool_use_id: one for one in made.offloads}
    states = {f"t{at}": state for at, (_, _, state) in enumerate(results)}
    sizes = {f"t{at}": length for at, (_, length, _) in enumerate(results)}
    tools = {f"t{at}": tool for at, (tool, _, _) in enumerate(results)}
    broken: list[str] = []
    if any(states[called] != FRESH for called in (*gone, *made.kept)):
        broken.append("what was decided stands")
    if sorted((*gone, *made.kept)) != sorted(called for called, state in states.items() if state == FRESH):
        broken.append("every fresh result is decided on")
    left = {called: len(shown_text(one, policy, result_key("", one))) for called, one in gone.items()}
    if any(left[called] >= sizes[called] for called in gone):
        broken.append("nothing grows")
    before = sum(size for called, size in sizes.items() if states[called] != REPLACED)
    after = before - sum(sizes[called] for called in gone)
    if before <= policy.aggregate_chars and gone:
        broken.append("what fits is left alone")
    movable = [called for called in made.kept if tools[called] != "Read" and sizes[called] > policy.preview_bytes + 400]
    if after > policy.aggregate_chars and movable:
        broken.append("it goes on until the rest fits")
    if gone and any(sizes[called] > max(sizes[one] for one in gone) for called in movable):
        broken.append("the largest go first")
    if after != made.chars:
        broken.append("it says what is left")
    return broken


SMALL = replace(POLICY, aggregate_chars=9_000, preview_bytes=100)


@pytest.mark.requirement("L1.5")
@given(results=messages)
def test_the_plan_for_a_message_keeps_its_promises(results: list[tuple[str, int, str]]) -> None:
    assert broken_promises(results, SMALL, plan_aggregate) == []


def test_a_plan_that_decides_anew_on_frozen_results_is_caught() -> None:
    def forgetful(view: View, policy: OffloadPolicy) -> Aggregate:
        made = plan_aggregate(view, policy)
        again = next((block for block in view.messages()[-1]["content"] if view.is_kept(block["tool_use_id"])), None)
        if again is None:
            return made
        from reverie.layers.l1_offload import result_forms

        return replace(
            made, offloads=(*made.offloads, offload_of(again["tool_use_id"], result_forms(again["content"])))
        )

    results = [("Glob", 6_000, KEPT), ("Glob", 6_000, FRESH)]
    assert broken_promises(results, SMALL, plan_aggregate) == []
    assert "what was decided stands" in broken_promises(results, SMALL, forgetful)


def test_a_plan_that_stops_early_is_caught() -> None:
    def lazy(view: View, policy: OffloadPolicy) -> Aggregate:
        made = plan_aggregate(view, policy)
        return Aggregate((), tuple(sorted((*made.kept, *offloaded(made)))), made.chars)

    assert "it goes on until the rest fits" in broken_promises([("Glob", 6_000, FRESH)] * 3, SMALL, lazy)


def test_sizes_count_text_and_leave_pictures_out() -> None:
    assert size_chars([{"type": "text", "text": "abc"}, PIXEL, PDF, "de"]) == 5


@pytest.mark.parametrize("tool", ["Read", "Bash", "Grep"])
def test_the_tools_of_agents_that_write_their_names_small_have_the_same_limits(tool: str):
    policy = OffloadPolicy()
    assert limit_chars(policy, tool.lower()) == limit_chars(policy, tool)
    assert limit_chars(policy, "reader") == policy.default_limit_chars  # the known-bad twin: another tool's name


@pytest.mark.requirement("V11")
@pytest.mark.parametrize("tokens", [3_072, 6_144, 12_288, 24_576, 49_152, 180_000, 980_000])
def test_every_limit_is_at_most_its_share_of_the_window(tokens: int):
    whole = OffloadPolicy(override_chars={"Bash": 150_000})
    policy = fitted_policy(whole, tokens)
    for tool, declared in (
        ("look", None),
        ("Bash", None),
        ("Grep", None),
        ("look", 1e9),
        ("Read", None),
        ("look", inf),
    ):
        limit = limit_chars(policy, tool, declared)
        if tokens < 50_000:
            assert limit is not None
            assert limit <= 4 * 0.3 * tokens
        else:  # the known-bad twin: large windows keep the limits of before
            assert limit == limit_chars(whole, tool, declared)
    assert policy.aggregate_chars <= 4 * 0.3 * tokens
    assert policy.preview_bytes <= tokens // 10


@pytest.mark.requirement("V11")
def test_in_a_small_window_dense_text_counts_by_its_tokens():
    view = Script().view
    dense = "".join(f"{at * 7919 % 10_007}," for at in range(1_200))
    small = fitted_policy(OffloadPolicy(), 6_144)
    assert len(dense) <= small.default_limit_chars
    assert isinstance(plan_result("look", "t1", dense, small, view), Offload)
    assert isinstance(plan_result("look", "t1", "plain words " * 400, small, view), KeepResult)
    assert isinstance(plan_result("look", "t1", dense, replace(small, window_chars=inf), view), KeepResult)


def test_much_white_space_goes_to_disk_like_any_large_result() -> None:
    large, small = " \n" * 100_000, " \n" * 100
    assert isinstance(plan_result("Bash", "t1", large, OffloadPolicy(), View()), Offload)
    assert isinstance(plan_result("Bash", "t1", small, OffloadPolicy(), View()), Placeholder)
