"""Compaction by OpenAI: the conversation goes to ``/responses/compact`` and comes back as a shorter list of items.

The list holds the user's messages and one encrypted item that only its model reads. It is kept as one block and sent
on as it came; the block's text is for people and for other models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..conversation.wire.carried_items import sealed
from ..ports import ReplyDelta
from ..values import object_of, rows_of
from .failures import broken_reply, event_fields, failure_of_status
from .responses_reply import ResponsesAssembly
from .responses_request import WINDOW
from .sse import ServerEvent
from .tool_input import with_usage

Item = dict[str, Any]
_TAKEN: Final = ("model", "input")
_SUMMARY: Final = "[The earlier conversation was compacted. Only {model} can read the summary; the user had said:]"


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
