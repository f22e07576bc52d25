"""The Messages API server, driven by the official SDK if possible and by plain HTTP otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from random import Random
from typing import Any
from urllib.parse import urlsplit

import anthropic
import httpx2
import pytest

from random_logs import random_log
from raw_requests import ALL_BETAS
from reverie.cache.simulator import CacheRules
from reverie.conversation.view import View
from reverie.conversation.wire.request import build_request
from reverie.conversation.wire.validate import Limits, problems
from reverie.errors import InputError
from reverie.testing.messages_server import (
    ManualClock,
    MessagesServer,
    ServerReply,
    count_block_tokens,
    redact_thinking,
    sign_thinking,
)

MODEL = "claude-sonnet-5"
HELLO: list[Any] = [{"role": "user", "content": "Hello?"}]
TOOLS: list[Any] = [{"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]
LONG = "A long and steady prefix. " * 400
MARK = {"type": "ephemeral"}
EDITING = {"anthropic-beta": "context-management-2025-06-27"}


def client(server: MessagesServer, **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.base_url, api_key="any", max_retries=more.pop("max_retries", 0), **more)


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def ask(server: MessagesServer, body: dict[str, Any], **headers: str) -> tuple[int, Any]:
    """Send a body as it is and return status and answer."""
    sent = {"x-api-key": "any", "anthropic-version": "2023-06-01", "content-type": "application/json", **headers}
    raw = body if isinstance(body, bytes) else json.dumps({"model": MODEL, "max_tokens": 100, **body}).encode()
    connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=60)
    try:
        connection.request("POST", "/v1/messages", raw, {key.replace("_", "-"): value for key, value in sent.items()})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer(lambda request: f"I got {len(request['messages'])}.") as running:
        yield running


@pytest.fixture(scope="module")
def sdk(server: MessagesServer) -> Iterator[anthropic.Anthropic]:
    with client(server) as made:
        yield made


def test_the_sync_sdk_creates_a_message(sdk: anthropic.Anthropic) -> None:
    message = sdk.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
    assert [block.to_dict() for block in message.content] == [text("I got 1.")]
    assert (message.role, message.stop_reason, message.model) == ("assistant", "end_turn", MODEL)
    assert message.usage.input_tokens == count_block_tokens(text("Hello?"))
    assert message.usage.output_tokens == count_block_tokens(text("I got 1."))


def test_the_sync_sdk_streams_a_message(sdk: anthropic.Anthropic) -> None:
    with sdk.messages.stream(model=MODEL, max_tokens=100, messages=HELLO) as stream:
        assert "".join(stream.text_stream) == "I got 1."
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == count_block_tokens(text("I got 1."))


def test_the_async_sdk_creates_and_streams_and_counts(server: MessagesServer) -> None:
    async def run() -> tuple[str, str, int, list[str]]:
        async with anthropic.AsyncAnthropic(base_url=server.base_url, api_key="any") as made:
            whole: Any = await made.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
            async with made.messages.stream(model=MODEL, max_tokens=100, messages=HELLO) as stream:
                streamed = await stream.get_final_text()
            count = await made.messages.count_tokens(model=MODEL, messages=HELLO)
            names = [model.id async for model in made.models.list()]
            return whole.content[0].text, streamed, count.input_tokens, names

    said, streamed, count, names = asyncio.run(run())
    assert said == streamed == "I got 1."
    assert count == count_block_tokens(text("Hello?"))
    assert MODEL in names


def test_the_sdk_counts_tokens_of_tools_system_and_messages(sdk: anthropic.Anthropic) -> None:
    count = sdk.messages.count_tokens(model=MODEL, messages=HELLO, system="Be brief.", tools=TOOLS)
    parts = (TOOLS[0], text("Be brief."), text("Hello?"))
    assert count.input_tokens == sum(count_block_tokens(part) for part in parts)


def test_the_sdk_lists_models_page_by_page_and_retrieves_one(sdk: anthropic.Anthropic) -> None:
    names = [model.id for model in sdk.models.list(limit=2)]
    assert len(names) == len(set(names)) > 2
    assert sdk.models.retrieve(MODEL).id == MODEL
    with pytest.raises(anthropic.NotFoundError):
        sdk.models.retrieve("claude-none")


def test_the_context_manager_works_in_async_code_too() -> None:
    async def run() -> tuple[str, str]:
        async with MessagesServer(lambda request: "Yes.") as server:
            url = server.base_url
            async with anthropic.AsyncAnthropic(base_url=url, api_key="any") as made:
                message: Any = await made.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
        return message.content[0].text, url

    said, url = asyncio.run(run())
    assert said == "Yes."
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=60)


def test_a_client_that_is_killed_while_it_sends_its_request_is_not_refused() -> None:
    with MessagesServer(lambda request: "Yes.") as server:
        place = urlsplit(server.base_url)
        head = "POST /v1/messages HTTP/1.1\r\nhost: test\r\nx-api-key: any\r\nanthropic-version: 2023-06-01\r\n"
        for _ in range(20):
            with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
                connection.sendall(f'{head}content-length: 1000\r\n\r\n{{"model"'.encode())
        assert ask(server, {"messages": HELLO})[0] == 200
    assert (server.refusals, server.errors) == ([], [])


def test_a_reply_function_may_be_async() -> None:
    async def reply(request: dict[str, Any]) -> str:
        return "Awaited."

    with MessagesServer(reply) as server:
        assert ask(server, {"messages": HELLO})[1]["content"] == [text("Awaited.")]


def test_the_stream_on_the_wire_has_the_providers_events_in_order_with_pings() -> None:
    thought = {"type": "thinking", "thinking": "Where is it?"}
    use = {"type": "tool_use", "name": "Read", "input": {"path": "src/a_rather_long_name.py"}}
    with (
        MessagesServer(lambda request: [thought, text("Let me see."), use]) as server,
        httpx2.Client(timeout=60) as http_client,
    ):
        body = {"model": MODEL, "max_tokens": 500, "messages": HELLO, "tools": TOOLS, "stream": True}
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
        headers = {"authorization": "Bearer any", "anthropic-version": "2026-10-21"}
        answer = http_client.post(f"{server.base_url}/v1/messages", json=body, headers=headers)
        whole = http_client.post(f"{server.base_url}/v1/messages", json={**body, "stream": False}, headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(part.split("data: ", 1)[1]) for part in answer.text.strip().split("\n\n")]
    assert all(f"event: {event['type']}\n" in answer.text for event in events)
    names = [event["type"] for event in events]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    assert names.count("content_block_start") == names.count("content_block_stop") == 3
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    kinds = {delta["type"] for delta in deltas}
    assert kinds == {"thinking_delta", "signature_delta", "text_delta", "input_json_delta"}
    assert "".join(delta.get("thinking", "") for delta in deltas) == "Where is it?"
    assert "".join(delta.get("signature", "") for delta in deltas) == whole.json()["content"][0]["signature"]
    assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == use["input"]
    ending = events[-2]
    assert ending["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert ending["usage"]["output_tokens"] > 1


def test_a_tool_round_with_signed_thinking_goes_through_the_sdk_and_back() -> None:
    def reply(request: dict[str, Any]) -> Any:
        if len(request["messages"]) > 1:
            return "It says hi."
        return [{"type": "thinking", "thinking": "Look."}, {"type": "tool_use", "name": "Read", "input": {"path": "a"}}]

    with MessagesServer(reply) as server, client(server) as made:
        for streamed in (False, True):
            history = copy.deepcopy(HELLO)
            options: dict[str, Any] = {"model": MODEL, "max_tokens": 2000, "tools": TOOLS}
            options["thinking"] = {"type": "adaptive"}
            if streamed:
                with made.messages.stream(messages=history, **options) as stream:
                    first: Any = stream.get_final_message()
            else:
                first = made.messages.create(messages=history, **options)
            assert first.stop_reason == "tool_use"
            call = first.content[1]
            assert call.input == {"path": "a"}
            history.append({"role": "assistant", "content": first.content})
            history.append(
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "hi"}]}
            )
            second: Any = made.messages.create(messages=history, **options)
            assert second.content[0].text == "It says hi."
        assert server.refusals == []


def test_a_reply_longer_than_max_tokens_is_cut_and_says_so() -> None:
    with MessagesServer(lambda request: "word " * 100) as server, client(server) as made:
        message: Any = made.messages.create(model=MODEL, max_tokens=20, messages=HELLO)
        whole: Any = made.messages.create(model=MODEL, max_tokens=2000, messages=HELLO)
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens <= 20
    assert ("word " * 100).startswith(message.content[0].text)
    assert whole.stop_reason == "end_turn"


def test_a_reply_can_give_its_own_stop_reason() -> None:
    with MessagesServer(lambda request: ServerReply("No.", stop_reason="refusal")) as server, client(server) as made:
        assert made.messages.create(model=MODEL, max_tokens=20, messages=HELLO).stop_reason == "refusal"


USE = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    (
        "a use without its result",
        {"messages": [*HELLO, {"role": "assistant", "content": [USE]}, *HELLO], "tools": TOOLS},
        400,
        "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
    ),
    (
        "a result without its use",
        {"messages": [{"role": "user", "content": [RESULT]}], "tools": TOOLS},
        400,
        "unexpected `tool_use_id` found in `tool_result` blocks: toolu_1",
    ),
    ("roles that do not alternate", {"messages": HELLO * 2}, 400, "roles must alternate"),
    (
        "empty text",
        {"messages": [{"role": "user", "content": [text("")]}]},
        400,
        "text content blocks must be non-empty",
    ),
    ("no messages", {"messages": []}, 400, "at least one message is required"),
    ("an unknown field", {"messages": HELLO, "mood": 1}, 400, "mood: Extra inputs are not permitted"),
    ("an unknown model", {"messages": HELLO, "model": "claude-none"}, 404, "model: claude-none"),
    ("edits without the beta", {"messages": HELLO, "context_management": {}}, 400, "context_management: Extra inputs"),
    (
        "thinking it did not sign",
        {
            "messages": [
                *HELLO,
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}, text("x")]},
                *HELLO,
            ]
        },
        400,
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    (
        "redacted thinking it did not make",
        {
            "messages": [
                *HELLO,
                {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "abc"}, text("x")]},
                *HELLO,
            ]
        },
        400,
        "Invalid `data` in `redacted_thinking` block",
    ),
]


@pytest.mark.parametrize(("body", "status", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_it_refuses_what_the_provider_refuses(
    server: MessagesServer, body: dict[str, Any], status: int, words: str
) -> None:
    found, answer = ask(server, body)
    assert found == status
    assert set(answer) == {"type", "error", "request_id"}
    assert answer["type"] == "error"
    assert answer["error"]["type"] == {400: "invalid_request_error", 404: "not_found_error"}[status]
    assert words in answer["error"]["message"]


def test_the_sdk_raises_its_own_errors_from_refusals(sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="roles must alternate"):
        sdk.messages.create(model=MODEL, max_tokens=10, messages=HELLO * 2)
    with pytest.raises(anthropic.NotFoundError, match="model: claude-none"):
        sdk.messages.create(model="claude-none", max_tokens=10, messages=HELLO)


def test_thinking_altered_under_a_signature_it_gave_is_refused_and_kept_whole_it_passes() -> None:
    with MessagesServer(lambda request: [{"type": "thinking", "thinking": "True."}, text("So.")]) as server:
        _, first = ask(server, {"messages": HELLO})
        history = [*HELLO, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": "And?"}]
        assert ask(server, {"messages": history})[0] == 200
        first["content"][0]["thinking"] = "False."
        status, answer = ask(server, {"messages": history})
    assert status == 400
    assert "cannot be modified" in answer["error"]["message"]


def test_history_signed_by_the_test_passes_and_checking_can_be_turned_off() -> None:
    thinking = {"type": "thinking", "thinking": "Old.", "signature": sign_thinking("Old.")}
    redacted = {"type": "redacted_thinking", "data": redact_thinking("Older.")}
    history = [*HELLO, {"role": "assistant", "content": [redacted, thinking, text("So.")]}, *HELLO]
    with MessagesServer(lambda request: "ok") as server:
        assert ask(server, {"messages": history})[0] == 200
    foreign = copy.deepcopy(history)
    foreign[1]["content"][1]["signature"] = "from elsewhere"
    with MessagesServer(lambda request: "ok", checks_thinking=False) as server:
        assert ask(server, {"messages": foreign})[0] == 200


def test_a_prompt_over_the_window_is_refused_in_the_providers_words_and_one_at_it_passes() -> None:
    body = {"messages": [{"role": "user", "content": "x" * 4000}]}
    size = count_block_tokens(text("x" * 4000))
    with MessagesServer(lambda request: "ok", window=size) as server:
        assert ask(server, body)[0] == 200
    with MessagesServer(lambda request: "ok", window=size - 1) as server:
        status, answer = ask(server, body)
    assert status == 400
    assert answer["error"]["message"] == f"prompt is too long: {size} tokens > {size - 1} maximum"


def test_a_body_over_the_limit_is_413() -> None:
    with MessagesServer(lambda request: "ok", limits=Limits(max_body_bytes=2000)) as server, client(server) as made:
        with pytest.raises(anthropic.RequestTooLargeError) as caught:
            made.messages.create(model=MODEL, max_tokens=10, messages=[{"role": "user", "content": "x" * 2000}])
        assert caught.value.status_code == 413
        assert ask(server, {"messages": HELLO})[0] == 200


def test_bodies_that_are_not_json_objects_are_400(server: MessagesServer) -> None:
    for raw in (b"", b"{", b"[]", b'{"model": "\\ud800"}'):
        status, answer = ask(server, raw)  # pyright: ignore[reportArgumentType]
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def test_a_key_is_needed_in_either_header_and_the_version_too(server: MessagesServer) -> None:
    body = {"messages": HELLO}
    status, answer = ask(server, body, x_api_key="")
    assert (status, answer["error"]["type"]) == (401, "authentication_error")
    assert ask(server, body, x_api_key="", authorization="Bearer k")[0] == 200
    assert ask(server, body, anthropic_version="")[0] == 400
    with MessagesServer(lambda request: "ok", api_keys=["right"]) as picky:
        assert ask(picky, body, x_api_key="wrong")[0] == 401
        assert ask(picky, body, x_api_key="right")[0] == 200


def test_unknown_paths_are_404_with_an_error_body(server: MessagesServer) -> None:
    with httpx2.Client() as http_client:
        answer = http_client.get(f"{server.base_url}/v2/nothing")
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found_error"


@pytest.mark.requirement("K8")
@pytest.mark.slow
def test_no_request_built_from_a_random_log_is_refused_and_what_the_validator_refuses_is(
    torture: bool, seed: int
) -> None:
    built = [
        build_request(View().fold_all(random_log(Random(f"{seed}/{number}"))))
        for number in range(2_000 if torture else 400)
    ]
    models = {request["model"] for request in built}
    with (
        MessagesServer(lambda request: "ok", models=models, checks_thinking=False) as server,
        httpx2.Client(
            timeout=60,
            headers={"x-api-key": "any", "anthropic-version": "2023-06-01", "anthropic-beta": ",".join(ALL_BETAS)},
        ) as http_client,
    ):
        url = f"{server.base_url}/v1/messages"
        refused = [
            answer.json() for request in built if (answer := http_client.post(url, json=request)).status_code != 200
        ]
        assert refused == []
        broken = [{**request, "messages": request["messages"][1:]} for request in built[:50]]
        for request in broken:
            assert (http_client.post(url, json=request).status_code != 200) == bool(problems(request))
    assert any(problems(request) for request in broken)


def usage(answer: Any) -> tuple[int, int, int]:
    found = answer["usage"]
    return found["cache_read_input_tokens"], found["cache_creation_input_tokens"], found["input_tokens"]


@pytest.mark.requirement("C8")
def test_usage_comes_from_a_cache_that_lives_by_the_tests_clock() -> None:
    clock = ManualClock(1_000.0)
    body = {"system": [text(LONG, cache_control=MARK)], "messages": HELLO}
    size, rest = count_block_tokens(text(LONG)), count_block_tokens(text("Hello?"))
    with MessagesServer(lambda request: "ok", clock=clock) as server:
        assert usage(ask(server, body)[1]) == (0, size, rest)
        assert usage(ask(server, body)[1]) == (size, 0, rest)
        clock.advance(299)
        assert usage(ask(server, body)[1]) == (size, 0, rest)
        clock.advance(300)
        _, cold = ask(server, body)
    assert usage(cold) == (0, size, rest)
    assert cold["usage"]["cache_creation"] == {"ephemeral_5m_input_tokens": size, "ephemeral_1h_input_tokens": 0}


def test_the_hour_long_cache_is_reported_apart_and_outlives_the_short_one() -> None:
    body = {"system": [text(LONG, cache_control={**MARK, "ttl": "1h"})], "messages": HELLO}
    with MessagesServer(lambda request: "ok") as server:
        _, first = ask(server, body)
        assert first["usage"]["cache_creation"]["ephemeral_1h_input_tokens"] == count_block_tokens(text(LONG))
        server.clock.advance(3599)
        assert usage(ask(server, body)[1])[0] > 0


def test_the_automatic_breakpoint_sits_on_the_last_block() -> None:
    body = {"system": LONG, "messages": HELLO, "cache_control": MARK}
    with MessagesServer(lambda request: "ok") as server:
        assert usage(ask(server, body)[1])[2] == 0
        assert usage(ask(server, body)[1])[1:] == (0, 0)


def test_changing_tool_choice_or_thinking_keeps_the_system_prompt_and_loses_the_messages() -> None:
    body: dict[str, Any] = {
        "tools": TOOLS,
        "system": [text(LONG, cache_control=MARK)],
        "messages": [{"role": "user", "content": [text(LONG, cache_control=MARK)]}],
    }
    size = count_block_tokens(text(LONG))
    with MessagesServer(lambda request: "ok") as server:
        ask(server, body)
        for change in ({"tool_choice": {"type": "any"}}, {"thinking": {"type": "disabled"}}):
            read, written, _ = usage(ask(server, {**body, **change})[1])
            assert written == size
            assert size < read < 2 * size
        assert usage(ask(server, {**body, "tools": []})[1])[0] == 0


def test_what_a_request_writes_cannot_be_read_before_its_reply_streams() -> None:
    entered, proceed = threading.Event(), threading.Event()
    first_only = iter([True])

    def reply(request: dict[str, Any]) -> str:
        if next(first_only, False):
            entered.set()
            assert proceed.wait(60)
        return "ok"

    body = {"system": [text(LONG, cache_control=MARK)], "messages": HELLO}
    with MessagesServer(reply) as server:
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(ask(server, body)[1]))
        thread.start()
        assert entered.wait(60)
        assert usage(ask(server, {**body, "system": [text(LONG + "!", cache_control=MARK)]})[1])[0] == 0
        during = ask(server, {**body, "messages": [{"role": "user", "content": "Meanwhile?"}]})[1]
        proceed.set()
        thread.join(60)
        after = ask(server, body)[1]
    assert usage(during)[0] == 0
    assert usage(answers[0])[0] == 0
    assert usage(after)[0] > 0


def rounds(number: int, size: int = 400) -> list[Any]:
    """Return a history of tool rounds, each result that many characters long."""
    history = list(HELLO)
    for index in range(number):
        use = {
            "type": "tool_use",
            "id": f"toolu_{index}",
            "name": "Read" if index % 2 else "Grep",
            "input": {"n": index},
        }
        thought = {"type": "thinking", "thinking": f"Step {index}.", "signature": sign_thinking(f"Step {index}.")}
        history.append({"role": "assistant", "content": [thought, use]})
        history.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "y" * size}]}
        )
    return history


def edits(*given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "tools": [{**TOOLS[0], "name": name} for name in ("Read", "Grep")],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": list(given)},
        **more,
    }


def test_clear_tool_uses_clears_the_oldest_beyond_those_kept_and_reports_it() -> None:
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "tool_uses", "value": 4},
        "keep": {"type": "tool_uses", "value": 2},
    }
    with MessagesServer(lambda request: "ok") as server:
        _, below = ask(server, edits(edit, messages=rounds(4)), **EDITING)
        _, above = ask(server, edits(edit, messages=rounds(6)), **EDITING)
        _, plain = ask(server, {"tools": edits()["tools"], "messages": rounds(6)})
    assert below["context_management"] == {"applied_edits": []}
    (applied,) = above["context_management"]["applied_edits"]
    assert (applied["type"], applied["cleared_tool_uses"]) == ("clear_tool_uses_20250919", 4)
    assert applied["cleared_input_tokens"] == plain["usage"]["input_tokens"] - above["usage"]["input_tokens"] > 200
    assert "context_management" not in plain


def test_clear_tool_uses_spares_tools_clears_inputs_and_asks_what_it_is_worth() -> None:
    base = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 100},
        "keep": {"type": "tool_uses", "value": 0},
    }
    with MessagesServer(lambda request: "ok") as server:

        def applied(**more: Any) -> list[Any]:
            _, answer = ask(server, edits({**base, **more}, messages=rounds(6)), **EDITING)
            return answer["context_management"]["applied_edits"]

        assert applied()[0]["cleared_tool_uses"] == 6
        assert applied(exclude_tools=["Read"])[0]["cleared_tool_uses"] == 3
        emptied = applied(clear_tool_inputs=True)[0]["cleared_input_tokens"]
        assert emptied > applied()[0]["cleared_input_tokens"]
        assert applied(clear_at_least={"type": "input_tokens", "value": 10_000}) == []


def test_clear_thinking_keeps_the_last_turns_or_all() -> None:
    with MessagesServer(lambda request: "ok") as server:
        for keep, turns in (({"type": "thinking_turns", "value": 2}, 3), ("all", None)):
            edit = {"type": "clear_thinking_20251015", "keep": keep}
            _, answer = ask(server, edits(edit, messages=rounds(5)), **EDITING)
            found = answer["context_management"]["applied_edits"]
            assert [item["cleared_thinking_turns"] for item in found] == ([] if turns is None else [turns])


def test_the_sdks_beta_door_reads_applied_edits_streamed_and_not_and_counts_both_ways() -> None:
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "tool_uses", "value": 1},
        "keep": {"type": "tool_uses", "value": 1},
    }
    options: dict[str, Any] = {"model": MODEL, "messages": rounds(4), **edits(edit)}
    options["betas"] = ["context-management-2025-06-27"]
    with MessagesServer(lambda request: "ok") as server, client(server) as made:
        whole: Any = made.beta.messages.create(max_tokens=100, **options)
        with made.beta.messages.stream(max_tokens=100, **options) as stream:
            streamed: Any = stream.get_final_message()
        count: Any = made.beta.messages.count_tokens(**options)
    assert whole.context_management.applied_edits[0].cleared_tool_uses == 3
    assert streamed.context_management.applied_edits == whole.context_management.applied_edits
    saved = whole.context_management.applied_edits[0].cleared_input_tokens
    assert count.context_management.original_input_tokens - count.input_tokens == saved


def test_an_edit_of_old_results_breaks_the_cache_where_it_clears() -> None:
    history = rounds(8, 4000)
    history[-1]["content"][0]["cache_control"] = MARK
    tools = edits()["tools"]
    clearing = edits(
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "tool_uses", "value": 1},
            "keep": {"type": "tool_uses", "value": 1},
        }
    )
    with MessagesServer(lambda request: "ok") as server:
        plain = {"tools": tools, "thinking": clearing["thinking"], "messages": history}
        ask(server, plain)
        assert usage(ask(server, plain)[1])[0] > 0
        assert usage(ask(server, {**clearing, "messages": history}, **EDITING)[1])[0] == 0


def test_cache_edits_delete_results_without_breaking_the_prefix_and_are_consumed_once() -> None:
    history = rounds(8, 4000)
    tools = edits()["tools"]
    with MessagesServer(lambda request: "ok", limits=Limits(cache_edits=True)) as server:
        history[-1]["content"][-1]["cache_control"] = MARK
        _, before = ask(server, {"tools": tools, "messages": history})
        edited = copy.deepcopy(history)
        edited[-1]["content"].append({"type": "cache_edits", "tool_use_ids": ["toolu_0", "toolu_1"]})
        _, first = ask(server, {"tools": tools, "messages": edited})
        _, again = ask(server, {"tools": tools, "messages": edited})
        unknown = copy.deepcopy(history)
        unknown[-1]["content"].append({"type": "cache_edits", "tool_use_ids": ["toolu_99"]})
        status, answer = ask(server, {"tools": tools, "messages": unknown})
    written = usage(before)[1]
    deleted = first["usage"]["cache_deleted_input_tokens"]
    assert deleted > 1500
    assert usage(first) == (written - deleted, 0, 0)
    assert again["usage"]["cache_deleted_input_tokens"] == 0
    assert usage(again) == usage(first)
    assert status == 400
    assert "toolu_99" in answer["error"]["message"]


def test_cache_edits_are_refused_where_not_declared(server: MessagesServer) -> None:
    body = {"messages": [{"role": "user", "content": [text("x"), {"type": "cache_edits", "tool_use_ids": ["a"]}]}]}
    assert ask(server, body)[0] == 400


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"model": "claude-opus-5"}, "model_changed"),
        ({"tools": [{**TOOLS[0], "description": "new"}]}, "tools_changed"),
        ({"system": "Other."}, "system_changed"),
        ({"messages": [{"role": "user", "content": "Another."}]}, "messages_changed"),
        ({"tool_choice": {"type": "any"}}, "unavailable"),
    ],
)
def test_diagnostics_name_what_changed(change: dict[str, Any], reason: str | None) -> None:
    body: dict[str, Any] = {"tools": TOOLS, "system": "Brief.", "messages": HELLO}
    with MessagesServer(lambda request: "ok") as server:
        _, first = ask(server, {**body, "diagnostics": {"previous_message_id": None}})
        assert first["diagnostics"] is None
        longer = {**body, "messages": [*HELLO, {"role": "assistant", "content": "ok"}, *HELLO], **change}
        _, second = ask(server, {**longer, "diagnostics": {"previous_message_id": first["id"]}})
        _, lost = ask(server, {**longer, "diagnostics": {"previous_message_id": "msg_unknown"}})
        _, silent = ask(server, longer)
    found = second["diagnostics"]
    assert (found and found["cache_miss_reason"]["type"]) == reason
    if reason and reason != "unavailable":
        assert found["cache_miss_reason"]["cache_missed_input_tokens"] > 0
    assert lost["diagnostics"]["cache_miss_reason"] == {"type": "previous_message_not_found"}
    assert "diagnostics" not in silent


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (429, "rate_limit_error", anthropic.RateLimitError),
        (500, "api_error", anthropic.InternalServerError),
        (529, "overloaded_error", anthropic.APIStatusError),
    ],
)
def test_faults_come_as_often_as_asked_with_retry_after(status: int, kind: str, error: type[Exception]) -> None:
    with MessagesServer(lambda request: "ok") as server, client(server) as made:
        server.fail(status=status, retry_after=1, times=2)
        for _ in range(2):
            with pytest.raises(error) as caught:
                made.messages.create(model=MODEL, max_tokens=10, messages=HELLO)
            found: Any = caught.value
            assert found.status_code == status
            assert found.response.headers["retry-after"] == "1"
            assert found.response.json()["error"]["type"] == kind
        made.messages.create(model=MODEL, max_tokens=10, messages=HELLO)
        assert len(server.requests) == 3


def test_the_sdk_retries_a_fault_and_succeeds() -> None:
    with MessagesServer(lambda request: "ok") as server, client(server, max_retries=2) as made:
        server.fail(status=529, retry_after=0.01, times=2)
        made.messages.create(model=MODEL, max_tokens=10, messages=HELLO)
        assert [status for status, _ in server.refusals] == [529, 529]


def test_a_stream_is_cut_at_the_very_byte_asked_for() -> None:
    body = json.dumps({"model": MODEL, "max_tokens": 100, "messages": HELLO, "stream": True}).encode()
    with MessagesServer(lambda request: "Hello, hello. " * 5) as server:

        def raw() -> tuple[bytes, bool]:
            connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=60)
            try:
                connection.request("POST", "/v1/messages", body, {"x-api-key": "k", "anthropic-version": "x"})
                return connection.getresponse().read(), True
            except http.client.IncompleteRead as broken:
                return broken.partial, False
            finally:
                connection.close()

        whole, complete = raw()
        assert complete
        for size in (0, 1, 100, len(whole) - 1):
            server.cut_stream(after_bytes=size)
            part, complete = raw()
            assert not complete
            assert len(part) == size
            assert part[:20] == whole[:size][:20]
        assert raw()[1]


def test_a_cut_stream_and_a_cut_reply_reach_the_sdk_as_errors() -> None:
    with MessagesServer(lambda request: "Hello. " * 50) as server, client(server) as made:
        server.cut_stream(after_bytes=900)
        with (
            pytest.raises((anthropic.APIError, httpx2.HTTPError)),
            made.messages.stream(model=MODEL, max_tokens=500, messages=HELLO) as stream,
        ):
            stream.get_final_message()
        server.cut_stream(after_bytes=10)
        with pytest.raises(anthropic.APIConnectionError):
            made.messages.create(model=MODEL, max_tokens=500, messages=HELLO)


def test_an_error_event_can_come_within_the_stream() -> None:
    with MessagesServer(lambda request: "Hello. " * 50) as server, client(server) as made:
        server.fail(status=529, after_events=4)
        with (
            pytest.raises(anthropic.APIStatusError, match="overloaded_error"),
            made.messages.stream(model=MODEL, max_tokens=500, messages=HELLO) as stream,
        ):
            stream.get_final_message()


def test_a_held_stream_waits_for_its_gate() -> None:
    with MessagesServer(lambda request: "Hello. " * 20) as server, client(server) as made:
        gate = server.hold_stream(after_events=4)
        seen: list[str] = []
        done = threading.Event()

        def read() -> None:
            with made.messages.stream(model=MODEL, max_tokens=500, messages=HELLO) as stream:
                seen.extend(stream.text_stream)
            done.set()

        thread = threading.Thread(target=read)
        thread.start()
        assert gate.reached.wait(60)
        assert not done.is_set()
        assert len("".join(seen)) < len("Hello. " * 20)
        gate.open()
        thread.join(60)
        assert "".join(seen) == "Hello. " * 20


@pytest.mark.slow
def test_leaving_the_block_stops_everything_even_while_a_stream_is_held_and_a_reply_blocks() -> None:
    entered, blocked = threading.Event(), threading.Event()

    def reply(request: dict[str, Any]) -> str:
        if request.get("stream"):
            return "Hello. " * 20
        entered.set()
        blocked.wait(60)
        return "late"

    def quietly(**more: Any) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            ask(server, {"messages": HELLO, **more})

    before = set(threading.enumerate())
    with MessagesServer(reply) as server:
        gate = server.hold_stream()
        threads = [
            threading.Thread(target=quietly, daemon=True),
            threading.Thread(target=quietly, kwargs={"stream": True}, daemon=True),
        ]
        for thread in threads:
            thread.start()
        assert entered.wait(60)
        assert gate.reached.wait(60)
    try:
        assert "messages-server" not in {thread.name for thread in set(threading.enumerate()) - before}
        with pytest.raises(InputError, match="with"):
            _ = server.base_url
    finally:
        blocked.set()
        for thread in threads:
            thread.join(60)


def test_a_reply_function_that_raises_is_a_500_and_is_kept_for_the_test_to_see() -> None:
    def reply(request: dict[str, Any]) -> str:
        raise KeyError("script ended")

    with MessagesServer(reply) as server:
        status, answer = ask(server, {"messages": HELLO})
    assert (status, answer["error"]["type"]) == (500, "api_error")
    assert [type(error) for error in server.errors] == [KeyError]


def test_the_minimum_and_the_counter_are_the_tests_to_choose() -> None:
    body = {"messages": [{"role": "user", "content": [text("short", cache_control=MARK)]}]}
    rules = CacheRules(minimum_tokens=1)
    with MessagesServer(lambda request: "ok", rules=rules, count=lambda block: 7) as server:
        assert usage(ask(server, body)[1]) == (0, 7, 0)
        assert usage(ask(server, body)[1]) == (7, 0, 0)


def test_images_count_flat_and_signatures_nothing() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 100_000}}
    assert 2000 <= count_block_tokens(image) < 2050
    assert 2000 <= count_block_tokens({"type": "tool_result", "tool_use_id": "a", "content": [image]}) < 2050
    thinking = {"type": "thinking", "thinking": "x"}
    assert count_block_tokens({**thinking, "signature": "y" * 1000}) == count_block_tokens(thinking)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InputError, match=r"reverie\[testing\]"), MessagesServer(lambda request: "ok"):
        pass


def test_importing_the_server_and_the_pure_parts_loads_no_web_server_and_no_vendor() -> None:
    code = (
        "import sys, reverie, reverie.conversation.wire.validate\n"
        "import reverie.conversation.wire.canonical, reverie.cache.simulator\n"
        "import reverie.testing.messages_server\n"
        "print([n for n in ('starlette', 'uvicorn', 'anthropic', 'httpx2', 'openai') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
