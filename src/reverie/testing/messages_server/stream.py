"""A reply as the server-sent events of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

_PIECE_CHARS: Final = 24
_encode = msgspec.json.Encoder().encode


def event_bytes(event: Mapping[str, Any]) -> bytes:
    """Return one event as the bytes of a server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), _encode(event))


def stream_events(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events that deliver a whole message piece by piece."""
    late = ("content", "stop_reason", "stop_sequence", "stop_details", "context_management")
    head = {key: value for key, value in message.items() if key not in late}
    usage = dict(message["usage"])
    yield {
        "type": "message_start",
        "message": {
            **head,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**_begun(usage), "output_tokens": min(1, usage["output_tokens"])},
        },
    }
    for index, block in enumerate(message["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": _opening(block)}
        if index == 0:
            yield {"type": "ping"}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending: dict[str, Any] = {
        "type": "message_delta",
        "delta": {key: message[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in message},
        "usage": {key: value for key, value in usage.items() if key.endswith("_tokens") or key == "iterations"},
    }
    if "context_management" in message:
        ending["context_management"] = message["context_management"]
    yield ending
    yield {"type": "message_stop"}


def _begun(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in usage.items() if key != "iterations"}


def _opening(block: Mapping[str, Any]) -> dict[str, Any]:
    kind = block["type"]
    if kind == "text":
        return {**block, "text": ""}
    if kind == "thinking":
        return {**block, "thinking": "", "signature": ""}
    if kind in ("tool_use", "server_tool_use"):
        return {**block, "input": {}}
    return {**block, "content": None} if _is_delta(block) else dict(block)


def _is_delta(block: Mapping[str, Any]) -> bool:
    """Return whether a block is a summary made at a threshold, which comes as one delta."""
    return block["type"] == "compaction" and "signature" not in block


def _deltas(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kind = block["type"]
    if kind == "text":
        for piece in _pieces(block["text"]):
            yield {"type": "text_delta", "text": piece}
    elif kind == "thinking":
        for piece in _pieces(block["thinking"]):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif kind in ("tool_use", "server_tool_use"):
        yield {"type": "input_json_delta", "partial_json": ""}
        if block["input"]:
            for piece in _pieces(_encode(block["input"]).decode()):
                yield {"type": "input_json_delta", "partial_json": piece}
    elif _is_delta(block):
        yield {"type": "compaction_delta", "content": block["content"]}


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE_CHARS):
        yield text[start : start + _PIECE_CHARS]
