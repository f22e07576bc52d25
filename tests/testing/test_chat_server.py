"""The OpenAI-compatible test server refuses and caches like the provider."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from reverie.testing.chat_server import BreakpointCache, ChatServer, PrefixCache
from reverie.testing.chat_server.ledger import PromptUnit

CALL = {"id": "t1", "type": "function", "function": {"name": "Read", "arguments": "{}"}}


@pytest.fixture(scope="module")
def greeting() -> Iterator[tuple[ChatServer, Any]]:
    """Return a server that greets, and a client of it."""
    with ChatServer(lambda request: "hi") as server, openai.OpenAI(base_url=server.base_url, api_key="any") as client:
        yield server, client


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "too short"),
        ([{"role": "king", "content": "hi"}], "Invalid value"),
        ([{"role": "user", "content": ""}], "empty"),
        ([{"role": "tool", "tool_call_id": "t1", "content": "x"}], "must be a response"),
        ([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [CALL]}], "did not have response"),
    ],
)
def test_what_breaks_a_rule_is_refused(messages: list[Any], why: str, greeting: tuple[ChatServer, Any]) -> None:
    server, client = greeting
    before = len(server.refusals)
    with pytest.raises(openai.BadRequestError, match=why):
        client.chat.completions.create(model="gpt-4.1", messages=messages)
    assert (len(server.refusals), server.usages) == (before + 1, [])


def test_both_dialects_answer_with_calls_and_a_pair_that_is_torn_is_refused() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"a": 1}}
    call: Any = {"type": "function_call", "call_id": "t1", "name": "Read", "arguments": "{}"}
    with ChatServer(lambda request: [use]) as server, openai.OpenAI(base_url=server.base_url, api_key="any") as client:
        chat = client.chat.completions.create(model="gpt-4.1", messages=[{"role": "user", "content": "read"}])
        assert chat.choices[0].message.tool_calls[0].function.arguments == '{"a":1}'
        response = client.responses.create(model="gpt-4.1", input="read")
        assert response.output[0].call_id == "t1"
        for torn in ([call], [{"type": "function_call_output", "call_id": "t9", "output": "x"}]):
            with pytest.raises(openai.BadRequestError):
                client.responses.create(model="gpt-4.1", input=torn)
        said: Any = {"type": "message", "id": "m1", "role": "user", "content": "read"}
        with pytest.raises(openai.BadRequestError, match="Duplicate item found with id m1"):
            client.responses.create(model="gpt-4.1", input=[said, said])
        compacted = client.responses.compact(model="gpt-4.1", input=[{"role": "user", "content": "read"}])
        assert [item.type for item in compacted.output] == ["message", "compaction"]


def test_a_response_is_gone_on_from_and_compacted_by_its_id_unless_it_was_not_to_be_stored() -> None:
    with ChatServer(lambda request: "hi") as server, openai.OpenAI(base_url=server.base_url, api_key="any") as client:
        first = client.responses.create(model="gpt-4.1", input="one")
        second = client.responses.create(model="gpt-4.1", input="two", previous_response_id=first.id)
        assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
        compacted = client.responses.compact(model="gpt-4.1", previous_response_id=second.id)
        assert [getattr(item, "content", None) for item in compacted.output] == ["one", "two", None]
        unstored = client.responses.create(model="gpt-4.1", input="three", store=False)
        with pytest.raises(openai.BadRequestError, match="not found"):
            client.responses.compact(model="gpt-4.1", previous_response_id=unstored.id)


def test_a_window_that_is_full_is_said_to_be() -> None:
    with (
        ChatServer(lambda request: "hi", window=50) as server,
        openai.OpenAI(base_url=server.base_url, api_key="any") as client,
        pytest.raises(openai.BadRequestError, match="maximum context length"),
    ):
        client.responses.create(model="gpt-4.1", input="x" * 1_000)


def test_a_prefix_is_cached_until_it_rests_too_long_and_no_further_than_it_is_the_same() -> None:
    cache = PrefixCache()
    parts = ["x" * 4_000, "y" * 4_000]
    total, cached = cache.charge("m", parts, 0.0)
    assert cached == 0
    assert cache.charge("m", [*parts, "z"], 10.0)[1] == total // 128 * 128
    assert cache.charge("m", ["x" * 4_000, "other"], 20.0)[1] == 0  # a prefix of less than 1,024 tokens
    assert cache.charge("m", ["x" * 4_800, "y"], 30.0)[1] == 0
    assert cache.charge("other", parts, 40.0)[1] == 0
    assert cache.charge("m", parts, 2_000.0)[1] == 0


# -- V14: both APIs by the provider's rules, through the official SDK

THOUGHT = {"type": "thinking", "thinking": "The file first."}
SAID = {"type": "text", "text": "I read the file first, all of it.", "phase": "commentary"}
USE = {"type": "tool_use", "id": "call_1", "name": "Read", "input": {"path": "ä.py"}}
ASKED: Any = [{"role": "user", "content": "Read ä.py."}]
RESPONSES: dict[str, Any] = {"model": "gpt-5.6-sol", "store": False, "include": ["reasoning.encrypted_content"]}
CHAT: dict[str, Any] = {"model": "gpt-4.1", "messages": ASKED}


def whole_chat(chunks: list[Any]) -> tuple[str, str, str]:
    """Join the chunks of a streamed chat completion: its text, the arguments of its call, and its finish reason."""
    deltas = [chunk.choices[0] for chunk in chunks if chunk.choices]
    text = "".join(one.delta.content or "" for one in deltas)
    calls = [call for one in deltas for call in one.delta.tool_calls or ()]
    return text, "".join(call.function.arguments or "" for call in calls), str(deltas[-1].finish_reason)


@pytest.mark.requirement("V14")
def test_the_official_sdk_reads_both_apis_streamed_and_not(client_class: type[Any]) -> None:
    """Sync and async clients see the same reply in four ways."""

    async def answers(server: ChatServer) -> list[Any]:
        client = client_class(base_url=server.base_url, api_key="any")

        async def got(value: Any) -> Any:
            return await value if inspect.isawaitable(value) else value

        async def streamed(stream: Any) -> list[Any]:
            return [one async for one in stream] if hasattr(stream, "__aiter__") else list(stream)

        chat = await got(client.chat.completions.create(**CHAT))
        options = {"include_usage": True}
        chunks = await streamed(await got(client.chat.completions.create(**CHAT, stream=True, stream_options=options)))
        response = await got(client.responses.create(**RESPONSES, input=ASKED))
        events = await streamed(await got(client.responses.create(**RESPONSES, input=ASKED, stream=True)))
        await got(client.close())
        return [chat, chunks, response, events]

    with ChatServer(lambda request: [THOUGHT, SAID, USE]) as server:
        chat, chunks, response, events = asyncio.run(answers(server))
        assert server.refusals == []
    message = chat.choices[0].message
    told = (message.content, message.tool_calls[0].function.arguments, chat.choices[0].finish_reason)
    assert whole_chat(chunks) == told == (SAID["text"], '{"path":"ä.py"}', "tool_calls")
    assert chunks[-1].usage.prompt_tokens == chat.usage.prompt_tokens
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert [item.type for item in events[-1].response.output] == ["reasoning", "message", "function_call"]
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert [one.sequence_number for one in events] == list(range(len(events)))
    deltas = [one.delta for one in events if one.type == "response.output_text.delta"]
    assert "".join(deltas) == response.output_text == SAID["text"]
    unfinished = next(one for one in events if one.type == "response.output_item.added")
    assert unfinished.item.encrypted_content != response.output[0].encrypted_content


@pytest.fixture(params=["OpenAI", "AsyncOpenAI"])
def client_class(request: pytest.FixtureRequest) -> type[Any]:
    """Return the official client, sync or async."""
    return getattr(openai, request.param)


@pytest.fixture(scope="module")
def reasoner() -> Iterator[tuple[ChatServer, Any, list[Any]]]:
    """Return a server that reasons, a client of it, and the items of its first reply with the call's result."""
    with (
        ChatServer(lambda request: [THOUGHT, SAID, USE]) as server,
        openai.OpenAI(base_url=server.base_url, api_key="any") as client,
    ):
        first = client.responses.create(**RESPONSES, input=ASKED)
        items = [item.to_dict() for item in first.output]
        result = {"type": "function_call_output", "call_id": "call_1", "output": "x = 1"}
        yield server, client, [*ASKED, *items, result]


def changed(items: list[Any], at: int, **fields: Any) -> list[Any]:
    """Return the items with some fields of one of them changed; a field that is None is left out."""
    one = {key: value for key, value in {**items[at], **fields}.items() if value is not None}
    return [*items[:at], one, *items[at + 1 :]]


@pytest.mark.requirement("V14")
def test_reasoning_goes_back_beside_its_item_unchanged_and_to_its_own_model(
    reasoner: tuple[ChatServer, Any, list[Any]],
) -> None:
    _, client, items = reasoner
    user, reasoning, message, call, result = items
    mark = [{"type": "input_text", "text": "Hi.", "prompt_cache_breakpoint": {"mode": "explicit"}}]
    told = [{"type": "output_text", "text": "Hi.", "prompt_cache_breakpoint": {"mode": "explicit"}}]
    tools = [{"type": "function", "name": "Late", "parameters": {"type": "object"}}]
    accepted: list[Any] = [
        items,
        [user, changed(items, 2, id=None)[2], call | {"id": None}, result],
        [{"role": "user", "content": mark}],
        [user, {"type": "additional_tools", "role": "developer", "tools": [tools[0] | {"strict": False}]}],
    ]
    for given in accepted:
        client.responses.create(**RESPONSES, input=given)
    refused = {
        "without its required following item": [user, reasoning],
        "'rs_.*' of type 'reasoning' was provided without": [user, reasoning, call, result],
        "without its required 'reasoning' item": [user, message, call, result],
        "could not be verified": changed(items, 1, encrypted_content=reasoning["encrypted_content"][:-4] + "AAAA"),
        "Items are not persisted": changed(items, 1, encrypted_content=None),
        "No tool output found": items[:-1],
        "No tool call found": [user, result],
        "Duplicate item": [*items, message],
        "prompt_cache_breakpoint": [user, {"role": "assistant", "content": told}],
        "Invalid schema for function 'Late'": [
            user,
            {"type": "additional_tools", "role": "developer", "tools": tools},
        ],
        "additional_tools": [user, {"type": "additional_tools", "role": "user", "tools": tools}],
    }
    for why, given in refused.items():
        with pytest.raises(openai.BadRequestError, match=why):
            client.responses.create(**RESPONSES, input=given)
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(**{**RESPONSES, "model": "gpt-6-luna"}, input=items)
    assert error.value.code == "invalid_encrypted_content"


@pytest.mark.requirement("V14")
@pytest.mark.parametrize(
    ("api", "fields", "why"),
    [
        ("responses", {"model": "gpt-5.6-sol", "temperature": 0.5}, "'temperature' is not supported"),
        ("responses", {"model": "gpt-6-astra", "reasoning": {"effort": "none"}}, "'none' is not supported"),
        ("responses", {"model": "gpt-4.1", "include": ["reasoning.encrypted_content"]}, "Encrypted content"),
        ("responses", {"model": "gpt-4.1", "reasoning": {"effort": "low"}}, "'reasoning.effort'"),
        ("responses", {"model": "gpt-5.5", "reasoning": {"context": "all_turns"}}, "'reasoning.context'"),
        ("responses", {"model": "gpt-5.6", "max_output_tokens": 5}, "below minimum"),
        ("responses", {"model": "gpt-5.6", "extra_body": {"max_tokens": 5}}, "Unknown parameter: 'max_tokens'"),
        ("responses", {"model": "gpt-5.5", "prompt_cache_options": {"mode": "explicit"}}, "'prompt_cache_options'"),
        (
            "responses",
            {"model": "gpt-5.6", "prompt_cache_options": {"ttl": "30m"}, "prompt_cache_retention": "24h"},
            "cannot be used together",
        ),
        ("chat", {"model": "gpt-6-astra", "tools": [{"type": "function", "function": {"name": "R"}}]}, "/v1/responses"),
        ("chat", {"model": "gpt-6-luna", "tools": [{"type": "function", "function": {"name": "R"}}]}, "/v1/responses"),
        ("chat", {"model": "gpt-5.6", "max_tokens": 50}, "Use 'max_completion_tokens' instead"),
        ("chat", {"model": "gpt-5.6", "temperature": 0.5}, "'temperature' is not supported"),
    ],
)
def test_options_that_a_model_does_not_take_are_refused(
    api: str, fields: dict[str, Any], why: str, greeting: tuple[ChatServer, Any]
) -> None:
    _, client = greeting
    ask = client.chat.completions.create if api == "chat" else client.responses.create
    asked = {"messages": ASKED} if api == "chat" else {"input": ASKED}
    with pytest.raises(openai.BadRequestError, match=why):
        ask(**asked, **fields)


@pytest.mark.requirement("V14")
def test_a_model_that_may_not_reason_takes_tools_and_temperature_in_chat() -> None:
    tool = {"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}
    with ChatServer(lambda request: "hi") as server, openai.OpenAI(base_url=server.base_url, api_key="any") as client:
        none: Any = {"reasoning_effort": "none", "temperature": 0.5, "tools": [tool]}
        assert client.chat.completions.create(model="gpt-6-luna", messages=ASKED, **none).choices
        assert [model.id for model in client.models.list()] == ["gpt-4.1"]


@pytest.mark.requirement("V14")
def test_a_cache_with_breakpoints_reads_only_where_it_was_written() -> None:
    def units(*sizes: int, marked: tuple[int, ...] = ()) -> list[PromptUnit]:
        return [PromptUnit("x" * size, at in marked, True) for at, size in enumerate(sizes)]

    cache = BreakpointCache()
    total, read, written = cache.charge("k", units(8_000, 8_000), 0.0)
    assert (read, written) == (0, total)
    longer, read, written = cache.charge("k", units(8_000, 8_000, 8_000), 60.0)
    assert (read, written) == (total, longer - total)
    # A message that grew has lost its old end; the one before it was never written.
    assert cache.charge("k", units(8_000, 8_004), 120.0)[1] == 0
    # Explicit mode writes and reads at its own marks only, and without marks not at all.
    assert cache.charge("e", units(8_000, 8_000), 0.0, explicit=True)[1:] == (0, 0)
    assert cache.charge("e", units(8_000, 8_000, marked=(0,)), 0.0, explicit=True)[1:] == (0, 2_000 + 1)
    assert cache.charge("e", units(8_000, 8_004, marked=(0,)), 1.0, explicit=True)[1:] == (2_000 + 1, 0)
    # At most four writes; entries live for half an hour from the last use; a short prefix is never cached.
    assert cache.charge("w", units(*[8_000] * 6, marked=(0, 1, 2, 3, 4)), 0.0, explicit=True)[2] == 5 * 2_000 + 1
    assert cache.charge("w", units(8_000, marked=(0,)), 1.0, explicit=True)[1] == 0
    assert cache.charge("k", units(8_000, 8_000), 60.0 + 1_800.0)[1] == 0
    assert cache.charge("s", units(2_000), 0.0)[2] == 0
