"""Replies on the wire: whole, as events, held back, or broken off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import anyio
import msgspec

from .faults import InjectedFailure, StreamGate

_STEP_SECONDS: Final = 0.01
_MAX_HOLD_SECONDS: Final = 30.0
_PIECE_CHARS: Final = 24
_encode = msgspec.json.Encoder().encode


def error_body(kind: str, message: str, request_id: str, code: str = "") -> dict[str, Any]:
    """Return an error as a dict in the provider's format; ``kind`` is its error type and ``code`` its error code."""
    details = {"details": {"error_code": code}} if code else {}
    return {"type": "error", "error": {"type": kind, "message": message, **details}, "request_id": request_id}


def _headers(fields: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]


class JsonReply:
    """An ASGI reply in one piece of JSON, or its first bytes where the connection is to break."""

    def __init__(self, value: Any, *, status: int = 200, headers: Mapping[str, str], cut: int | None = None) -> None:
        self._body = _encode(value)
        self._status = status
        self._headers = {"content-type": "application/json", "content-length": str(len(self._body)), **headers}
        self._cut = cut

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": self._status, "headers": _headers(self._headers)})
        body = self._body if self._cut is None else self._body[: self._cut]
        # Fewer bytes than announced and no end make the server close the connection.
        await send({"type": "http.response.body", "body": body, "more_body": len(body) < len(self._body)})


class StreamReply:
    """An ASGI reply as events; it may wait at a gate, end in an error event, or break off at any byte."""

    def __init__(
        self,
        message: Mapping[str, Any],
        *,
        headers: Mapping[str, str],
        request_id: str,
        cut: int | None,
        gate: StreamGate | None,
        failure: InjectedFailure | None,
    ) -> None:
        self._events: Iterable[dict[str, Any]] = stream_events(message)
        self._headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers}
        self._request_id = request_id
        self._left = cut
        self._gate = gate
        self._failure = failure

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _headers(self._headers)})
        for number, event in enumerate(self._events):
            if self._gate is not None and number == self._gate.after_events:
                await self._hold(self._gate)
            failure = self._failure
            if failure is not None and number == failure.after_events:
                await self._write(send, event_bytes(error_body(failure.kind, failure.message, self._request_id)))
                break
            if not await self._write(send, event_bytes(event)):
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Any, data: bytes) -> bool:
        """Write as many bytes as the cut allows and return whether all were written."""
        if self._left is not None:
            data, whole = data[: self._left], len(data) <= self._left
            self._left -= len(data)
        else:
            whole = True
        await send({"type": "http.response.body", "body": data, "more_body": True})
        return whole

    async def _hold(self, gate: StreamGate) -> None:
        gate.reached.set()
        with anyio.move_on_after(_MAX_HOLD_SECONDS):
            while not gate.is_open:
                await anyio.sleep(_STEP_SECONDS)


# -- events


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
