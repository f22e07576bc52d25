"""Clearing by the provider: the boundary, the price rule, the computed results, and the report in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, call
from reverie.cache.economics import RelativeRates
from reverie.conversation.boundary import CLEARS
from reverie.conversation.decisions import (
    Cause,
    ClearingBoundaryMoved,
    Compacted,
    CompactionUndone,
    PrefixRendered,
    ResultsClearedByProvider,
)
from reverie.conversation.entries import ASSISTANT
from reverie.conversation.reads import cleared_results
from reverie.conversation.wire.request import build_request
from reverie.layers.l2_trim import (
    TrimCandidates,
    TrimFacts,
    TrimPolicy,
    plan_boundary,
    provider_clearing,
)
from reverie.layers.l2_trim.provider import ClearingRule, SentCall, results_left_out
from reverie.model_facts import facts_of
from reverie.testing.messages_server.edits import apply_context_management
from reverie.testing.messages_server.edits import count_block_tokens as count_tokens
from reverie.values import replace

READ, MCP = "Read", "mcp__x__y"
MODEL = "claude-opus-5-5"
MOVED = Cause("trim", "x", frees=100)
POLICY = TrimPolicy(mode="provider")


# -- the boundary in a request


class Loop:
    """A log of replies that call tools in batches, with the result of each call."""

    def __init__(self, *capabilities: str) -> None:
        self.script = Script()
        self.script.decide(PrefixRendered(Cause("request", "first"), MODEL, capabilities=list(capabilities)))
        self.script.user("begin")
        self.replies: list[list[str]] = []

    def turn(self, *tools: str) -> None:
        """Add a reply that calls these tools, and the results."""
        at = len(self.replies)
        self.replies.append([f"t{at}_{number}" for number in range(len(tools))])
        called = [call(id, tool) for id, tool in zip(self.replies[-1], tools, strict=True)]
        self.script.reply({"type": "text", "text": "next"}, *called, id=f"m{at}")
        for one in self.replies[-1]:
            self.script.result(one, f"{one} " * 40)

    def move(self, upto: str, *excluded: str) -> None:
        """Log that the provider leaves out everything up to a call."""
        self.script.decide(ClearingBoundaryMoved(MOVED, upto, list(excluded)))

    def cleared(self) -> list[str]:
        """Return the results that the server leaves out of the next request."""
        return left_out(build_request(self.script.view))


def left_out(request: dict[str, Any]) -> list[str]:
    edited = apply_context_management(request, count_tokens, facts_of(MODEL))
    sent, left = results_of(request), results_of(edited.request)
    return [called for called in sent if left[called] != sent[called]]


def clearable(replies: list[list[str]], tools: list[list[str]]) -> list[str]:
    pairs = (pair for ids, names in zip(replies, tools, strict=True) for pair in zip(ids, names, strict=True))
    return [called for called, tool in pairs if tool != MCP]


BATCHES = st.lists(st.lists(st.sampled_from([READ, "Bash", MCP]), min_size=1, max_size=4), min_size=2, max_size=8)


@pytest.mark.requirement("L2.4", "V3")
@given(first=BATCHES, more=BATCHES, upto=st.integers(0, 7))
def test_the_results_up_to_the_boundary_are_left_out_however_many_calls_follow(
    first: list[list[str]], more: list[list[str]], upto: int
):
    loop, batches = Loop(CLEARS), [*first]
    for tools in first:
        loop.turn(*tools)
    assert loop.cleared() == []
    at = min(upto, len(first) - 1)
    gone = clearable(loop.replies[: at + 1], first[: at + 1])
    loop.move(loop.replies[at][-1], MCP)
    assert loop.cleared() == gone
    constant = build_request(loop.script.view)["context_management"]
    for tools in more:
        loop.turn(*tools)
        batches.append(tools)
        assert loop.cleared() == gone
        request = build_request(loop.script.view)
        kept = clearable(loop.replies[at + 1 :], batches[at + 1 :])
        assert request["context_management"]["edits"][-1]["keep"]["value"] == len(kept)
        added = clearable(loop.replies[len(first) :], more[: len(batches) - len(first)])
        # With a constant number the boundary moves with every new result.
        assert (left_out({**request, "context_management": constant}) == gone) == (not added)


@pytest.mark.requirement("L2.4")
def test_a_request_declares_no_clearing_of_results_before_a_decision_nor_without_the_means():
    for capabilities in ([CLEARS], []):
        loop = Loop(*capabilities)
        loop.turn(READ)
        loop.turn(READ)
        assert "context_management" not in build_request(loop.script.view)
        loop.move("t0_0")
        assert ("context_management" in build_request(loop.script.view)) == bool(capabilities)
        own = {"edits": [{"type": "clear_tool_uses_20250919"}]}
        options = {"max_tokens": 5, "context_management": own}
        loop.script.decide(PrefixRendered(Cause("request", "own"), MODEL, options=options, capabilities=capabilities))
        assert build_request(loop.script.view)["context_management"] == own


@pytest.mark.requirement("L2.4")
def test_after_a_cut_the_boundary_is_found_again_and_undoing_the_cut_clears_the_same_results():
    loop = Loop(CLEARS)
    for _ in range(6):
        loop.turn(READ, MCP)
    loop.move("t3_0", MCP)
    gone = ["t0_0", "t1_0", "t2_0", "t3_0"]
    loop.script.decide(ResultsClearedByProvider(MOVED, gone, "handles", 100, 4, 4))
    replies = [entry.uuid for entry in loop.script.entries if entry.kind == ASSISTANT]
    for kept, left in ((replies[5], []), (replies[2], ["t2_0", "t3_0"])):
        cut = loop.script.decide(Compacted(Cause("compact", "x"), "auto", "full", "A summary.", 10, None, kept))
        assert loop.cleared() == left
        assert cleared_results(loop.script.view) == frozenset(left)
        assert provider_clearing(loop.script.view, reply(len(left), 10)) is None
        loop.script.decide(CompactionUndone(Cause("compact", "undo"), cut))
        assert loop.cleared() == gone
        assert provider_clearing(loop.script.view, reply(4, 10)) is None
    later = Compacted(Cause("compact", "x"), "auto", "from", "A summary.", 10, None, None, from_message=replies[2])
    loop.script.decide(later)  # the boundary leaves the view, and two results that were cleared stay
    assert loop.cleared() == ["t0_0", "t1_0"]


@pytest.mark.requirement("L2.4")
def test_folding_a_reply_costs_the_same_however_many_calls_follow_the_boundary(
    steps_of: Callable[[Callable[[], object]], int],
):
    def steps(turns: int) -> int:
        loop = Loop(CLEARS)
        for _ in range(turns):
            loop.turn(READ)
        loop.move("t0_0")
        before = loop.script.view
        loop.turn(READ)
        entry = loop.script.entries[-2]
        after = before.fold(entry)
        assert after.clearing is not None
        assert after.clearing.kept == turns
        return steps_of(lambda: after.clearing is None or after.clearing.after_calls([READ]).edit()) + steps_of(
            lambda: before.branched().fold(entry)
        )

    steps(3)
    assert steps(200) < 1.2 * steps(50)


@pytest.mark.requirement("L2.4")
def test_a_decision_lowers_the_count_at_once_and_the_raw_count_stays():
    loop = Loop(CLEARS)
    loop.turn(READ)
    before = loop.script.view.token_count
    loop.move("t0_0")
    after = loop.script.view.token_count
    assert (before.tokens - after.tokens, after.raw_tokens) == (100, before.raw_tokens)


@pytest.mark.requirement("L2.4", "V3")
def test_the_report_on_a_boundary_is_logged_once_and_the_next_one_names_only_new_results():
    loop = Loop(CLEARS)
    for _ in range(6):
        loop.turn(READ)
    for upto, gone in (("t1_0", ["t0_0", "t1_0"]), ("t3_0", ["t2_0", "t3_0"])):
        loop.move(upto)
        loop.script.reply({"type": "text", "text": "hm"})
        count = int(upto[1]) + 1
        decision = provider_clearing(loop.script.view, reply(count, 3_000))
        assert decision is not None
        assert (decision.tool_use_ids, decision.count, decision.computed) == (gone, count, count)
        loop.script.decide(decision)
        assert provider_clearing(loop.script.view, reply(count, 3_000)) is None
        differs = provider_clearing(loop.script.view, reply(count - 1, 3_000))
        assert differs is not None
        assert (differs.shown_again, differs.computed) == ([gone[-1]], count)


# -- the price rule


def candidates(results: int, *, batch: int = 1) -> TrimCandidates:
    """Return the index of a session that reads ``batch`` files a turn."""
    script = Script()
    script.user("begin")
    for turn in range(results // batch):
        ids = [f"t{turn}_{number}" for number in range(batch)]
        script.reply(*(call(one, READ) for one in ids), id=f"m{turn}")
        for one in ids:
            script.result(one, "ab " * 5_000)
    script.reply({"type": "text", "text": "hm"}, id="last")
    found = TrimCandidates(POLICY)
    found.follow(script.view)
    return found


def facts(pending: TrimCandidates, **changes: Any) -> TrimFacts:
    rounds = len(pending.candidates)
    given: dict[str, Any] = {
        "life": "live",
        "window": pending.written,
        "raw_tokens": pending.written,
        "round": rounds,
        "turns": float(rounds),
        "rates": RelativeRates(0.05, 1.25, 2.0, 5.0),
        "least_cached": 512,
        "growth": pending.written / max(1, rounds),
        **changes,
    }
    return TrimFacts(**given)


def first_turn(**changes: Any) -> int | None:
    """Return the turn at which the rule clears first, None if it does not within 60."""
    for turn in range(4, 60):
        pending = candidates(turn)
        if plan_boundary(pending, facts(pending, **changes), POLICY) is not None:
            return turn
    return None


@pytest.mark.requirement("L2.4", "V3", "V15")
def test_a_clearing_waits_until_carrying_has_cost_as_much_at_the_models_own_price_of_reading():
    turns = [first_turn(rates=RelativeRates(read, 1.25, 2.0, 5.0)) or 0 for read in (0.1, 0.05, 0.025)]
    assert 4 < turns[0] < turns[1] < turns[2]
    assert first_turn(turns=0.0) is None  # it cannot pay any more


@pytest.mark.requirement("L2.4", "V3")
def test_the_first_clearing_pays_for_a_summary_that_cannot_read_the_cache_any_more():
    soon = candidates(1).written * 40
    at, later = first_turn(), first_turn(summary_at=10 * soon)
    assert at is not None
    assert later is not None
    assert later > at
    assert first_turn(summary_at=soon) is None
    pending = candidates(30)
    paid = facts(pending, summary_at=soon, raw_tokens=pending.written + 1)
    assert plan_boundary(pending, paid, POLICY) is not None


@pytest.mark.requirement("L2.2", "L2.4")
def test_a_cold_cache_and_a_full_window_clear_all_but_the_last_and_switches_prevent_it():
    pending = candidates(8)
    assert plan_boundary(pending, facts(pending), POLICY) is None
    cold = plan_boundary(pending, facts(pending, life="cold"), POLICY)
    full = plan_boundary(pending, facts(pending, limit=pending.written), POLICY)
    assert cold is not None
    assert full is not None
    assert (len(cold.results), len(full.results)) == (3, 5)
    off = replace(POLICY, idle=False, priced=False)
    assert plan_boundary(pending, facts(pending, life="cold"), off) is None
    assert plan_boundary(pending, facts(pending, limit=1), off) is None
    assert plan_boundary(pending, facts(pending, limit=1), TrimPolicy(mode="client")) is None


@pytest.mark.requirement("L2.4")
def test_the_results_of_one_reply_stay_together():
    pending = candidates(20, batch=4)
    planned = plan_boundary(pending, facts(pending, limit=1), POLICY)
    assert planned is not None
    assert len(planned.results) == 16
    alone = candidates(4, batch=4)
    assert plan_boundary(alone, facts(alone, limit=1), POLICY) is None


# -- a rule of the caller


CALLS = st.lists(st.tuples(st.sampled_from([READ, "Bash", MCP]), st.integers(1, 400)), max_size=14)


def conversation(calls: list[tuple[str, int]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "begin"}]
    for at, (tool, size) in enumerate(calls):
        use = {"type": "tool_use", "id": f"t{at}", "name": tool, "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{at}", "content": "word " * size}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return messages


@pytest.mark.requirement("L2.4", "V3")
@given(
    calls=CALLS,
    trigger=st.integers(1, 3_000),
    keep=st.integers(1, 6),
    least=st.integers(0, 2_000),
    excluded=st.lists(st.sampled_from([READ, "Bash", MCP]), unique=True, max_size=2),
    by_tokens=st.booleans(),
)
def test_the_computed_results_are_those_that_the_server_leaves_out(
    calls: list[tuple[str, int]], trigger: int, keep: int, least: int, excluded: list[str], by_tokens: bool
):
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": trigger} if by_tokens else {"type": "tool_uses", "value": 4},
        "keep": {"type": "tool_uses", "value": keep},
        "clear_at_least": {"type": "input_tokens", "value": least},
        "exclude_tools": excluded,
    }
    managed = {"context_management": {"edits": [edit]}}
    request: dict[str, Any] = {"model": "m", "messages": conversation(calls), **managed}
    edited = apply_context_management(request, count_tokens, facts_of("claude-opus-5-5"))
    sent, left = results_of(request), results_of(edited.request)
    gone = [called for called, content in sent.items() if left[called] != content]
    rule = ClearingRule.of(managed)
    assert rule is not None
    size = {called: count_tokens(block(called, content)) for called, content in sent.items()}
    freed = {
        called: size[called] - count_tokens(block(called, "[Tool result cleared by the server]")) for called in sent
    }
    raw = sum(count_tokens(one) for message in request["messages"] for one in blocks_of(message))
    ours = [SentCall(f"t{at}", tool) for at, (tool, _) in enumerate(calls)]
    assert results_left_out(ours, rule, input_tokens=raw, freed_tokens=freed) == gone
    forgetful = replace(rule, keep=rule.keep + 1)
    if gone:
        assert results_left_out(ours, forgetful, input_tokens=raw, freed_tokens=freed) != gone


def blocks_of(message: dict[str, Any]) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def block(called: str, content: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": called, "content": content}


def results_of(request: dict[str, Any]) -> dict[str, str]:
    found = (one for message in request["messages"] for one in blocks_of(message))
    return {one["tool_use_id"]: one["content"] for one in found if one["type"] == "tool_result"}


# -- the report in the log


def reply(count: int, tokens: int, billed: int = 5_000) -> dict[str, Any]:
    edit = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": count, "cleared_input_tokens": tokens}
    usage = {"input_tokens": billed, "output_tokens": 5}
    return {"usage": usage, "context_management": {"applied_edits": [edit] if count else []}}


def script(keep: int = 2, trigger: int = 6_000) -> Script:
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": trigger},
        "keep": {"type": "tool_uses", "value": keep},
        "exclude_tools": ["Agent"],
    }
    made = Script()
    options = {"max_tokens": 10, "context_management": {"edits": [edit]}}
    made.decide(PrefixRendered(Cause("request", "first"), "m", None, [], options))
    made.user("begin")
    for at in range(5):
        made.reply(call(f"t{at}", "Agent" if at == 1 else "Read", file_path=f"/{at}"), id=f"m{at}")
        made.result(f"t{at}", "word " * 1_000)
    made.reply({"type": "text", "text": "done"}, id="m-last")
    return made


@pytest.mark.requirement("L2.4", "V3")
def test_a_report_is_logged_once_with_the_handles_of_the_oldest_results():
    log = script()
    decision = provider_clearing(log.view, reply(2, 3_000))
    assert decision is not None
    assert decision.tool_use_ids == ["t0", "t2"]
    assert (decision.count, decision.computed, decision.tokens) == (2, 2, 3_000)
    assert "Read /0 handle: t0; Read /2 handle: t2" in decision.text
    log.decide(decision)
    assert provider_clearing(log.view, reply(2, 3_000)) is None
    assert "handle: t0" in str(log.view.messages()[-1])


@pytest.mark.requirement("L2.4", "V3")
@pytest.mark.parametrize(("count", "gone"), [(1, ["t0"]), (3, ["t0", "t2", "t3"]), (0, [])])
def test_a_count_that_differs_is_believed_and_the_log_says_so(count: int, gone: list[str]):
    log = script()
    decision = provider_clearing(log.view, reply(count, 3_000, 9_000 - 3_000 * bool(count)))
    assert decision is not None
    assert decision.tool_use_ids == gone
    assert (decision.count, decision.computed) == (count, 2)
    assert "its rule leaves out 2 by our calculation" in decision.cause.reason
    log.decide(decision)
    assert provider_clearing(log.view, reply(count, 3_000, 9_000 - 3_000 * bool(count))) is None


@pytest.mark.requirement("L2.4", "L2.7")
def test_results_that_the_provider_shows_again_are_back_and_nothing_is_said_of_a_request_below_the_trigger():
    log = script()
    assert provider_clearing(log.view, reply(0, 0)) is None
    log.decide(ResultsClearedByProvider(Cause("trim", "x"), ["t0", "t2"], "handles", 3_000, 2, 2))
    decision = provider_clearing(log.view, reply(0, 0))
    assert decision is not None
    assert (decision.tool_use_ids, decision.shown_again, decision.text) == ([], ["t0", "t2"], "")
    assert decision.cause.reason == "the provider shows 2 results again"
    log.decide(decision)
    assert log.view.facts.cleared_by_provider == frozenset()
    assert provider_clearing(log.view, reply(0, 0)) is None


def test_cleared_results_that_left_the_view_are_not_called_shown_again():
    log = script()
    log.decide(ResultsClearedByProvider(Cause("trim", "x"), ["gone"], "handles", 3_000, 1, 1))
    assert provider_clearing(log.view, reply(0, 0)) is None
