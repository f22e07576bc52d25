"""Assemble a streamed response of OpenAI into a reply of the Messages API.

An item counts when it is done: before that, encrypted content may be incomplete. Each item that must go back is
carried in the reply's content, before the block that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..conversation.entries import compact_json
from ..conversation.wire.carried_items import carried_block, sealed
from ..ports import Reply, ReplyDelta
from ..values import object_of, rows_of
from .content_parts import tool_input, with_usage
from .failures import broken_reply, event_fields, failure_of_status
from .responses_request import WINDOW
from .wire import ServerEvent

Item = dict[str, Any]
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_DELTAS: Final[Mapping[str, Any]] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
}
_STATUSES: Final = {"server_error": 500, "rate_limit_exceeded": 429, "vector_store_timeout": 504}
_TAKEN: Final = ("model", "input")
_SUMMARY: Final = "[The earlier conversation was compacted. Only {model} can read the summary; the user had said:]"


class ResponsesAssembly:
    """A reply that is assembled from the events of a response; ``model`` is the model that the request names."""

    def __init__(self, who: str, *, model: str) -> None:
        self.done = False
        self._who = who
        self._model = model
        self._items: dict[int, Item] = {}
        self._response: Item = {}

    def feed(self, event: ServerEvent) -> Iterator[ReplyDelta]:
        """Take one event and yield the pieces in it; raise ``ModelError`` for an error or a broken event."""
        said = event_fields(self._who, event.data)
        kind = said.get("type") or event.name
        if kind == "error":
            raise self._failed(said)
        if kind in _DELTAS and isinstance(said.get("delta"), str):
            yield ReplyDelta(_DELTAS[kind], said["delta"])
        elif kind == "response.output_item.added" and object_of(said.get("item")).get("type") == "function_call":
            yield ReplyDelta("tool", str(said["item"].get("name") or ""))
        elif kind == "response.output_item.done":
            self._items[int(said.get("output_index") or 0)] = object_of(said.get("item"))
        elif kind in _ENDS:
            self._end(object_of(said.get("response")))

    def take_whole(self, body: bytes) -> Iterator[ReplyDelta]:
        """Take a response that came in one piece, not streamed, and yield its pieces."""
        self._end(event_fields(self._who, body.decode("utf-8", "replace")))
        for block in self.reply().body["content"]:
            if block["type"] == "text":
                yield ReplyDelta("text", block["text"])
            elif block["type"] == "tool_use":
                yield ReplyDelta("tool", block["name"])

    def reply(self) -> Reply:
        """Return the whole reply; raise ``ReplyBroken`` if the provider has not finished it."""
        if not self.done:
            raise broken_reply(self._who, "it ended before its end")
        return Reply(self._body())

    def _body(self) -> dict[str, Any]:
        streamed = [self._items[index] for index in sorted(self._items)]
        output: Any = streamed or self._response.get("output") or []
        return reply_of_response({**self._response, "output": output}, self._model)

    def _end(self, response: Item) -> None:
        if response.get("error") or response.get("status") == "failed":
            raise self._failed(object_of(response.get("error")))
        if response.get("status") not in ("completed", "incomplete"):
            raise broken_reply(self._who, f"its status is {response.get('status')!r}")
        self._response, self.done = response, True

    def _failed(self, said: Item) -> Exception:
        error = object_of(said.get("error")) or said
        status = _STATUSES.get(str(error.get("code")), 400 if error.get("code") else 500)
        return failure_of_status(self._who, status, {"error": error})


def reply_of_response(response: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return a response as the body of a reply of the Messages API; ``model`` is the model that the request names."""
    output: Any = response.get("output") or []
    content = [block for item in output for block in _blocks(item, model)]
    body: dict[str, Any] = {
        "id": response.get("id"),
        "type": "message",
        "role": "assistant",
        "model": response.get("model"),
        "content": content,
        "stop_reason": _stop_reason(response, content),
        "stop_sequence": None,
    }
    return with_usage(body, object_of(response.get("usage")))


def _blocks(item: Item, model: str) -> Iterator[dict[str, Any]]:
    """Yield the blocks of an output item: one that carries the item or its frame, and those that show its content."""
    kind = item.get("type")
    if kind == "message":
        parts = [part for part in rows_of(item.get("content")) if _part_text(part)]
        bare = [{key: value for key, value in part.items() if key not in ("text", "refusal")} for part in parts]
        frame = {key: item[key] for key in ("type", "id", "status", "phase") if item.get(key) is not None}
        yield carried_block({**frame, "parts": bare}, model)
        yield from ({"type": "text", "text": _part_text(part)} for part in parts)
    elif kind == "function_call":
        given = tool_input(str(item.get("arguments") or "{}"))
        same = item.get("arguments") == compact_json(given)
        left_out = ("name", "arguments") if same else ("name",)
        frame = {key: value for key, value in item.items() if key not in left_out and value is not None}
        yield carried_block(frame, model)
        yield {"type": "tool_use", "id": item.get("call_id"), "name": item.get("name"), "input": given}
    else:
        yield carried_block(item, model)


def _part_text(part: Mapping[str, Any]) -> str:
    return str(part.get("text") or part.get("refusal") or "")


def _stop_reason(response: Mapping[str, Any], content: list[dict[str, Any]]) -> str:
    output: Any = response.get("output") or []
    parts = [part for item in output for part in rows_of(object_of(item).get("content"))]
    reason = object_of(response.get("incomplete_details")).get("reason")
    if reason == "content_filter" or any(part.get("type") == "refusal" for part in parts):
        return "refusal"
    if reason is not None or response.get("status") == "incomplete":
        return "max_tokens"
    return "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"


def compact_body(body: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body that asks for a compaction of a response's input, so that its cached prefix is read.

    The instructions of the request's field ``compaction`` are the last item.
    """
    told = object_of(request.get("compaction")).get("instructions")
    last: list[Item] = []
    if isinstance(told, str) and told.strip():
        last = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": told}]}]
    return {**{key: body[key] for key in _TAKEN}, "input": [*body["input"], *last]}


def compaction_reply(response: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return a compacted conversation as a reply of the Messages API: one compaction block, or none if it failed."""
    items = rows_of(response.get("output"))
    whole = bool(items) and items[-1].get("type") == "compaction"
    block = {
        "type": "compaction",
        "content": "\n".join([_SUMMARY.format(model=model), *map(_words, items)]).strip(),
        "signature": sealed({"type": WINDOW, "items": items}, model),
    }
    body: dict[str, Any] = {
        "id": response.get("id"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block] if whole else [],
        "stop_reason": "compaction" if whole else "end_turn",
        "stop_sequence": None,
    }
    return with_usage(body, object_of(response.get("usage")))


class CompactionAssembly(ResponsesAssembly):
    """The reply to a compaction, which comes in one piece; ``model`` is the model that the request names."""

    def feed(self, event: ServerEvent) -> Iterator[ReplyDelta]:
        """Raise ``ReplyBroken``: a compaction is not streamed."""
        raise broken_reply(self._who, f"a compaction came as a stream ({event.name})")

    def take_whole(self, body: bytes) -> Iterator[ReplyDelta]:
        """Take the compacted conversation and yield nothing; raise ``ModelError`` if it is an error."""
        self._response = event_fields(self._who, body.decode("utf-8", "replace"))
        if self._response.get("error") or "output" not in self._response:
            raise failure_of_status(self._who, 500, self._response)
        self.done = True
        yield from ()

    def _body(self) -> dict[str, Any]:
        return compaction_reply(self._response, self._model)


def _words(item: Item) -> str:
    """Return the text of a message among compacted items; empty for other items."""
    content: Any = item.get("content") if item.get("type", "message") == "message" else None
    if isinstance(content, str):
        return f"- {content}"
    texts = [str(part.get("text") or "") for part in rows_of(content)]
    return f"- {' '.join(filter(None, texts))}" if any(texts) else ""
