"""Clearing by the provider: the declared parameters, the computed results, and the report in the log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, call
from reverie.cache.economics import RelativeRates
from reverie.conversation.decisions import Cause, PrefixRendered, ResultsClearedByProvider
from reverie.conversation.wire.options import options_of
from reverie.layers.l2_trim import (
    ClearingRule,
    SentCall,
    TrimPolicy,
    clearing_option,
    payback_turns,
    provider_clearing,
    results_left_out,
)
from reverie.model_facts import facts_of
from reverie.testing.messages_server.edits import apply_context_management
from reverie.testing.messages_server.token_count import count_block_tokens as count_tokens
from reverie.values import replace

POLICY = TrimPolicy()
RATES = RelativeRates(0.05, 1.25, 2.0, 5.0)
READ, MCP = "Read", "mcp__x__y"


def option(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "compact_at": 967_000,
        "tools": [READ, MCP, "Agent"],
        "thinking": True,
        "rates": RATES,
        **changes,
    }
    return clearing_option(given.pop("policy", POLICY), **given)


@pytest.mark.requirement("L2.4", "V3")
@pytest.mark.parametrize(
    ("read", "turns", "least"), [(0.1, 11.5, 133_981), (0.05, 24.0, 214_888), (0.025, 49.0, 299_892)]
)
def test_a_clearing_pays_at_the_models_own_price_of_reading_the_cache(read: float, turns: float, least: int):
    rates = RelativeRates(read, 1.25, 2.0, 5.0)
    assert payback_turns(rates) == pytest.approx(turns)
    thinking, results = option(rates=rates)["edits"]
    assert thinking == {"type": "clear_thinking_20251015", "keep": "all"}
    assert results == {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 483_500},
        "keep": {"type": "tool_uses", "value": 5},
        "clear_at_least": {"type": "input_tokens", "value": least},
        "exclude_tools": ["Agent", MCP],
    }
    rewritten = 483_500 - least
    assert read * least * POLICY.provider_turns >= (1.25 - read) * rewritten * 0.999


@pytest.mark.requirement("L2.4")
def test_the_number_to_keep_follows_window_and_batch_and_never_shrinks():
    def kept(**changes: Any) -> int:
        rule = ClearingRule.of({"context_management": option(**changes)})
        assert rule is not None
        return rule.keep

    assert [kept(compact_at=tokens) for tokens in (10_000, 45_000, 167_000, 967_000)] == [1, 2, 5, 5]
    assert kept(batch=20) == 20
    before = {"context_management": option(batch=20)}
    assert kept(batch=1, before=before) == 20
    assert option(batch=1, before=before) == option(batch=7, before=before)


@pytest.mark.requirement("L2.4")
def test_the_option_is_one_that_a_request_may_have():
    asked = {"max_tokens": 100, "context_management": option()}
    for body in (asked, {**asked, "thinking": {"type": "adaptive"}}):
        prefix = PrefixRendered(Cause("request", "first"), "m", None, [], body)
        assert options_of(prefix, []) == body


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
    decision = provider_clearing(log.view, reply(0, 0))
    assert decision is not None
    assert decision.cause.reason == "1 result that the provider had cleared left the view"
