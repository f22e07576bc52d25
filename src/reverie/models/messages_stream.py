"""Assemble a reply of the Messages API from its events, without dropping or adding anything.

Unknown blocks and fields are kept as they came. A reply is whole only when the provider says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final, cast

import msgspec

from ..ports import Reply, ReplyDelta
from .content_parts import read_json, tool_input
from .failures import broken_reply, failure_of_stream
from .wire import ServerEvent

_decode: Final = msgspec.json.Decoder().decode
_ENDING: Final = frozenset({"type", "delta", "usage"})
_CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


class MessageAssembly:
    """A reply that is assembled from events in their order; ``done`` is set by ``message_stop``."""

    def __init__(self, who: str) -> None:
        self.done = False
        self._who = who
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._open: set[int] = set()

    @property
    def begun(self) -> bool:
        """Whether the message has begun to arrive."""
        return self._message is not None

    def feed(self, event: ServerEvent) -> Iterator[ReplyDelta]:
        """Take one event and yield the pieces in it; raise ``ModelError`` for an error or a broken event."""
        try:
            fields: Any = _decode(event.data)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            fields = self._read(event.data)
        if not isinstance(fields, dict):
            raise broken_reply(self._who, "an event is not an object")
        said = cast("dict[str, Any]", fields)
        kind = said.get("type") or event.name
        if kind == "error" or ("error" in said and "type" not in said):
            raise failure_of_stream(self._who, said)
        try:
            yield from self._take(str(kind), said)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise broken_reply(self._who, f"an event {str(kind)[:40]!r} does not fit: {error!r}") from error

    def take_whole(self, body: bytes) -> Iterator[ReplyDelta]:
        """Take a reply that came in one piece, not streamed, and yield its pieces; raise if it is no message."""
        read = self._read(body.decode("utf-8", "replace"))
        message = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
        if message.get("type") != "message" or not isinstance(message.get("content"), list):
            raise broken_reply(self._who, "the answer is not a message")
        self._message, self.done = message, True
        self._blocks = dict(enumerate(cast("list[dict[str, Any]]", message["content"])))
        for block in self._blocks.values():
            yield from _shown(block)

    def reply(self) -> Reply:
        """Return the whole reply; raise ``ReplyBroken`` if the provider has not finished it."""
        if self._message is None or not self.done:
            raise broken_reply(self._who, "it ended before its end")
        if self._open or not self._message.get("stop_reason"):
            raise broken_reply(self._who, "it ended with a block still open, or without a reason")
        return Reply({**self._message, "content": [self._blocks[index] for index in sorted(self._blocks)]})

    def _take(self, kind: str, said: dict[str, Any]) -> Iterator[ReplyDelta]:
        if kind == "message_start":
            self._message = {**said["message"]}
            self._message.setdefault("content", [])
        elif kind == "content_block_start":
            yield from self._start(said["index"], said["content_block"])
        elif kind == "content_block_delta":
            yield from self._delta(said["index"], said["delta"])
        elif kind == "content_block_stop":
            self._stop(said["index"])
        elif kind == "message_delta":
            self._end(said)
        elif kind == "message_stop":
            self.done = True

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[ReplyDelta]:
        if index in self._blocks:
            raise ValueError(f"block {index} begins twice")
        self._blocks[index] = deepcopy(block)
        self._open.add(index)
        if block["type"] == "fallback" and self._message is not None:
            # Another model took over in the middle; a reply that is not streamed names it too.
            self._message["model"] = block["to"]["model"]
        yield from _shown(block)

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[ReplyDelta]:
        if index not in self._open:
            raise ValueError(f"block {index} is not open")
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
                yield ReplyDelta("text", delta["text"])
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
                yield ReplyDelta("thinking", delta["thinking"])
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta["partial_json"])
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case _:
                block.update({key: value for key, value in delta.items() if key != "type" and value is not None})

    def _stop(self, index: int) -> None:
        self._open.remove(index)
        text = "".join(self._inputs.pop(index, ()))
        if text:
            self._blocks[index]["input"] = tool_input(text)

    def _end(self, said: Mapping[str, Any]) -> None:
        if self._message is None:
            raise ValueError("no message has begun")
        late = {**said["delta"], **{key: value for key, value in said.items() if key not in _ENDING}}
        # A null does not override the value from the start event.
        self._message.update(
            {key: value for key, value in late.items() if value is not None or key not in self._message}
        )
        usage: Mapping[str, Any] = said.get("usage") or {}
        counted = {key: value for key, value in usage.items() if value is not None}
        self._message["usage"] = {**(self._message.get("usage") or {}), **counted}

    def _read(self, data: str) -> Any:
        try:
            return read_json(data)
        except ValueError as error:
            raise broken_reply(self._who, f"an event is not JSON: {error}") from error


def _shown(block: Mapping[str, Any]) -> Iterator[ReplyDelta]:
    """Yield the pieces that a block holds when it starts."""
    kind = block.get("type")
    if kind in _CALLS:
        yield ReplyDelta("tool", str(block.get("name") or ""))
    elif kind == "text" and block.get("text"):
        yield ReplyDelta("text", block["text"])
    elif kind == "thinking" and block.get("thinking"):
        yield ReplyDelta("thinking", block["thinking"])
