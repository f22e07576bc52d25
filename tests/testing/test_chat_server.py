"""The OpenAI-compatible test server refuses and caches like the provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from reverie.testing.chat_server import ChatServer, PrefixCache

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
