"""The scripted model answers like a provider: in pieces, with usage, with refusals."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from reverie.conversation.wire.validate import problems
from reverie.errors import ModelRefused, ModelUnavailable, PromptTooLong, ReplyBroken
from reverie.models import BrokenReply, ScriptedModel
from reverie.ports import Capabilities, Model, Reply, ReplyDelta

Run = Callable[[Coroutine[Any, Any, Any]], Any]
MARK = {"cache_control": {"type": "ephemeral"}}


def request(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [
        {"role": roles[at % 2], "content": [{"type": "text", "text": text, **(MARK if at == len(texts) - 1 else {})}]}
        for at, text in enumerate(texts)
    ]
    return {"model": "model", "max_tokens": 100, "messages": messages}


def test_it_is_a_model_and_streams_what_it_says_in_pieces(run: Run) -> None:
    call = {"type": "tool_use", "name": "Read", "input": {"path": "a"}}
    said = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "x" * 50}, call]
    model: Model = ScriptedModel([said], piece_chars=20)

    async def steps() -> list[ReplyDelta | Reply]:
        return [part async for part in model.stream(request("Hello?"))]

    *pieces, reply = run(steps())
    assert pieces == [
        ReplyDelta("thinking", "Hm."),
        ReplyDelta("text", "x" * 20),
        ReplyDelta("text", "x" * 20),
        ReplyDelta("text", "x" * 10),
        ReplyDelta("tool", "Read"),
    ]
    assert reply.body["stop_reason"] == "tool_use"
    assert reply.body["content"][2]["id"]
    again = {**request("Hello?"), "tools": [{"name": "Read", "input_schema": {"type": "object"}}]}
    again["messages"] += [
        {"role": "assistant", "content": reply.body["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": reply.body["content"][2]["id"]}]},
    ]
    assert problems(again) == []


def test_usage_is_that_of_a_prompt_cache(run: Run) -> None:
    now = [0.0]
    model = ScriptedModel(lambda asked: "Hi.", clock=lambda: now[0])

    async def steps() -> list[dict[str, Any]]:
        first = await model.complete(request("One. " * 100))
        second = await model.complete(request("One. " * 100, "Hi.", "Two."))
        now[0] = 301.0
        third = await model.complete(request("One. " * 100, "Hi.", "Two.", "Hi.", "Three."))
        return [reply.body["usage"] for reply in (first, second, third)]

    first, second, third = run(steps())
    assert first["cache_read_input_tokens"] == 0
    assert first["cache_creation_input_tokens"] > 100
    assert second["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
    assert third["cache_read_input_tokens"] == 0
    assert len(model.requests) == 3


def test_a_function_may_wait_and_may_answer_with_an_error(run: Run) -> None:
    async def answer(asked: dict[str, Any]) -> Any:
        return ModelUnavailable("away") if asked["max_tokens"] == 1 else {"content": "cut", "stop_reason": "max_tokens"}

    model = ScriptedModel(answer)
    with pytest.raises(ModelUnavailable):
        run(model.complete({**request("x"), "max_tokens": 1}))
    assert run(model.complete(request("x"))).body["stop_reason"] == "max_tokens"


def test_a_script_at_its_end_and_a_reply_that_breaks_are_errors(run: Run) -> None:
    model = ScriptedModel([BrokenReply("some words that are never finished", 1)])
    with pytest.raises(ReplyBroken):
        run(model.complete(request("x")))
    with pytest.raises(ModelRefused, match="no reply for request 2"):
        run(model.complete(request("x")))


def test_what_does_not_fit_its_window_is_refused(run: Run) -> None:
    model = ScriptedModel(["never"], capabilities=Capabilities(window=50))
    with pytest.raises(PromptTooLong) as caught:
        run(model.complete(request("word " * 100)))
    assert caught.value.limit == 50
