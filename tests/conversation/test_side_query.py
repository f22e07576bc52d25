"""Side queries: options that the model accepts, no forced tool, and room for thinking beside the answer."""

from __future__ import annotations

from typing import Any

import pytest

from pictures import image_block, pdf, pdf_block, png
from reverie.conversation.decisions import Cause, PrefixRendered, body_of
from reverie.conversation.entries import DECISION, USER, Entry
from reverie.conversation.fork import ForkBase
from reverie.conversation.side_query import THINKING_ROOM, adapted, answer_problem, answer_text, side_request, thinks
from reverie.conversation.view import View
from reverie.conversation.wire.validate import problems
from reverie.model_facts import ModelFacts, facts_of, known_facts

ASK: list[dict[str, Any]] = [{"role": "user", "content": "Which?"}]
TOOL: dict[str, Any] = {"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"thinking": {"type": "disabled"}},
    {"thinking": {"type": "between_tools"}},
    {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
    {"thinking": {"type": "enabled", "budget_tokens": 1_024}},
    {"tool_choice": {"type": "any"}},
    {"tool_choice": {"type": "tool", "name": "Read"}, "temperature": 0.5, "top_k": 3},
    {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "high"}},
    {"output_config": {"effort": "xhigh"}},
    {"output_config": {"effort": "max"}, "thinking": {"type": "disabled"}},
    {"context_management": {"edits": [{"type": "compact_20260112"}]}},
    {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}, {"type": "clear_thinking_20251015"}]}},
]


def named(facts: ModelFacts) -> str:
    """Return the name of a model with these facts."""
    return facts.match[0].replace("*", "").replace("[0-9]", "3").replace("[6-9]", "6").replace("[1-5]", "1") or "other"


def forked(options: dict[str, Any], facts: ModelFacts, *, parent: str = "") -> dict[str, Any]:
    """Return the request of a fork of a conversation with these options, on a model with these facts."""
    name = named(facts)
    given = {"max_tokens": 4_000, **options}
    prefix = PrefixRendered(Cause("test", ""), parent or name, "Careful.", [TOOL], given, checked=True)
    view = View().fold_all(
        [
            Entry("p", None, "", "", DECISION, body_of(prefix)),
            Entry("u", "p", "", "", USER, {"message": {"role": "user", "content": "Hello."}}),
        ]
    )
    base = ForkBase(view, name, facts, 300)
    return base.request(base.branch("Who?", source="test"))


@pytest.mark.requirement("V9")
@pytest.mark.parametrize("facts", known_facts(), ids=lambda row: row.name)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "none")
def test_a_fork_sends_no_option_that_its_model_refuses(options: dict[str, Any], facts: ModelFacts) -> None:
    request = forked(options, facts, parent="claude-sonnet-4-5")
    assert request["model"] == named(facts)
    assert problems(request) == []
    assert request.get("tool_choice", {}).get("type") not in ("any", "tool")
    assert request.get("thinking", {}).get("type") in (None, *facts.thinking)
    assert "format" not in request.get("output_config", {})
    if not facts.sampling:
        assert request.keys().isdisjoint({"temperature", "top_p", "top_k"})


@pytest.mark.requirement("V9")
@pytest.mark.parametrize(
    ("model", "thinking", "room"),
    [
        ("claude-sonnet-4-5", None, 0),
        ("claude-sonnet-4-5", {"type": "enabled", "budget_tokens": 2_000}, 2_000),
        ("claude-opus-4-8", None, 0),
        ("claude-opus-4-8", {"type": "adaptive"}, THINKING_ROOM),
        ("claude-opus-5", None, THINKING_ROOM),
        ("claude-opus-5", {"type": "disabled"}, 0),
        ("claude-opus-5-5", None, THINKING_ROOM),
        ("claude-opus-5-5", {"type": "disabled"}, THINKING_ROOM),  # it cannot be off there
        ("claude-of-tomorrow", None, THINKING_ROOM),
        ("gpt-6-astra", {"type": "disabled"}, THINKING_ROOM),
        ("qwen3", None, 0),
    ],
)
def test_the_output_limit_holds_the_answer_and_the_thinking(
    model: str, thinking: dict[str, Any] | None, room: int
) -> None:
    facts = facts_of(model)
    request = {"messages": ASK, **({"thinking": thinking} if thinking else {})}
    assert adapted(request, facts, answer_tokens=300)["max_tokens"] == 300 + room
    assert adapted(request, facts, answer_tokens=10**9)["max_tokens"] == facts.max_output_tokens


@pytest.mark.requirement("V9")
@pytest.mark.parametrize("facts", known_facts(), ids=lambda row: row.name)
def test_a_query_of_its_own_thinks_only_where_that_cannot_be_turned_off(facts: ModelFacts) -> None:
    request = side_request(facts, ASK, model=named(facts), answer_tokens=100, system="Short.")
    assert problems(request) == []
    assert request["messages"] == ASK
    can_be_off = {"disabled", "between_tools"} & set(facts.thinking)
    assert thinks(request, facts) is (facts.thinking_by_default and not can_be_off)


@pytest.mark.requirement("V9", "V16")
def test_a_fork_on_another_model_strips_no_thinking() -> None:
    facts = facts_of("claude-haiku-4-5")
    said = [{"type": "thinking", "thinking": "", "signature": "s"}, {"type": "text", "text": "Hi."}]
    view = View().fold_all(
        [
            Entry("u", None, "", "", USER, {"message": {"role": "user", "content": "Hello."}}),
            Entry("a", "u", "", "", "assistant", {"message": {"role": "assistant", "content": said}}),
        ]
    )
    base = ForkBase(view, "claude-haiku-4-5", facts, 300)
    assert base.request(base.branch("Who?", source="test"))["messages"][1]["content"] == said


@pytest.mark.requirement("V8", "V9")
def test_a_fork_on_a_model_that_takes_fewer_pages_and_images_has_text_in_place_of_the_rest() -> None:
    said = [pdf_block(pdf(150)), image_block(png(1, 1)), {"type": "text", "text": "Look."}]
    parent = facts_of("claude-sonnet-5")
    prefix = PrefixRendered(Cause("request", "first"), "claude-sonnet-5", "", [], {}, max_images=parent.max_images)
    view = View().fold_all(
        [
            Entry("p", None, "", "", DECISION, body_of(prefix)),
            Entry("u", "p", "", "", USER, {"message": {"role": "user", "content": said}}),
        ]
    )
    facts = facts_of("claude-haiku-4-5")
    base = ForkBase(view, "claude-haiku-4-5", facts, 300)
    request = base.request(base.branch("Who?", source="test"))
    assert problems(request, facts=facts) == []
    assert [block["type"] for block in request["messages"][0]["content"]] == ["text", "image", "text", "text"]


@pytest.mark.requirement("V9")
@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ({"content": "Yes.", "stop_reason": "end_turn"}, ""),
        ({"content": [{"type": "text", "text": "Yes, a par"}], "stop_reason": "max_tokens"}, ""),
        ({"content": [{"type": "text", "text": "Yes."}], "stop_reason": "refusal"}, "declined"),
        ({"content": [], "stop_reason": "refusal", "stop_details": {"category": "cyber"}}, "(cyber)"),
        ({"content": [], "stop_reason": "refusal", "stop_details": None}, "declined"),
        ({"content": [{"type": "thinking", "thinking": "Hm."}], "stop_reason": "max_tokens"}, "limit"),
        ({"content": [{"type": "tool_use", "name": "Read"}], "stop_reason": "tool_use"}, "called a tool"),
        ({"content": [{"type": "text", "text": " \n"}], "stop_reason": "end_turn"}, "no text"),
        ({"content": None}, "no text"),
        ({"content": ["bare", 3, {"type": "text", "text": 7}]}, "no text"),
    ],
)
def test_a_reply_without_an_answer_says_why(reply: dict[str, Any], problem: str) -> None:
    found = answer_problem(reply, answer_text(reply["content"]))
    assert (problem in found) if problem else found == ""
