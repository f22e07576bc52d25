"""The Anthropic adapter, through the official SDK, against the Messages API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from random import Random
from typing import Any

import pytest

from reverie.conversation.wire.validate import problems
from reverie.errors import (
    ModelError,
    ModelRefused,
    ModelUnauthorized,
    ModelUnavailable,
    ModelUnknown,
    PromptTooLong,
    ReplyBroken,
)
from reverie.models.anthropic import AnthropicModel, wire_request
from reverie.models.retries import Retry, RetryingModel
from reverie.ports import Reply, ReplyDelta
from reverie.testing.messages_server import MessagesServer
from reverie.testing.messages_server import ServerReply as Scripted

MODEL = "claude-sonnet-5"
SHOWN = {"type": "adaptive", "display": "summarized"}
Run = Callable[[Coroutine[Any, Any, Any]], Any]
THOUGHT = {"type": "thinking", "thinking": "The user says hello, so I greet them."}
CALL = {"type": "tool_use", "name": "Read", "input": {"path": "ä/b.py", "lines": [1, 2.5, None]}}
SAID: list[Any] = [THOUGHT, {"type": "text", "text": "Hello, I will look into this file now: ä🙂."}, CALL]
TOOLS = [{"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}]


def request(**more: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "max_tokens": 1_000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello?"}]}],
        "tools": TOOLS,
        **more,
    }


def reply_for(asked: dict[str, Any]) -> Any:
    last = asked["messages"][-1]["content"]
    text = last if isinstance(last, str) else last[-1].get("text", "")
    if text == "Shout.":
        return Scripted("A long text. " * 200)
    return [dict(block) for block in SAID]


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer(reply_for, window=20_000) as running:
        yield running
        assert running.errors == []


def model_at(server: MessagesServer, **more: Any) -> AnthropicModel:
    return AnthropicModel(MODEL, base_url=server.base_url, api_key="any", **more)


def bare(part: ReplyDelta | Reply) -> list[dict[str, Any]]:
    """Return what the script said of a reply, without what the server added."""
    assert isinstance(part, Reply)
    added = ("id", "signature")
    return [{key: value for key, value in block.items() if key not in added} for block in part.body["content"]]


async def parts_of(model: Any, asked: dict[str, Any]) -> list[ReplyDelta | Reply]:
    async with aclosing(model.stream(asked)) as parts:
        return [part async for part in parts]


@pytest.mark.slow
def test_a_stream_gives_pieces_and_last_the_whole_reply(server: MessagesServer, run: Run) -> None:
    async def steps() -> None:
        model = model_at(server)
        parts = await parts_of(model, request(thinking=SHOWN))
        *pieces, reply = parts
        assert isinstance(reply, Reply)
        assert all(isinstance(piece, ReplyDelta) for piece in pieces)
        shown = [piece for piece in pieces if isinstance(piece, ReplyDelta)]
        assert "".join(piece.text for piece in shown if piece.kind == "text") == SAID[1]["text"]
        assert "".join(piece.text for piece in shown if piece.kind == "thinking") == THOUGHT["thinking"]
        assert ReplyDelta("tool", "Read") in shown
        body = reply.body
        assert body["content"][2]["input"] == CALL["input"]
        assert body["stop_reason"] == "tool_use"
        assert body["usage"]["output_tokens"] > 0
        assert body["usage"]["input_tokens"] > 0
        assert model.name == f"anthropic:{MODEL}"
        await model.aclose()
        await model.aclose()

    run(steps())


def test_a_request_goes_out_as_it_stands_and_thinking_comes_back_as_it_was_signed(
    server: MessagesServer, run: Run
) -> None:
    async def steps() -> None:
        model = model_at(server)
        first = await model.complete(request())
        result = {"type": "tool_result", "tool_use_id": first.body["content"][2]["id"], "content": "x"}
        mark = {"type": "ephemeral", "ttl": "1h"}
        asked = request(
            system=[{"type": "text", "text": "Be brief.", "cache_control": mark}],
            thinking={"type": "adaptive"},
            max_tokens=2_000,
            context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
            diagnostics={"previous_message_id": first.body["id"]},
        )
        # The server refuses thinking that is not, byte for byte, what it signed.
        asked["messages"] += [
            {"role": "assistant", "content": first.body["content"]},
            {
                "role": "user",
                "content": [result, {"type": "text", "text": "Go on.", "cache_control": {**mark, "ttl": "5m"}}],
            },
        ]
        before = json.dumps(asked)
        second = await model.complete(asked)
        assert json.dumps(asked) == before
        sent = dict(server.requests[-1])
        assert sent.pop("stream") is True
        assert json.dumps(sent) == before
        assert second.body["context_management"] == {"applied_edits": []}
        assert "diagnostics" in second.body
        await model.aclose()

    run(steps())


def test_betas_are_named_for_the_fields_that_need_them() -> None:
    edits = {"edits": [{"type": "clear_tool_uses_20250919"}, {"type": "compact_20260112"}]}
    body, headers = wire_request(
        {
            "model": "claude-sonnet-4-5[1m]",
            "betas": ["files-api-2025-04-14"],
            "extra_headers": {"Anthropic-Beta": "a-1, b-2", "X-Own": "1"},
            "extra_body": {"temperature": 0.5},
            "context_management": edits,
            "diagnostics": {"previous_message_id": None},
        }
    )
    named = headers["anthropic-beta"].split(",")
    assert named[:3] == ["a-1", "b-2", "files-api-2025-04-14"]
    assert {"context-management-2025-06-27", "compact-2026-01-12", "cache-diagnosis-2026-04-07"} < set(named)
    assert "context-1m-2025-08-07" in named
    assert headers["x-own"] == "1"
    assert body["model"] == "claude-sonnet-4-5"
    assert body["temperature"] == 0.5
    assert body["context_management"] is edits
    assert not body.keys() & {"betas", "extra_headers", "extra_body"}
    assert wire_request(request())[1] == {}


@pytest.mark.requirement("V10")
@pytest.mark.parametrize("option", [{"temperature": 0.5}, {"top_p": 0.9}, {"top_k": 5}])
def test_a_sampling_option_is_sent_with_the_api_version_that_takes_it(option: dict[str, Any]) -> None:
    older = request(model="claude-sonnet-4-5", **option)
    assert wire_request(older)[1]["anthropic-version"] == "2023-06-01"
    given = {**older, "extra_headers": {"anthropic-version": "2026-10-21"}}
    assert wire_request(given)[1]["anthropic-version"] == "2026-10-21"
    body = wire_request(older)[0]
    assert [problem.path for problem in problems(body, version="2026-10-21")] == list(option)
    assert problems(body, version="2023-06-01") == []


def system(**fields: Any) -> dict[str, Any]:
    return {"role": "system", "content": "Be brief.", **fields}


def tool_change(tool: dict[str, Any], kind: str = "tool_addition") -> list[dict[str, Any]]:
    return [{"role": "system", "content": [{"type": kind, "tool": tool}]}]


SIGNED = {"type": "compaction", "content": "A summary.", "signature": "s"}
REFERENCE = {"type": "tool_reference", "name": "Read"}
TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "files"}


@pytest.mark.requirement("V10")
@pytest.mark.parametrize(
    ("fields", "betas"),
    [
        ({"compaction": {"type": "summarize"}}, ["compact-2026-09-04"]),
        ({"messages": [{"role": "assistant", "content": [SIGNED]}]}, ["compact-2026-09-04"]),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "compaction", "content": "x"}]}]},
            ["compact-2026-01-12"],
        ),
        ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, ["compact-2026-01-12"]),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, ["context-management-2025-06-27"]),
        (
            {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}},
            ["thinking-binding-controls-2026-08-01"],
        ),
        ({"thinking": {"type": "adaptive", "display": "updates"}}, ["thinking-display-updates-2026-08-18"]),
        (
            {"messages": [system(clear_at="next_user_message")]},
            ["mid-conversation-system-clear-at-2026-08-21"],
        ),
        (
            {"messages": [system(output_config={"effort": "low"})]},
            ["mid-conversation-output-config-2026-07-01"],
        ),
        ({"messages": tool_change(REFERENCE)}, ["mid-conversation-tool-changes-2026-07-01"]),
        ({"messages": tool_change(REFERENCE, "tool_removal")}, ["mid-conversation-tool-changes-2026-07-01"]),
        ({"messages": tool_change({"type": "tool_definition", "definition": TOOLS[0]})}, ["inline-tools-2026-09-15"]),
        (
            {"messages": tool_change({"type": "tool_definition", "definition": TOOLSET})},
            ["inline-tools-2026-09-15", "mcp-client-2026-09-15"],
        ),
        ({"diagnostics": {"previous_message_id": None}}, ["cache-diagnosis-2026-04-07"]),
        ({"output_config": {"task_budget": {"type": "tokens", "total": 9}}}, ["task-budgets-2026-03-13"]),
        ({"fallbacks": "default"}, ["server-side-fallback-2026-07-01"]),
        ({"fallbacks": [{"model": "m"}]}, ["server-side-fallback-2026-06-01"]),
        ({"mcp_servers": [{"type": "url", "name": "a", "url": "https://a"}]}, ["mcp-client-2025-11-20"]),
        ({"messages": [system()]}, []),
        ({"thinking": {"type": "adaptive"}}, []),
        ({"output_config": {"effort": "low"}}, []),
    ],
)
def test_each_field_brings_its_beta_and_no_other(fields: dict[str, Any], betas: list[str]) -> None:
    named = wire_request(request(**fields))[1].get("anthropic-beta", "")
    assert [beta for beta in named.split(",") if beta] == betas


@pytest.mark.requirement("V10")
def test_a_beta_that_does_the_same_is_not_named_twice() -> None:
    asked = request(messages=tool_change(REFERENCE), betas=["inline-tools-2026-09-15"])
    assert wire_request(asked)[1]["anthropic-beta"] == "inline-tools-2026-09-15"


@pytest.mark.requirement("V10")
def test_the_beta_of_a_million_tokens_is_named_only_where_the_window_is_smaller_without_it() -> None:
    assert wire_request(request(model="claude-sonnet-5[1m]"))[1] == {}
    assert wire_request(request(model="claude-sonnet-4-5[1m]"))[1]["anthropic-beta"] == "context-1m-2025-08-07"


@pytest.mark.requirement("V10")
def test_sampling_options_go_out_with_the_last_api_version_that_knows_them() -> None:
    assert wire_request(request(temperature=0.5))[1]["anthropic-version"] == "2023-06-01"
    assert "anthropic-version" not in wire_request(request())[1]


@pytest.mark.requirement("V10")
def test_a_request_that_only_fills_the_cache_is_not_streamed() -> None:
    assert "stream" not in wire_request(request(max_tokens=0))[0]
    assert wire_request(request(max_tokens=1))[0]["stream"] is True


@pytest.mark.requirement("Q7")
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 529])
def test_overload_is_unavailable_and_says_when_to_come_back(server: MessagesServer, run: Run, status: int) -> None:
    async def steps() -> None:
        model = model_at(server)
        sent = len(server.requests)
        server.fail(status, retry_after=7)
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(request())
        assert caught.value.status == status
        assert caught.value.retry_after == 7.0
        assert len(server.requests) == sent + 1  # the SDK did not try again by itself
        await model.aclose()

    run(steps())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelRefused),
        (401, ModelUnauthorized),
        (403, ModelUnauthorized),
        (404, ModelUnknown),
        (413, PromptTooLong),
    ],
)
def test_a_refusal_has_its_own_name(server: MessagesServer, run: Run, status: int, kind: type[ModelError]) -> None:
    async def steps() -> None:
        model = model_at(server)
        server.fail(status)
        with pytest.raises(kind):
            await model.complete(request())
        await model.aclose()

    run(steps())


def test_a_prompt_that_is_too_long_says_by_how_much(server: MessagesServer, run: Run) -> None:
    async def steps() -> None:
        model = model_at(server)
        with pytest.raises(PromptTooLong) as caught:
            await model.complete(request(messages=[{"role": "user", "content": "word " * 20_000}]))
        assert caught.value.limit == 20_000
        assert caught.value.tokens is not None
        assert caught.value.tokens > 20_000
        await model.aclose()

    run(steps())


def test_output_that_was_cut_off_says_so(server: MessagesServer, run: Run) -> None:
    async def steps() -> None:
        model = model_at(server)
        asked = request(max_tokens=50, messages=[{"role": "user", "content": "Shout."}])
        reply = await model.complete(asked)
        assert reply.body["stop_reason"] == "max_tokens"
        assert reply.body["content"][0]["text"].startswith("A long text.")
        await model.aclose()

    run(steps())


@pytest.mark.requirement("Q7")
def test_a_stream_cut_at_any_byte_is_never_a_reply(server: MessagesServer, run: Run, seed: int, torture: bool) -> None:
    rng = Random(seed)

    async def steps() -> None:
        model = model_at(server)
        whole = 3_000  # the bytes of this reply's events, and some more
        broken, half = 0, 0
        for _ in range(1_000 if torture else 100):
            at = rng.randrange(whole)
            server.cut_stream(at)
            parts: list[ReplyDelta | Reply] = []
            try:
                async with aclosing(model.stream(request(thinking=SHOWN))) as stream:
                    async for part in stream:
                        parts.append(part)
            except ReplyBroken:
                broken += 1
                half += bool(parts)
                assert not any(isinstance(part, Reply) for part in parts), f"a reply and an error after {at} bytes"
                continue
            assert bare(parts[-1]) == SAID, f"half a reply after {at} bytes"
        # A reader that took what had come for the reply would have been caught so often.
        assert half > 25
        assert broken > 50
        await model.aclose()

    run(steps())


@pytest.mark.requirement("Q7")
@pytest.mark.parametrize("after_events", [0, 1, 3, 5])
def test_an_error_event_in_the_middle_is_an_error(server: MessagesServer, run: Run, after_events: int) -> None:
    async def steps() -> None:
        model = model_at(server)
        server.fail(529, after_events=after_events)
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(request())
        assert caught.value.status == 529
        await model.aclose()

    run(steps())


@pytest.mark.requirement("Q7")
def test_retrying_over_faults_ends_in_one_whole_reply(server: MessagesServer, run: Run) -> None:
    waited: list[float] = []
    told: list[Retry] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def steps() -> None:
        model = RetryingModel(model_at(server), sleep=sleep, on_retry=told.append)
        server.fail(429, retry_after=3)
        server.fail(529)
        server.cut_stream(1_200)
        parts = await parts_of(model, request())
        assert [type(part) for part in parts].count(Reply) == 1
        assert isinstance(parts[-1], Reply)
        assert waited[0] >= 3
        assert [type(retry.error).__name__ for retry in told] == [*["ModelUnavailable"] * 2, "ReplyBroken"]
        # Everything a reader was given, less what it was told to forget, is the reply.
        texts = [
            part.text for part in parts[told[-1].pieces : -1] if isinstance(part, ReplyDelta) and part.kind == "text"
        ]
        assert "".join(texts) == SAID[1]["text"]
        await model.aclose()

    run(steps())


def test_cancelling_the_reader_closes_the_response(run: Run, serving: Any) -> None:
    start = b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{}}}\n\n'
    begin = b'event: x\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi"}}\n\n'

    async def steps() -> None:
        async with serving([{"body": start + begin + b" " * 100, "cut": len(start + begin), "hang": True}]) as canned:
            model = AnthropicModel(MODEL, base_url=canned.base_url)
            seen = asyncio.Event()

            async def read() -> None:
                async for _ in model.stream(request()):
                    seen.set()

            task = asyncio.create_task(read())
            await asyncio.wait_for(seen.wait(), 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(canned.closed.wait(), 60)
            await model.aclose()

    run(steps())


def test_a_reader_that_stops_early_closes_the_response_too(run: Run, serving: Any) -> None:
    start = b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{}}}\n\n'
    begin = b'event: x\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi"}}\n\n'

    async def steps() -> None:
        async with serving([{"body": start + begin + b" " * 100, "cut": len(start + begin), "hang": True}]) as canned:
            model = AnthropicModel(MODEL, base_url=canned.base_url)
            async with aclosing(model.stream(request())) as parts:
                assert await anext(parts) == ReplyDelta("text", "Hi")
            await asyncio.wait_for(canned.closed.wait(), 60)
            await model.aclose()

    run(steps())


def test_a_server_that_does_not_stream_is_understood(run: Run, serving: Any) -> None:
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
    }
    headers = {"content-type": "application/json"}

    async def steps() -> None:
        answers = [
            {"body": json.dumps(message).encode(), "headers": headers},
            {"body": b'{"id": 1}', "headers": headers},
        ]
        async with serving(answers) as canned:
            model = AnthropicModel(MODEL, base_url=canned.base_url)
            assert await parts_of(model, request()) == [ReplyDelta("text", "Hi"), Reply(message)]
            with pytest.raises(ReplyBroken):
                await model.complete(request())
            await model.aclose()

    run(steps())


def test_a_server_that_is_not_there_is_unavailable_and_a_missing_key_is_told(run: Run) -> None:
    async def steps() -> None:
        away = AnthropicModel(MODEL, base_url="http://127.0.0.1:9")
        with pytest.raises(ModelUnavailable):
            await away.complete(request())
        await away.aclose()
        keyless = AnthropicModel(MODEL, base_url="http://192.0.2.1")
        with pytest.raises(ModelUnauthorized):
            await keyless.complete(request())
        await keyless.aclose()

    run(steps())


def test_capabilities_are_those_of_the_model() -> None:
    known = AnthropicModel("claude-haiku-4-5").capabilities
    assert known.caching
    assert known.context_management
    assert known.window == 200_000
    assert known.max_output == 64_000
    assert AnthropicModel("claude-sonnet-4-5[1m]").capabilities.window == 1_000_000
    assert AnthropicModel("my-own").capabilities.window is None
