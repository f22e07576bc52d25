"""Results that layer 2 clears, and results it never clears: plans by table and by property."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.cache.breakpoints import BlockPosition, CacheState
from reverie.cache.prices import rates_of
from reverie.conversation.decisions import CacheEdits, Cause, PrefixRendered
from reverie.conversation.wire.request import build_request
from reverie.conversation.wire.validate import Limits, problems
from reverie.layers.l2_trim import (
    TrimCandidates,
    TrimFacts,
    TrimPlan,
    TrimPolicy,
    cleared_text,
    plan_budget,
    plan_cache_edit,
    plan_trim,
)
from reverie.layers.l2_trim.candidates import STUB_TOKENS
from reverie.layers.l2_trim.policy import CLEARED
from reverie.model_facts import facts_of
from reverie.values import replace

MakeBench = Callable[..., Any]
RATES = rates_of(None, facts_of("claude-sonnet-4-5"))
COLD = TrimFacts(life="cold", window=50_000, round=20, turns=20.0, rates=RATES, least_cached=1_024)
LIVE = replace(COLD, life="live")
TOOLS = ("Read", "Bash", "Grep", "Edit", "mcp__x__y", "Task")


def gone(made: TrimPlan | None) -> list[str]:
    return [] if made is None else [one.tool_use_id for one in made.decision.cleared]


# -- cold


@pytest.mark.requirement("L2.2")
@pytest.mark.parametrize(
    ("results", "keep", "left"),
    [(12, 5, 5), (6, 5, 5), (5, 5, 5), (3, 5, 3), (1, 5, 1), (12, 1, 1), (12, 0, 1), (12, -3, 1), (4, 40, 4)],
)
def test_a_cold_cache_clears_all_but_the_most_recent_and_never_the_last(
    make_bench: MakeBench, results: int, keep: int, left: int
):
    policy = TrimPolicy(keep_cold=keep)
    bench = make_bench(policy)
    ids = bench.turns(results)
    made = plan_trim(bench.asked().pending(), COLD, policy)
    assert gone(made) == ids[: results - left]
    assert made is None or made.trigger == "idle"


@pytest.mark.requirement("L2.2")
def test_results_the_model_has_not_seen_stay_however_many_came_at_once(bench: Any):
    old = bench.turns(4)
    bench.parallel(12)
    assert gone(plan_trim(bench.pending(), COLD, bench.policy)) == old
    assert gone(plan_budget(bench.pending(), bench.policy, target=0)) == old


@pytest.mark.requirement("L2.2", "L2.9")
@pytest.mark.parametrize(
    ("mode", "idle", "acts"),
    [
        ("client", True, True),
        ("client", False, False),
        ("cache_edit", True, True),
        ("provider", True, False),
        ("off", True, False),
    ],
)
def test_only_this_side_clears_and_only_where_it_may(make_bench: MakeBench, mode: Any, idle: bool, acts: bool):
    policy = TrimPolicy(mode=mode, idle=idle)
    bench = make_bench(policy)
    bench.turns(12)
    assert (plan_trim(bench.asked().pending(), COLD, policy) is not None) is acts


@pytest.mark.requirement("L2.2")
@pytest.mark.parametrize(
    ("ttl", "idle_seconds", "life"),
    [
        ("5m", 299.9, "live"),
        ("5m", 300.0, "cold"),
        ("5m", 4_000.0, "cold"),
        ("1h", 299.9, "live"),
        ("1h", 300.0, "tail dead"),
        ("1h", 3_599.9, "tail dead"),
        ("1h", 3_600.0, "cold"),
    ],
)
def test_the_cache_is_cold_by_the_lifetime_in_use(ttl: str, idle_seconds: float, life: str):
    placed = CacheState(ttl, BlockPosition(9, 0), 1_000.0)
    assert placed.life(1_000.0 + idle_seconds) == life


@pytest.mark.requirement("L2.1")
@given(tools=st.lists(st.sampled_from(TOOLS), min_size=1, max_size=25), life=st.sampled_from(["cold", "live"]))
def test_only_old_results_of_the_set_ever_leave(make_bench: MakeBench, tools: list[str], life: Any):
    bench = make_bench()
    called = {bench.turn(tool): tool for tool in tools}
    pending = bench.asked().pending()
    facts = replace(COLD, life=life, limit=1, turns=500.0)
    clearable = [one for one, tool in called.items() if bench.policy.may_clear(tool)]
    for made, keep in (
        (plan_trim(pending, facts, bench.policy), 5 if life == "cold" else 1),
        (plan_budget(pending, bench.policy, target=0), 3),
    ):
        assert set(gone(made)) <= set(clearable[: max(0, len(clearable) - keep)])
    if life == "cold":
        assert gone(plan_trim(pending, facts, bench.policy)) == clearable[: max(0, len(clearable) - 5)]


@pytest.mark.requirement("L2.1")
def test_text_thinking_and_what_the_user_said_stay_byte_for_byte(bench: Any):
    bench.script.reply({"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "w " * 900})
    bench.script.user("long " * 900)
    bench.turns(9)
    bench.asked()
    before = build_request(bench.script.view)["messages"]
    made = plan_trim(bench.pending(), COLD, bench.policy)
    assert made is not None
    bench.script.decide(made.decision)
    after = build_request(bench.script.view)["messages"]
    assert len(after) == len(before)
    for old, new in zip(before, after, strict=True):
        if old is not new:
            (one,), (other,) = old["content"], new["content"]
            assert {**one, "content": ""} == {**other, "content": ""}
            assert other["content"] == cleared_text(one["tool_use_id"])
    assert problems(build_request(bench.script.view)) == []


@pytest.mark.requirement("L2.6")
def test_what_stands_in_its_place_is_the_sentence_and_the_handle(bench: Any):
    ids = bench.turns(6)
    made = plan_trim(bench.asked().pending(), COLD, bench.policy)
    assert made is not None
    (one,) = made.decision.cleared
    assert one.text == f"{CLEARED} handle: {ids[0]}"
    assert CLEARED == "[Old tool result content cleared]"
    assert one.handle == one.tool_use_id == ids[0]


@pytest.mark.requirement("L2.8")
def test_clearing_twice_changes_nothing(bench: Any):
    bench.turns(12)
    index = bench.asked().pending()
    first = plan_trim(index, COLD, bench.policy)
    assert first is not None
    bench.script.decide(first.decision)
    shown = build_request(bench.script.view)
    index.follow(bench.script.view)
    assert plan_trim(index, COLD, bench.policy) is None
    assert plan_trim(bench.pending(), COLD, bench.policy) is None
    bench.script.decide(first.decision)
    assert build_request(bench.script.view) == shown


@pytest.mark.requirement("L2.8")
def test_the_decision_says_what_it_frees(bench: Any):
    bench.turns(8)
    pending = bench.asked().pending()
    before = bench.script.view.tokens
    made = plan_trim(pending, COLD, bench.policy)
    assert made is not None
    frees = sum(one.tokens - STUB_TOKENS for one in made.decision.cleared)
    assert made.decision.cause.frees == frees
    assert made.decision.cause.moves_prefix
    bench.script.decide(made.decision)
    assert before - bench.script.view.tokens == pytest.approx(frees, rel=0.05)


def test_what_is_shorter_than_its_stub_is_left_alone(bench: Any):
    bench.turns(12, tokens=5)
    pending = bench.asked().pending()
    assert plan_trim(pending, COLD, bench.policy) is None
    assert plan_budget(pending, bench.policy, target=0) is None


@pytest.mark.parametrize("by_message", [False, True])
def test_pinned_results_stay(bench: Any, by_message: bool):
    ids = bench.turns(9)
    pending = bench.asked().pending()
    first = pending.candidates[0]
    pinned = frozenset({first.message if by_message else first.tool_use_id})
    assert gone(plan_trim(pending, replace(COLD, pinned=pinned), bench.policy)) == ids[1:4]
    assert gone(plan_budget(pending, bench.policy, target=0, pinned=pinned)) == ids[1:6]


# -- priced, and forced by the window


@pytest.mark.requirement("C7")
def test_a_live_cache_is_left_alone_until_carrying_has_cost_as_much_as_clearing(bench: Any):
    bench.turns(6)
    young = replace(LIVE, round=6, turns=500.0)
    assert plan_trim(bench.asked().pending(), young, bench.policy) is None
    made = plan_trim(bench.pending(), replace(young, round=400), bench.policy)
    assert made is not None
    assert made.trigger == "priced"
    assert made.verdict is not None
    assert made.verdict.net > 0


@pytest.mark.requirement("C7")
def test_nothing_is_cleared_for_turns_that_will_not_come(bench: Any):
    bench.turns(12)
    assert plan_trim(bench.asked().pending(), replace(LIVE, round=400, turns=0.0), bench.policy) is None


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(("window", "acts"), [(99_999, False), (100_000, True)])
def test_a_full_window_clears_at_any_price(bench: Any, window: int, acts: bool):
    ids = bench.turns(30, tokens=2_000)
    facts = replace(LIVE, window=window, limit=100_000, round=2, turns=0.0)
    made = plan_trim(bench.asked().pending(), facts, bench.policy)
    assert gone(made) == (ids[:-3] if acts else [])
    assert made is None or made.trigger == "window"


@pytest.mark.requirement("C7")
def test_a_full_window_is_left_to_compaction_where_clearing_makes_no_room(bench: Any):
    bench.turns(8)
    facts = replace(LIVE, window=100_000, limit=100_000, round=2, turns=0.0)
    assert plan_trim(bench.asked().pending(), facts, bench.policy) is None


@given(
    sizes=st.lists(st.integers(45, 3_000), min_size=1, max_size=30),
    round=st.integers(0, 2_000),
    turns=st.floats(0, 500),
    life=st.sampled_from(["live", "tail dead"]),
)
@pytest.mark.requirement("C7")
def test_a_priced_clearing_always_saves_more_than_it_costs(
    make_bench: MakeBench, sizes: list[int], round: int, turns: float, life: Any
):
    bench = make_bench()
    for size in sizes:
        bench.turn(tokens=size)
    facts = replace(LIVE, life=life, round=round, turns=turns)
    made = plan_trim(bench.asked().pending(), facts, bench.policy)
    if made is not None:
        assert made.verdict is not None
        assert made.verdict.saves > made.verdict.cost >= 0
        assert not set(gone(made)) & {f"t{len(sizes) - back}" for back in range(3)}


@pytest.mark.requirement("C7")
def test_the_price_of_a_clearing_counts_from_the_last_entry_that_the_cache_still_holds(bench: Any):
    for _ in range(20):
        bench.turn("Task", tokens=700)
    bench.turns(8, tokens=3_000)
    pending = bench.asked().pending()
    facts = replace(LIVE, round=400, turns=400.0, prefix_tokens=2_000)
    held = [None, tuple(range(0, pending.unseen, 2)), (20, pending.unseen), (pending.unseen,), ()]
    made = [plan_trim(pending, replace(facts, held=one), bench.policy) for one in held]
    known, every, half, *none = [one.verdict.cost for one in made if one is not None and one.verdict is not None]
    assert known == every < half < none[0] == none[1]
    lost = plan_trim(pending, replace(facts, held=(), is_prefix_held=False, turns=1_000.0), bench.policy)
    assert lost is not None
    assert lost.verdict is not None
    assert lost.verdict.cost > none[1], "a pause also ended the entry of the system prompt"


@pytest.mark.requirement("C7")
def test_a_cache_of_which_only_the_long_lived_part_is_left_is_not_broken(bench: Any):
    bench.turns(20, tokens=700)
    pending = bench.asked().pending()
    facts = replace(LIVE, round=400, turns=400.0)
    assert plan_trim(pending, facts, bench.policy) is not None
    assert plan_trim(pending, replace(facts, life="tail dead"), bench.policy) is None
    assert plan_trim(pending, replace(facts, room=0.0), bench.policy) is None


@pytest.mark.requirement("L2.10", "C7")
def test_a_stale_read_goes_first_when_it_pays_even_where_it_is_recent(bench: Any):
    stale = bench.turn("Read", file_path="/a", tokens=4_000)
    bench.turn("Edit", "done", file_path="/a")
    facts = replace(LIVE, round=4_000, turns=400.0)
    bench.turns(2)
    bench.asked()
    assert gone(plan_trim(bench.pending(), facts, bench.policy)) == [stale]


# -- by budget


@pytest.mark.requirement("L2.5")
@pytest.mark.parametrize(("surplus", "cleared"), [(0.0, 0), (0.1, 1), (1.9, 2), (2.0, 2), (2.1, 3), (99.0, 7)])
def test_a_budget_clears_the_oldest_until_the_rest_fits(bench: Any, surplus: float, cleared: int):
    ids = bench.turns(10, tokens=700)
    pending = bench.asked().pending()
    each = pending.candidates[0].tokens
    made = plan_budget(pending, bench.policy, target=10 * each - round(surplus * (each - STUB_TOKENS)))
    assert gone(made) == ids[:cleared]
    assert made is None or made.trigger == "budget"


@pytest.mark.requirement("L2.5")
@given(
    sizes=st.lists(st.integers(1, 2_000), min_size=1, max_size=25),
    target=st.integers(0, 30_000),
    keep=st.integers(0, 6),
)
def test_after_a_budget_clearing_the_rest_fits_or_nothing_more_may_go(
    make_bench: MakeBench, sizes: list[int], target: int, keep: int
):
    policy = TrimPolicy(keep_budget=keep)
    bench = make_bench(policy)
    for size in sizes:
        bench.turn(tokens=size)
    pending = bench.asked().pending()
    before = list(pending.candidates)
    ids = gone(plan_budget(pending, policy, target=target))
    may_go = [one for one in before[: max(0, len(before) - keep)] if one.tokens > STUB_TOKENS]
    left = sum(STUB_TOKENS if one.tool_use_id in ids else one.tokens for one in before)
    assert ids == [one.tool_use_id for one in may_go][: len(ids)]
    assert left <= target or len(ids) == len(may_go)
    if ids:
        last = next(one for one in before if one.tool_use_id == ids[-1])
        assert left + last.tokens - STUB_TOKENS > target  # without the last one it would not have fitted


@pytest.mark.requirement("L2.5")
def test_the_default_budget_is_forty_thousand_tokens_beyond_the_last_three():
    policy = TrimPolicy()
    assert (policy.budget_tokens, policy.keep_budget) == (40_000, 3)
    assert (policy.keep_cold, policy.edit_above, policy.edit_keep) == (5, 20, 5)


@pytest.mark.requirement("L2.10")
def test_a_budget_takes_stale_reads_first_and_older_ones_before_younger(bench: Any):
    other = bench.turn("Bash")
    one = bench.turn("Read", file_path="/a")
    two = bench.turn("Read", file_path="/b")
    bench.turn("Read", file_path="/a")
    bench.turn("Edit", file_path="/b")
    bench.turns(3)
    pending = bench.asked().pending()
    total = sum(found.tokens for found in pending.candidates)
    each = pending.candidates[0].tokens - STUB_TOKENS
    assert gone(plan_budget(pending, bench.policy, target=total - 1)) == [one]
    assert gone(plan_budget(pending, bench.policy, target=total - each - 1)) == [one, two]
    assert gone(plan_budget(pending, bench.policy, target=total - 2 * each - 1)) == [one, two, other]


# -- by cache edit

EDIT = TrimPolicy(mode="cache_edit")


def able(bench: Any, *capabilities: str) -> Any:
    prefix = PrefixRendered(Cause("request", "first request"), "claude-test", capabilities=list(capabilities))
    bench.script.decide(prefix)
    return bench


@pytest.mark.requirement("L2.3")
@pytest.mark.parametrize(("results", "cleared"), [(20, 0), (21, 16), (30, 25)])
def test_more_than_twenty_results_delete_the_oldest_beyond_the_last_five(
    make_bench: MakeBench, results: int, cleared: int
):
    bench = able(make_bench(EDIT), "cache_edits")
    ids = bench.turns(results)
    bench.asked()
    before = bench.script.view
    made = plan_cache_edit(before, EDIT)
    assert ([] if made is None else made.tool_use_ids) == ids[:cleared]
    if made is not None:
        assert not made.cause.moves_prefix
        bench.script.decide(made)
        assert bench.script.messages[:-1] == before.messages()[:-1]


@pytest.mark.requirement("L2.3")
def test_a_fork_another_mode_or_a_provider_that_cannot_never_edits(make_bench: MakeBench):
    bench = able(make_bench(EDIT), "cache_edits")
    bench.turns(30)
    view = bench.asked().script.view
    assert plan_cache_edit(view, EDIT) is not None
    assert plan_cache_edit(view, EDIT, fork=True) is None
    for mode in ("client", "provider", "off"):
        assert plan_cache_edit(view, TrimPolicy(mode=mode)) is None
    able(bench)
    assert plan_cache_edit(bench.script.view, EDIT) is None


@pytest.mark.requirement("C7", "V15")
def test_lost_thinking_speaks_against_a_clearing_before_it_and_not_after_it(bench: Any):
    bench.turns(40, size=4_000)
    pending = bench.asked().pending()
    facts = replace(LIVE, round=400, turns=400.0)
    cleared = gone(plan_trim(pending, facts, bench.policy))
    first = min(one.group for one in pending.candidates)
    assert cleared
    assert gone(plan_trim(pending, replace(facts, thinking=((first - 1, 10**6),)), bench.policy)) == cleared
    assert gone(plan_trim(pending, replace(facts, thinking=((10**6, 10**6),)), bench.policy)) == []


@pytest.mark.requirement("V15", "C7")
def test_a_step_of_the_price_makes_a_clearing_pay_on_a_live_cache(bench: Any):
    bench.turns(40, size=4_000)
    pending = bench.asked().pending()
    facts = replace(LIVE, window=110_000, round=60, turns=6.0, growth=500.0)
    dear = replace(RATES, read=0.5, write_5m=6.25, write_1h=10.0, output=25.0)
    assert gone(plan_trim(pending, facts, bench.policy)) == []
    assert gone(plan_trim(pending, replace(facts, rates=replace(RATES, steps=((100_000, dear),))), bench.policy))


@pytest.mark.requirement("L2.3", "L2.1")
def test_an_edit_names_each_result_once_and_never_what_is_new_pinned_or_not_of_the_set(make_bench: MakeBench):
    bench = able(make_bench(EDIT), "cache_edits")
    named: list[str] = []
    for _ in range(4):
        bench.turns(14)
        bench.turn("mcp__x__y")
        bench.parallel(9)
        made = plan_cache_edit(bench.script.view, EDIT)
        assert made is not None
        assert not {one for one in made.tool_use_ids if one.startswith(f"p{bench.serial}_")}
        named += made.tool_use_ids
        bench.script.decide(made)
        assert plan_cache_edit(bench.script.view, EDIT) is None
    assert len(named) == len(set(named))
    pictured = {one.tool_use_id for one in bench.script.view.results if one.tool == "mcp__x__y"}
    assert not pictured & set(named)


@pytest.mark.requirement("L2.3")
def test_an_edit_never_names_nothing(make_bench: MakeBench):
    policy = TrimPolicy(mode="cache_edit", edit_above=2, edit_keep=50)
    bench = able(make_bench(policy), "cache_edits")
    bench.turns(8)
    assert plan_cache_edit(bench.asked().script.view, policy) is None


@pytest.mark.requirement("L2.3")
def test_requests_leave_edits_out_for_a_provider_that_does_not_take_them(make_bench: MakeBench):
    bench = able(make_bench(EDIT), "cache_edits")
    ids = bench.turns(30)
    bench.asked().script.decide(CacheEdits(Cause("trim", "x"), ids[:25], "e1"))
    with_edits = build_request(bench.script.view)
    assert problems(with_edits, limits=Limits(cache_edits=True)) == []
    assert problems(with_edits) != []
    assert problems(build_request(able(bench).script.view)) == []


# -- the twin


@pytest.mark.requirement("L2.2")
def test_a_plan_that_protects_too_little_is_caught(make_bench: MakeBench):
    def too_eager(pending: TrimCandidates, keep: int) -> list[str]:
        candidates = pending.candidates
        recent = candidates[len(candidates) - keep :]  # from the wrong end where there are fewer than are kept
        return [one.tool_use_id for one in candidates if one not in recent]

    bench = make_bench()
    bench.turns(3)
    pending = bench.asked().pending()
    assert too_eager(pending, 5) != []
    assert gone(plan_trim(pending, COLD, bench.policy)) == []
