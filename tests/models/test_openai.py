"""The OpenAI adapter, through the official SDK, against servers that answer with any bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from reverie.errors import ModelUnauthorized, ModelUnavailable, ModelUnknown, PromptTooLong, ReplyBroken
from reverie.models.openai import OpenAIModel
from reverie.ports import Reply, ReplyDelta

Run = Callable[[Coroutine[Any, Any, Any]], Any]
ASKED = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello?"}]}
JSON = {"content-type": "application/json"}


def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def sse(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in chunks) + b"data: [DONE]\n\n"


FUNCTION = {"name": "Read", "arguments": '{"path": "ä"}'}
BODY = sse(
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "Hm."}),
    chunk({"content": "Hello, "}),
    chunk({"content": "ä🙂."}),
    chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": FUNCTION}]}),
    chunk({}, "tool_calls"),
    {
        "choices": [],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}},
    },
)
CONTENT = [
    {"type": "thinking", "thinking": "Hm.", "signature": "openai:reasoning_content"},
    {"type": "text", "text": "Hello, ä🙂."},
    {"type": "tool_use", "id": "call_1", "name": "Read", "input": {"path": "ä"}},
]


def model_at(canned: Any, model_id: str = "m", **more: Any) -> OpenAIModel:
    return OpenAIModel(model_id, base_url=f"{canned.base_url}/v1", **more)


def test_a_stream_gives_pieces_and_last_the_whole_reply(run: Run, serving: Any) -> None:
    async def steps() -> None:
        async with serving([{"body": BODY}]) as canned:
            model = model_at(canned)
            parts = [part async for part in model.stream({**ASKED, "extra_headers": {"x-own": "1"}})]
            assert parts[:-1] == [
                ReplyDelta("thinking", "Hm."),
                ReplyDelta("text", "Hello, "),
                ReplyDelta("text", "ä🙂."),
                ReplyDelta("tool", "Read"),
            ]
            assert isinstance(parts[-1], Reply)
            assert parts[-1].body["content"] == CONTENT
            assert parts[-1].body["usage"]["cache_read_input_tokens"] == 8
            assert canned.paths == ["/v1/chat/completions"]
            assert canned.requests[0]["stream_options"] == {"include_usage": True}
            assert canned.requests[0]["max_tokens"] == 100
            await model.aclose()
            await model.aclose()

    run(steps())


@pytest.mark.requirement("Q7")
def test_a_stream_cut_at_any_byte_is_never_a_reply(run: Run, serving: Any, seed: int, torture: bool) -> None:
    rng = Random(seed)
    cuts = [rng.randrange(len(BODY)) for _ in range(1_000 if torture else 100)]

    async def steps() -> None:
        async with serving([{"body": BODY, "cut": cut} for cut in cuts]) as canned:
            model = model_at(canned)
            broken, half = 0, 0
            for cut in cuts:
                parts: list[ReplyDelta | Reply] = []
                try:
                    async for part in model.stream(ASKED):
                        parts.append(part)
                except ReplyBroken:
                    broken += 1
                    half += bool(parts)
                    assert not any(isinstance(part, Reply) for part in parts), f"a reply and an error after {cut} bytes"
                    continue
                # Only the line end after [DONE] may be missing.
                assert cut >= len(BODY) - 1
                assert isinstance(parts[-1], Reply)
                assert parts[-1].body["content"] == CONTENT
            assert broken > 90
            assert half > 25
            await model.aclose()

    run(steps())


def test_refusals_are_translated(run: Run, serving: Any) -> None:
    long = "This model's maximum context length is 8 tokens. However, your messages resulted in 9 tokens."
    too_long = json.dumps({"error": {"message": long, "code": "context_length_exceeded"}}).encode()
    answers = [
        {"status": 429, "body": b'{"error": {"message": "slow down"}}', "headers": {**JSON, "retry-after": "4"}},
        {"status": 400, "body": too_long, "headers": JSON},
        {"status": 401, "body": b'{"error": {"message": "no key"}}', "headers": JSON},
        {"status": 404, "body": b'{"error": {"message": "no model"}}', "headers": JSON},
        {"status": 503, "body": b"<html>", "headers": {"content-type": "text/html"}},
    ]

    async def steps() -> None:
        async with serving(answers) as canned:
            model = model_at(canned)
            with pytest.raises(ModelUnavailable) as slow:
                await model.complete(ASKED)
            assert slow.value.retry_after == 4.0
            with pytest.raises(PromptTooLong) as caught:
                await model.complete(ASKED)
            assert (caught.value.tokens, caught.value.limit) == (9, 8)
            for kind in (ModelUnauthorized, ModelUnknown, ModelUnavailable):
                with pytest.raises(kind):
                    await model.complete(ASKED)
            assert len(canned.requests) == len(answers)
            await model.aclose()

    run(steps())


def test_the_only_model_of_a_server_needs_no_name(run: Run, serving: Any) -> None:
    one = {
        "body": json.dumps({"object": "list", "data": [{"id": "qwen", "object": "model"}]}).encode(),
        "headers": JSON,
    }
    two = {"body": json.dumps({"object": "list", "data": [{"id": "a"}, {"id": "b"}]}).encode(), "headers": JSON}
    asked = {**ASKED, "model": "default"}

    async def steps() -> None:
        async with serving([one, {"body": BODY}, {"body": BODY}, two]) as canned:
            model = model_at(canned, "default")
            await model.complete(asked)
            await model.complete(asked)
            assert [sent.get("model") for sent in canned.requests] == [None, "qwen", "qwen"]
            await model.aclose()
            other = model_at(canned, "default")
            with pytest.raises(ModelUnknown, match="openai:a, openai:b"):
                await other.complete(asked)
            await other.aclose()

    run(steps())


def test_cancelling_the_reader_closes_the_response(run: Run, serving: Any) -> None:
    async def steps() -> None:
        async with serving([{"body": BODY, "cut": 300, "hang": True}]) as canned:
            model = model_at(canned)
            seen = asyncio.Event()

            async def read() -> None:
                async for _ in model.stream(ASKED):
                    seen.set()

            task = asyncio.create_task(read())
            await asyncio.wait_for(seen.wait(), 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(canned.closed.wait(), 60)
            await model.aclose()

    run(steps())


def test_a_completion_in_one_piece_is_understood(run: Run, serving: Any) -> None:
    message = {"role": "assistant", "content": "Hi", "tool_calls": [{"id": "x", "function": FUNCTION}]}
    whole = {"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    async def steps() -> None:
        async with serving([{"body": json.dumps(whole).encode(), "headers": JSON}]) as canned:
            model = model_at(canned)
            body = (await model.complete(ASKED)).body
            assert body["content"] == [
                {"type": "text", "text": "Hi"},
                {"type": "tool_use", "id": "x", "name": "Read", "input": {"path": "ä"}},
            ]
            assert body["stop_reason"] == "tool_use"
            await model.aclose()

    run(steps())


def test_openai_itself_needs_a_key_and_a_server_of_ones_own_does_not(run: Run) -> None:
    async def steps() -> None:
        model = OpenAIModel("gpt-5.5", environ={})
        with pytest.raises(ModelUnauthorized):
            await model.complete(ASKED)
        await model.aclose()
        away = OpenAIModel("m", base_url="http://127.0.0.1:9/v1")
        with pytest.raises(ModelUnavailable):
            await away.complete(ASKED)
        await away.aclose()

    run(steps())


def test_capabilities_are_the_given_window_or_the_tables() -> None:
    assert OpenAIModel("qwen3-of-mine", window=32_768).capabilities.window == 32_768
    known = OpenAIModel("gpt-4o").capabilities
    assert known.window
    assert not known.caching
