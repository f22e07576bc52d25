"""Streamed chat completions, put together as replies of the Messages API."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import ModelError, ModelRefused, ModelUnavailable, PromptTooLong, ReplyBroken
from reverie.models.chat_reply import ChatAssembly
from reverie.models.chat_request import chat_messages
from reverie.models.content_parts import INVALID_JSON
from reverie.models.wire import ServerEvent
from reverie.ports import ReplyDelta

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
CALLS = st.lists(st.tuples(st.sampled_from(["Read", "Bash"]), st.dictionaries(TEXTS, JSON, max_size=3)), max_size=3)


def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


def events(*chunks: dict[str, Any], done: bool = True) -> list[ServerEvent]:
    return [ServerEvent("", json.dumps(one)) for one in chunks] + ([ServerEvent("", "[DONE]")] if done else [])


def assembled(said: list[ServerEvent], taken: set[str] | None = None) -> tuple[ChatAssembly, list[ReplyDelta]]:
    assembly = ChatAssembly("test", taken)
    return assembly, [piece for event in said for piece in assembly.feed(event)]


def reply(*chunks: dict[str, Any], taken: set[str] | None = None) -> dict[str, Any]:
    return assembled(events(*chunks), taken)[0].reply().body


def call(index: int | None, id: str | None, name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    part = {"index": index, "id": id, "type": "function", "function": function}
    return {"tool_calls": [{key: value for key, value in part.items() if value is not None}]}


@st.composite
def streamed(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Draw a reply and the chunks in which a server tells it, cut anywhere and calls interleaved."""
    thinking, text, calls = draw(st.one_of(st.just(""), TEXTS)), draw(st.one_of(st.just(""), TEXTS)), draw(CALLS)
    content: list[dict[str, Any]] = []
    chunks = [chunk({"role": "assistant", "content": None})]

    def pieces(words: str) -> list[str]:
        at = sorted(draw(st.lists(st.integers(0, len(words)), max_size=3)))
        return [words[start:end] for start, end in zip([0, *at], [*at, len(words)], strict=True)]

    if thinking:
        field = draw(st.sampled_from(["reasoning_content", "reasoning"]))
        content.append({"type": "thinking", "thinking": thinking, "signature": f"openai:{field}"})
        chunks += [chunk({field: part}) for part in pieces(thinking)]
    if text:
        content.append({"type": "text", "text": text})
        chunks += [chunk({"content": part}) for part in pieces(text)]
    late: list[dict[str, Any]] = []
    for index, (name, given_input) in enumerate(calls):
        content.append({"type": "tool_use", "id": f"call_{index}", "name": name, "input": given_input})
        chunks.append(chunk(call(index, f"call_{index}", name, "")))
        late += [chunk(call(index, None, None, part)) for part in pieces(json.dumps(given_input))]
    # Parts of one call keep their order; calls may take turns.
    order = draw(st.permutations(range(len(calls))))
    for index in order:
        chunks += [one for one in late if one["choices"][0]["delta"]["tool_calls"][0]["index"] == index]
    chunks.append(chunk({}, "tool_calls" if calls else "stop"))
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 7}}
    chunks.append({"id": "chatcmpl-1", "model": "m", "choices": [], "usage": usage})
    return content, chunks


@given(streamed())
def test_a_reply_comes_back_as_it_was_told_whatever_the_cuts(
    said: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    content, chunks = said
    assembly, pieces = assembled(events(*chunks))
    body = assembly.reply().body
    assert body["content"] == content
    assert body["stop_reason"] == ("tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn")
    assert body["usage"] == {
        "input_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 7,
        "output_tokens": 4,
    }
    assert "".join(piece.text for piece in pieces if piece.kind == "text") == "".join(
        block["text"] for block in content if block["type"] == "text"
    )
    assert [piece.text for piece in pieces if piece.kind == "tool"] == [
        block["name"] for block in content if block["type"] == "tool_use"
    ]


@given(streamed())
def test_a_reply_sent_back_says_what_the_server_said_with_reasoning_only_beside_calls(
    said: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    content, chunks = said
    body = reply(*chunks)
    (message,) = chat_messages([{"role": "assistant", "content": body["content"]}])
    text = "".join(block["text"] for block in content if block["type"] == "text")
    # A server refuses a message without content, so a reply that only thought has a placeholder.
    only_thought = [block["type"] for block in content] == ["thinking"]
    assert (message["content"] or "") == ("[no content]" if only_thought else text)
    sent = [
        (one["id"], one["function"]["name"], json.loads(one["function"]["arguments"]))
        for one in message.get("tool_calls", ())
    ]
    assert sent == [(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"]
    thoughts = {block["signature"][7:]: block["thinking"] for block in content if block["type"] == "thinking"}
    told = {key: message[key] for key in ("reasoning_content", "reasoning") if key in message}
    assert told == (thoughts if sent else {})


def test_a_reader_that_joins_calls_by_arrival_is_caught() -> None:
    """The known-bad twin of the above: arguments that take turns, joined as they come."""
    chunks = [
        chunk(call(0, "a", "Read", "")),
        chunk(call(1, "b", "Bash", "")),
        chunk(call(0, None, None, '{"x":')),
        chunk(call(1, None, None, '{"y":2}')),
        chunk(call(0, None, None, "1}")),
        chunk({}, "tool_calls"),
    ]
    arrived = "".join(one["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for one in chunks[:-1])
    assert arrived != '{"x":1}{"y":2}'
    assert [block["input"] for block in reply(*chunks)["content"]] == [{"x": 1}, {"y": 2}]


@pytest.mark.requirement("Q7")
@given(streamed(), st.integers(0, 100))
def test_a_stream_that_ends_before_its_reason_is_never_a_reply(
    said: tuple[list[dict[str, Any]], list[dict[str, Any]]], at: int
) -> None:
    chunks = said[1][:-2]
    assembly, _ = assembled(events(*chunks[: at % (len(chunks) + 1)], done=bool(at % 2)))
    with pytest.raises(ReplyBroken):
        assembly.reply()


KEYS = st.sampled_from(
    ["content", "reasoning", "refusal", "tool_calls", "index", "id", "function", "name", "arguments"]
)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x", "stop"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "id": ODD,
        "usage": ODD,
        "error": ODD,
        "choices": st.lists(
            st.fixed_dictionaries({}, optional={"index": ODD, "delta": ODD, "finish_reason": ODD, "stop_reason": ODD}),
            max_size=2,
        ),
    },
)


@given(st.lists(FRAMES | ODD, max_size=4))
def test_whatever_a_server_sends_ends_as_an_error_of_ours_or_not_at_all(said: list[Any]) -> None:
    with contextlib.suppress(ModelError):
        made = assembled([ServerEvent("", json.dumps(value)) for value in said])[0].reply()
        assert isinstance(made.body["content"], list)


@pytest.mark.parametrize("arguments", ['{"path": "a', "[1]", "null", "nonsense", '{"a": NaN}'])
def test_arguments_that_are_no_object_are_kept_as_written(arguments: str) -> None:
    body = reply(chunk(call(0, "a", "Read", arguments)), chunk({}, "tool_calls"))
    assert body["content"][0]["input"] == {INVALID_JSON: arguments}
    (message,) = chat_messages([{"role": "assistant", "content": body["content"]}])
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {INVALID_JSON: arguments}


def test_servers_that_number_their_calls_loosely_are_understood() -> None:
    # Every call at index 0, whole, with an id of its own.
    same_index = reply(chunk(call(0, "a", "Read", "{}")), chunk(call(0, "b", "Bash", "{}")), chunk({}, "stop"))
    assert [block["id"] for block in same_index["content"]] == ["a", "b"]
    assert same_index["stop_reason"] == "tool_use"
    # No index, arguments as an object.
    no_index = reply(chunk(call(None, "a", "Read", {"x": 1})), chunk(call(None, "b", "Read", "{}")), chunk({}, "stop"))
    assert [block["input"] for block in no_index["content"]] == [{"x": 1}, {}]
    # No id at all.
    no_id = reply(chunk(call(0, None, "Read", "{}")), chunk({}, "tool_calls"))
    assert no_id["content"][0]["id"]


def test_ids_are_ones_the_log_and_every_provider_take_and_never_used_twice() -> None:
    body = reply(
        chunk(call(0, "call:0/é", "Read", "{}")),
        chunk(call(1, "call_0", "Read", "{}")),
        chunk({}, "tool_calls"),
        taken={"call_0", "call_0-2"},
    )
    assert [block["id"] for block in body["content"]] == ["call_0__", "call_0-3"]


@pytest.mark.parametrize(
    ("reason", "said", "stop"),
    [
        ("stop", {"content": "x"}, "end_turn"),
        ("length", {"content": "x"}, "max_tokens"),
        ("length", call(0, "a", "Read", '{"x'), "max_tokens"),
        ("content_filter", {"content": "x"}, "refusal"),
        ("stop", {"refusal": "I will not."}, "refusal"),
        ("tool_calls", {"content": "x"}, "end_turn"),
        ("eos", {"content": "x"}, "end_turn"),
    ],
)
def test_the_reason_is_said_in_the_messages_apis_words(reason: str, said: dict[str, Any], stop: str) -> None:
    assert reply(chunk(said), chunk({}, reason))["stop_reason"] == stop


def test_a_stop_sequence_is_told_where_the_server_tells_it() -> None:
    ending = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}]}
    body = reply(chunk({"content": "x"}), ending)
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", "END")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"message": "overloaded", "type": "server_error", "code": 503}}, ModelUnavailable),
        ({"error": {"message": "bad", "type": "invalid_request_error"}}, ModelRefused),
        (
            {"error": {"message": "x", "type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}},
            PromptTooLong,
        ),
    ],
)
def test_an_error_inside_a_stream_is_an_error(error: dict[str, Any], kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        assembled(events(chunk({"content": "x"}), error))


def test_usage_that_nobody_counted_is_left_out() -> None:
    assert "usage" not in reply(chunk({"content": "x"}), chunk({}, "stop"))
    counted = {"usage": {"prompt_tokens": 5, "prompt_cache_hit_tokens": 9, "completion_tokens": 1}}
    assert reply(chunk({"content": "x"}), {**chunk({}, "stop"), **counted})["usage"] == {
        "input_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 5,
        "output_tokens": 1,
    }
