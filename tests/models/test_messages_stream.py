"""A reply assembled from its events equals the reply, byte for byte, or is an error."""

from __future__ import annotations

import contextlib
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import ModelError, ModelUnavailable, PromptTooLong, ReplyBroken
from reverie.models.content_parts import INVALID_JSON, malformed_input
from reverie.models.messages_stream import MessageAssembly
from reverie.models.wire import EventDecoder, ServerEvent
from reverie.ports import ReplyDelta
from reverie.testing.messages_server.wire import event_bytes, stream_events

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
EXTRA = st.dictionaries(st.sampled_from(["citations_of", "caller", "x_new"]), JSON, max_size=2)


def block(kind: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    named = {key: value if isinstance(value, st.SearchStrategy) else st.just(value) for key, value in fields.items()}
    return st.tuples(st.fixed_dictionaries({"type": st.just(kind), **named}), EXTRA).map(lambda both: both[0] | both[1])


BLOCKS = st.one_of(
    block("text", text=TEXT),
    block("thinking", thinking=TEXT, signature=TEXT),
    block("redacted_thinking", data=TEXT),
    block("tool_use", id="toolu_1", name="Read", input=st.dictionaries(TEXT, JSON, max_size=3)),
    block("server_tool_use", id="srv_1", name="web_search", input=st.dictionaries(TEXT, JSON, max_size=2)),
    block("something_nobody_knows_yet", payload=JSON),
)
MESSAGES = st.builds(
    lambda content, extra: {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": content,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 1},
        **extra,
    },
    st.lists(BLOCKS, max_size=4),
    st.dictionaries(st.sampled_from(["container", "context_management", "x_new_field"]), JSON, max_size=2),
)


def events_of(message: dict[str, Any]) -> list[ServerEvent]:
    decoder = EventDecoder()
    return [event for said in stream_events(message) for event in decoder.feed(event_bytes(said))]


def assembled(events: list[ServerEvent]) -> tuple[MessageAssembly, list[ReplyDelta]]:
    assembly = MessageAssembly("test")
    return assembly, [piece for event in events for piece in assembly.feed(event)]


def same(left: Any, right: Any) -> bool:
    """Say whether two values are one as JSON, types and order of keys included."""
    return json.dumps(left) == json.dumps(right)


@pytest.mark.requirement("Q7")
@given(MESSAGES)
def test_a_streamed_message_comes_back_with_every_block_and_field(message: dict[str, Any]) -> None:
    assembly, pieces = assembled(events_of(message))
    body = assembly.reply().body
    assert same(body["content"], message["content"])
    assert same(dict(sorted(body.items())), dict(sorted(message.items())))
    texts = [found["text"] for found in message["content"] if found["type"] == "text"]
    assert "".join(piece.text for piece in pieces if piece.kind == "text") == "".join(texts)


@given(MESSAGES)
def test_losing_one_event_is_never_unseen(message: dict[str, Any]) -> None:
    """The known-bad twin: a stream that lost an event that says something."""
    events = events_of(message)
    rng = Random(len(events))
    lost = rng.choice([at for at, event in enumerate(events) if event.name != "ping"])
    try:
        body = assembled([*events[:lost], *events[lost + 1 :]])[0].reply().body
    except ReplyBroken:
        return
    delta = json.loads(events[lost].data).get("delta", {})
    empty = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
    says_nothing = not delta.get(empty.get(delta.get("type"), "partial_json"))
    assert says_nothing or not same(body, message)


@pytest.mark.requirement("Q7")
@given(MESSAGES, st.integers(0, 1_000))
def test_a_stream_that_ends_early_is_never_a_reply(message: dict[str, Any], at: int) -> None:
    events = events_of(message)
    assembly, _ = assembled(events[: at % len(events)])
    with pytest.raises(ReplyBroken):
        assembly.reply()


KINDS = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "x"]
DELTAS = ["text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta", "fallback", "new"]
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 1) | st.sampled_from(["", "x", *DELTAS]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "text", "thinking", "partial_json", "to", "model"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
FRAMES = st.fixed_dictionaries(
    {"type": st.sampled_from([*KINDS, "message_stop", "error"])},
    optional={"index": ODD, "message": ODD, "delta": ODD, "content_block": ODD, "usage": ODD, "error": ODD},
)


@given(st.lists(FRAMES | JSON, max_size=5))
def test_whatever_a_server_sends_ends_as_an_error_of_ours_or_not_at_all(said: list[Any]) -> None:
    start = {"type": "message_start", "message": {"id": "m", "usage": {}}}
    open_block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for before in ([], [start], [start, open_block]):
        with contextlib.suppress(ModelError):
            made = assembled([ServerEvent("", json.dumps(value)) for value in [*before, *said]])[0].reply()
            assert isinstance(made.body["content"], list)


def test_input_that_is_no_json_is_kept_as_written_and_told() -> None:
    events = [
        ServerEvent("", '{"type":"message_start","message":{"id":"m","usage":{}}}'),
        ServerEvent("", '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"W"}}'),
        ServerEvent(
            "", '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"a"}}'
        ),
        ServerEvent("", '{"type":"content_block_stop","index":0}'),
        ServerEvent("", '{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":9}}'),
        ServerEvent("", '{"type":"message_stop"}'),
    ]
    assembly, pieces = assembled(events)
    body = assembly.reply().body
    assert body["content"][0]["input"] == {INVALID_JSON: '{"a'}
    assert malformed_input(body["content"][0]) == '{"a'
    assert malformed_input({"input": {"a": 1}}) is None
    assert body["stop_reason"] == "max_tokens"
    assert pieces == [ReplyDelta("tool", "W")]


def test_what_the_start_said_stands_where_the_end_says_nothing() -> None:
    events = [
        ServerEvent(
            "", '{"type":"message_start","message":{"id":"m","container":{"id":"c"},"usage":{"input_tokens":7}}}'
        ),
        ServerEvent(
            "",
            '{"type":"message_delta","delta":{"stop_reason":"end_turn","container":null},'
            '"usage":{"output_tokens":2,"input_tokens":null},"context_management":{"applied_edits":[]}}',
        ),
        ServerEvent("", '{"type":"message_stop"}'),
    ]
    body = assembled(events)[0].reply().body
    assert body["container"] == {"id": "c"}
    assert body["usage"] == {"input_tokens": 7, "output_tokens": 2}
    assert body["context_management"] == {"applied_edits": []}


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, ModelUnavailable),
        ({"type": "error", "error": {"type": "api_error", "message": "Oh"}}, ModelUnavailable),
        (
            {
                "error": {
                    "code": 400,
                    "message": "request (9 tokens) exceeds the available context size (8 tokens)",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 9,
                    "n_ctx": 8,
                }
            },
            PromptTooLong,
        ),
    ],
)
def test_an_error_inside_a_stream_is_the_error_it_would_be_outside(said: Any, kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        assembled([ServerEvent("error", json.dumps(said))])


SIGNED = {"type": "compaction", "content": "What happened so far.", "signature": "c2ln", "tool_changes": None}
DROPPED = [{"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"}]
EDITS = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 5_000}]}
ITERATIONS = [
    {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
    {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000},
]


@pytest.mark.requirement("V10")
def test_a_signed_summary_its_bill_and_what_the_provider_changed_survive_the_stream() -> None:
    start = {"id": "m", "usage": {"input_tokens": 0}, "input_transformations": DROPPED}
    said = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": SIGNED},
        {"type": "ping"},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "compaction"},
            "context_management": EDITS,
            "usage": {"output_tokens": 0, "iterations": ITERATIONS},
        },
        {"type": "message_stop"},
    ]
    body = assembled([ServerEvent("", json.dumps(event)) for event in said])[0].reply().body
    assert same(body["content"], [SIGNED])
    assert body["stop_reason"] == "compaction"
    assert body["input_transformations"] == DROPPED
    assert body["context_management"] == EDITS
    assert body["usage"] == {"input_tokens": 0, "output_tokens": 0, "iterations": ITERATIONS}


@pytest.mark.requirement("V10")
def test_transformations_that_come_with_the_end_replace_those_of_the_start() -> None:
    said = [
        {"type": "message_start", "message": {"id": "m", "usage": {}, "input_transformations": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": None}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "compaction_delta", "content": "Brief."},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "input_transformations": DROPPED},
        {"type": "message_stop"},
    ]
    body = assembled([ServerEvent("", json.dumps(event)) for event in said])[0].reply().body
    assert body["content"] == [{"type": "compaction", "content": "Brief."}]
    assert body["input_transformations"] == DROPPED
