"""Assemble a streamed chat completion into a reply of the Messages API.

Servers differ: calls may come without an index, with an id used before, or with arguments that are not JSON; the
finish reason may be ``stop`` where a tool was called. A reply is whole once it has a finish reason; a stream without
one is broken. Reasoning text and the fields that a server adds to a call (Gemini's signature) are carried in the
reply, because the server wants them back.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from ..conversation.wire.carried_items import carried_block, carried_text
from ..ports import Reply, ReplyDelta
from ..values import object_of, rows_of
from .chat_request import CALL_FIELDS, MESSAGE_FIELDS
from .content_parts import tool_input, with_usage
from .failures import broken_reply, event_fields, failure_of_stream
from .wire import ServerEvent

_DONE: Final = "[DONE]"
_STOPS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_NOT_IN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")
_REASONING: Final = ("reasoning_content", "reasoning")
_CALL_KEYS: Final = frozenset({"index", "id", "type", "function"})
_encode: Final = msgspec.json.Encoder().encode


class _Call:
    """A tool call while it arrives."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.name = ""
        self.arguments: list[str] = []
        self.fields: dict[str, Any] = {}
        """The fields that the server added to the call."""


class ChatAssembly:
    """A reply that is assembled from chunks in their order; its new calls get no id from ``taken``.

    ``model`` is the model that the request names; the reply carries items for this model alone.
    """

    def __init__(self, who: str, taken: set[str] | None = None, *, model: str = "") -> None:
        self.done = False
        self._who = who
        self._model = model
        self._fields: dict[str, Any] = {}
        self._thinking_field = ""
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
        chunk = event_fields(self._who, event.data)
        if chunk.get("error") or event.name == "error":
            raise failure_of_stream(self._who, chunk)
        yield from self._take(chunk)

    def take_whole(self, body: bytes) -> Iterator[ReplyDelta]:
        """Take a completion in one piece and yield its pieces; raise ``ModelError`` for an error or no JSON."""
        completion = event_fields(self._who, body.decode("utf-8", "replace"))
        if completion.get("error"):
            raise failure_of_stream(self._who, completion)
        choices: list[dict[str, Any]] = [
            {**choice, "delta": choice.get("message") or {}} for choice in rows_of(completion.get("choices"))
        ]
        yield from self._take({**completion, "choices": choices})
        self.done = True

    def reply(self) -> Reply:
        """Return the whole reply; raise ``ReplyBroken`` if no finish reason has come."""
        if self._reason is None:
            raise broken_reply(self._who, "it ended before its end")
        content: list[dict[str, Any]] = []
        if self._thinking_field:
            content.append(carried_text("".join(self._thinking), self._thinking_field))
        if self._fields:
            content.append(carried_block({"type": MESSAGE_FIELDS, "fields": self._fields}, self._model))
        if self._text:
            content.append({"type": "text", "text": "".join(self._text)})
        content += [block for call in self._calls if call.name for block in self._use(call)]
        body = {
            "id": self._head.get("id") or f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": self._head.get("model"),
            "content": content,
            "stop_reason": self._stop_reason(any(block["type"] == "tool_use" for block in content)),
            "stop_sequence": self._matched,
        }
        return Reply(with_usage(body, self._usage))

    def _take(self, chunk: Mapping[str, Any]) -> Iterator[ReplyDelta]:
        for key in ("id", "model"):
            if isinstance(chunk.get(key), str) and chunk[key]:
                self._head.setdefault(key, chunk[key])
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        for choice in rows_of(chunk.get("choices")):
            if choice.get("index") not in (0, None):
                continue
            yield from self._delta(object_of(choice.get("delta")))
            if isinstance(choice.get("finish_reason"), str) and choice["finish_reason"]:
                self._reason = choice["finish_reason"]
                matched = choice.get("stop_reason")
                self._matched = matched if isinstance(matched, str) else None

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[ReplyDelta]:
        yield from self._thought(delta)
        refusal: Any = delta.get("refusal")
        self._refused = self._refused or bool(refusal)
        for said in (delta.get("content"), refusal):
            text = _text(said)
            if text:
                self._text.append(text)
                yield ReplyDelta("text", text)
        for part in rows_of(delta.get("tool_calls")):
            yield from self._call(part)

    def _thought(self, delta: Mapping[str, Any]) -> Iterator[ReplyDelta]:
        """Take reasoning text, and the fields with a server's own form of reasoning."""
        field = next((key for key in _REASONING if delta.get(key)), None)
        if field is not None and isinstance(delta[field], str):
            self._thinking_field = field
            self._thinking.append(delta[field])
            yield ReplyDelta("thinking", delta[field])
        if isinstance(delta.get("extra_content"), dict):
            self._fields["extra_content"] = delta["extra_content"]
        details = rows_of(delta.get("reasoning_details"))
        if details:
            self._fields["reasoning_details"] = _merged(self._fields.get("reasoning_details") or [], details)

    def _call(self, part: Mapping[str, Any]) -> Iterator[ReplyDelta]:
        call = self._find(part)
        call.fields.update({key: value for key, value in part.items() if key not in _CALL_KEYS and value is not None})
        function = object_of(part.get("function"))
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

    def _use(self, call: _Call) -> list[dict[str, Any]]:
        """Return a call as a block, after a block with the fields that the server added to it."""
        base = _NOT_IN_ID.sub("_", call.id) or f"call_{secrets.token_hex(8)}"
        id, turn = base, 2
        while id in self._taken:
            id, turn = f"{base}-{turn}", turn + 1
        self._taken.add(id)
        use = {"type": "tool_use", "id": id, "name": call.name, "input": tool_input("".join(call.arguments))}
        if not call.fields:
            return [use]
        return [carried_block({"type": CALL_FIELDS, "call": id, "fields": call.fields}, self._model), use]

    def _stop_reason(self, called: bool) -> str:
        reason = _STOPS.get(str(self._reason), "end_turn")
        if self._refused:
            return "refusal"
        if reason in ("end_turn", "tool_use"):
            return "tool_use" if called else "stop_sequence" if self._matched else "end_turn"
        return reason


def _merged(before: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return reasoning details as if they had come in one piece: parts with one index are one, their texts joined."""
    out = [dict(one) for one in before]
    for part in new:
        last = out[-1] if out else {}
        if out and part.get("index") is not None and part.get("index") == last.get("index"):
            texts = {key: f"{last.get(key) or ''}{part[key]}" for key in ("text", "summary", "data") if part.get(key)}
            last.update({key: value for key, value in part.items() if value is not None} | texts)
        else:
            out.append(dict(part))
    return out


def _text(said: Any) -> str:
    if isinstance(said, str):
        return said
    return "".join(str(part.get("text") or "") for part in rows_of(said))
