"""Convert parts of the Gemini API (text, calls, responses, usage) to the shape of the Messages API."""

from __future__ import annotations

from typing import Any

from ..values import object_of
from .chat_shape import result_block, usage_fields, use_block
from .foreign_values import Record, as_count, as_list, as_text, compact_json


def blocks_of(content: Any) -> list[Record]:
    """Return a text, or a list of parts, as blocks; a thought is left out, and an unknown part becomes its JSON."""
    parts = [{"text": content}] if isinstance(content, str) else as_list(content)
    return [block for part in parts if (block := _block(object_of(part)))]


def _block(part: Record) -> Record | None:
    call, response = object_of(part.get("functionCall")), object_of(part.get("functionResponse"))
    if part.get("thought") is True or not part:
        return None
    if call:
        name = as_text(call.get("name"))
        return use_block(as_text(call.get("id")) or name, name, object_of(call.get("args")))
    if response:
        id = as_text(response.get("id")) or as_text(response.get("name"))
        return result_of(id, object_of(response.get("response")))
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]} if part["text"] else None
    data = object_of(part.get("inlineData"))
    if as_text(data.get("mimeType")).startswith("image/"):
        source = {"type": "base64", "media_type": data["mimeType"], "data": as_text(data.get("data"))}
        return {"type": "image", "source": source}
    return {"type": "text", "text": compact_json(part)}


def result_of(id: str, response: Record) -> Record:
    """Return the response to a call as a ``tool_result`` block."""
    error = as_text(response.get("error"))
    content = as_text(response.get("output")) or error or compact_json(response)
    return result_block(id, content, is_error=bool(error))


def usage_of(recorded: Record, prompt: str, cached: str, *output: str) -> Record | None:
    """Return usage whose prompt includes cached tokens in the shape of the Messages API; None without tokens."""
    fresh = max(0, as_count(recorded.get(prompt)) - as_count(recorded.get(cached)))
    return usage_fields({**recorded, "fresh": fresh}, "fresh", cached, "", *output)
