"""Assemble a streamed chat completion into a reply of the Messages API.

Servers differ: calls may come without an index, with an id used before, or with arguments that are not JSON; the
finish reason may be ``stop`` where a tool was called. A reply is whole once it has a finish reason; a stream without
one is broken.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from ..errors import ReplyBroken
from ..ports import Reply, ReplyDelta
from .failures import failure_of_stream
from .sse import ServerEvent
from .tool_input import read_json, tool_input

__all__ = ["ChatAssembly", "usage_of"]

_DONE: Final = "[DONE]"
_STOPS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_NOT_IN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")
_encode: Final = msgspec.json.Encoder().encode


class _Call:
    """A tool call while it arrives."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.name = ""
        self.arguments: list[str] = []


class ChatAssembly:
    """A reply that is assembled from chunks in their order; its new calls get no id from ``taken``."""

    def __init__(self, who: str, taken: set[str] | None = None) -> None:
        self.done = False
        self._who = who
        self._taken = set(taken or ())
        self._head: dict[str, Any] = {}
        self._usage: Mapping[str, Any] = {}
        self._reason: str | None = None
        self._matched: str | None = None
        self._refused = False
        self._thinking: list[str] = []
        self._text: list[str] = []
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}

    def feed(self, event: ServerEvent) -> Iterator[ReplyDelta]:
        """Take one event and yield the pieces in it; raise ``ModelError`` for an error or a broken event."""
        if event.data.startswith(_DONE):
            self.done = True
            return
        chunk = self._read(event.data)
        if chunk.get("error") or event.name == "error":
            raise failure_of_stream(self._who, chunk)
        yield from self._take(chunk)

    def take_whole(self, body: bytes) -> Iterator[ReplyDelta]:
        """Take a completion that came in one piece, not streamed, and yield its pieces.

        Raise ``ModelError`` if it is an error or not JSON.
        """
        completion = self._read(body.decode("utf-8", "replace"))
        if completion.get("error"):
            raise failure_of_stream(self._who, completion)
        choices: list[dict[str, Any]] = [
            {**choice, "delta": choice.get("message") or {}} for choice in _rows(completion.get("choices"))
        ]
        yield from self._take({**completion, "choices": choices})
        self.done = True

    def reply(self) -> Reply:
        """Return the whole reply; raise ``ReplyBroken`` if no finish reason has come."""
        if self._reason is None:
            raise self._broken("it ended before its end")
        content: list[dict[str, Any]] = []
        if self._thinking:
            content.append({"type": "thinking", "thinking": "".join(self._thinking), "signature": ""})
        if self._text:
            content.append({"type": "text", "text": "".join(self._text)})
        content += [self._use(call) for call in self._calls if call.name]
        body = {
            "id": self._head.get("id") or f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": self._head.get("model"),
            "content": content,
            "stop_reason": self._stop_reason(any(block["type"] == "tool_use" for block in content)),
            "stop_sequence": self._matched,
        }
        usage = usage_of(self._usage)
        return Reply({**body, "usage": usage} if usage else body)

    def _take(self, chunk: Mapping[str, Any]) -> Iterator[ReplyDelta]:
        for key in ("id", "model"):
            if isinstance(chunk.get(key), str) and chunk[key]:
                self._head.setdefault(key, chunk[key])
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        for choice in _rows(chunk.get("choices")):
            if choice.get("index") not in (0, None):
                continue
            yield from self._delta(_object(choice.get("delta")))
            if isinstance(choice.get("finish_reason"), str) and choice["finish_reason"]:
                self._reason = choice["finish_reason"]
                matched = choice.get("stop_reason")
                self._matched = matched if isinstance(matched, str) else None

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[ReplyDelta]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            self._thinking.append(thought)
            yield ReplyDelta("thinking", thought)
        refusal: Any = delta.get("refusal")
        self._refused = self._refused or bool(refusal)
        for said in (delta.get("content"), refusal):
            text = _text(said)
            if text:
                self._text.append(text)
                yield ReplyDelta("text", text)
        for part in _rows(delta.get("tool_calls")):
            yield from self._call(part)

    def _call(self, part: Mapping[str, Any]) -> Iterator[ReplyDelta]:
        call = self._find(part)
        function = _object(part.get("function"))
        if not call.name and function.get("name"):
            call.name = str(function["name"])
            yield ReplyDelta("tool", call.name)
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.arguments.append(arguments)
        elif arguments is not None:
            call.arguments.append(_encode(arguments).decode())

    def _find(self, part: Mapping[str, Any]) -> _Call:
        """Return the call that a part belongs to: by its index, or the last one; a new id begins a new call."""
        id, index = part.get("id") or "", part.get("index")
        number = index if isinstance(index, int) else max(self._at, default=0)
        there = self._at.get(number)
        if there is not None and (not id or id == there.id):
            return there
        if there is not None and not there.id and not there.arguments:
            there.id = str(id)
            return there
        call = _Call(str(id))
        self._calls.append(call)
        self._at[number] = call
        return call

    def _use(self, call: _Call) -> dict[str, Any]:
        base = _NOT_IN_ID.sub("_", call.id) or f"call_{secrets.token_hex(8)}"
        id, turn = base, 2
        while id in self._taken:
            id, turn = f"{base}-{turn}", turn + 1
        self._taken.add(id)
        return {"type": "tool_use", "id": id, "name": call.name, "input": tool_input("".join(call.arguments))}

    def _stop_reason(self, called: bool) -> str:
        reason = _STOPS.get(str(self._reason), "end_turn")
        if self._refused:
            return "refusal"
        if reason in ("end_turn", "tool_use"):
            return "tool_use" if called else "stop_sequence" if self._matched else "end_turn"
        return reason

    def _read(self, data: str) -> dict[str, Any]:
        try:
            value = read_json(data)
        except ValueError as error:
            raise self._broken(f"an event is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise self._broken("an event is not an object")
        return cast("dict[str, Any]", value)

    def _broken(self, why: str) -> ReplyBroken:
        return ReplyBroken(f"{self._who}: the reply is broken: {why}")


def usage_of(counted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return chat usage as the Messages API counts it, ``input_tokens`` without cached ones; None if missing."""
    prompt, output = _count(counted.get("prompt_tokens")), _count(counted.get("completion_tokens"))
    if not prompt and not output:
        return None
    details = _object(counted.get("prompt_tokens_details"))
    read = _count(details.get("cached_tokens")) or _count(counted.get("prompt_cache_hit_tokens"))
    read = min(read, prompt)
    return {
        "input_tokens": prompt - read,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": read,
        "output_tokens": output,
    }


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _text(said: Any) -> str:
    """Return the text of a content: a string, or the texts of its parts."""
    if isinstance(said, str):
        return said
    return "".join(str(part.get("text") or "") for part in _rows(said))


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _rows(value: Any) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
