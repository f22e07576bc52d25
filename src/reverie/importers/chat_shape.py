"""Convert OpenAI-like parts (usage, tool calls, content) to the shape of the Messages API that the log uses."""

from __future__ import annotations

import re
from typing import Any, Final

from ..values import object_of, rows_of
from .foreign_values import Record, as_count, as_list, as_text, compact_json, first_of
from .record_files import decode_record

_STOPS: Final = {
    "stop": "end_turn",
    "end_turn": "end_turn",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "tool_calls": "tool_use",
    "tooluse": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,")
_TEXTS: Final = frozenset({"text", "input_text", "output_text"})


def usage_of(recorded: Record) -> Record | None:
    """Return OpenAI-like usage in the shape of the Messages API; None if no tokens were reported.

    ``prompt_tokens`` includes cached tokens; ``input_tokens`` of the result does not.
    """
    prompt = as_count(recorded.get("prompt_tokens")) or as_count(recorded.get("input_tokens"))
    details = object_of(recorded.get("prompt_tokens_details")) or object_of(recorded.get("input_tokens_details"))
    read = (
        as_count(details.get("cached_tokens"))
        or as_count(recorded.get("cached_input_tokens"))
        or as_count(recorded.get("cache_read_input_tokens"))
    )
    written = as_count(details.get("cache_creation_tokens")) or as_count(recorded.get("cache_creation_input_tokens"))
    output = as_count(recorded.get("completion_tokens")) or as_count(recorded.get("output_tokens"))
    counts = {"fresh": max(0, prompt - read - written), "read": read, "written": written, "output": output}
    return usage_fields(counts, "fresh", "read", "written", "output")


def usage_fields(counts: Record, fresh: str, read: str, written: str, *output: str) -> Record | None:
    """Return usage in the shape of the Messages API from the counts of these names; None if no tokens were reported.

    ``fresh`` is the name of the input tokens that were neither read from nor written to a cache.
    """
    found = {
        "input_tokens": as_count(counts.get(fresh)),
        "cache_creation_input_tokens": as_count(counts.get(written)),
        "cache_read_input_tokens": as_count(counts.get(read)),
        "output_tokens": sum(as_count(counts.get(name)) for name in output),
    }
    return found if any(found.values()) else None


def stop_reason_of(recorded: Any) -> str | None:
    """Return the stop reason in the words of the Messages API, an unknown one in lower case; None if empty."""
    said = as_text(recorded)
    return _STOPS.get(said.lower(), said.lower()) if said else None


def reply_of(response: Record, fallback_id: str) -> Record:
    """Return the ``reply`` field of a log entry for a chat completion: id, model, stop reason and usage."""
    recorded = object_of(response.get("usage"))
    reply: Record = {
        "id": as_text(response.get("id")) or fallback_id,
        "model": as_text(response.get("model")),
        "stop_reason": stop_reason_of(first_of(response.get("choices")).get("finish_reason")),
        "usage": usage_of(recorded),
        "recorded": recorded,
    }
    return {name: value for name, value in reply.items() if value}


def arguments_of(recorded: Any) -> Record:
    """Return a call's arguments, recorded as JSON text or a value, as an object; others go under ``arguments``."""
    if isinstance(recorded, str):
        try:
            recorded = decode_record(recorded.encode("utf-8", "replace"))
        except ValueError:
            return {"arguments": recorded} if recorded else {}
    if isinstance(recorded, dict):
        return object_of(recorded)
    return {} if recorded is None else {"arguments": compact_json(recorded)}


def tool_uses(calls: Any) -> list[Record]:
    """Return chat tool calls as a list of ``tool_use`` blocks; a call without an id or a name is left out."""
    out: list[Record] = []
    for call in rows_of(calls):
        function = object_of(call.get("function"))
        name, id = as_text(function.get("name")), as_text(call.get("id"))
        if name and id:
            out.append(use_block(id, name, arguments_of(function.get("arguments"))))
    return out


class CallIds:
    """The call ids of a session; a repeated id gets a suffix, because some programs count from 1 in every reply."""

    def __init__(self) -> None:
        self._latest: dict[str, str] = {}
        self._taken: set[str] = set()
        self.open = ""
        """The call whose output is the next user message, where a program writes commands as text."""

    def renamed(self, uses: list[Record]) -> list[Record]:
        """Give ``tool_use`` blocks ids that are unique in the session, in place, and return the same list."""
        for use in uses:
            id, turn = use["id"], 2
            while use["id"] in self._taken:
                use["id"], turn = f"{id}-{turn}", turn + 1
            self._taken.add(use["id"])
            self._latest[id] = use["id"]
        return uses

    def name_of(self, id: str) -> str:
        """Return the unique id of the newest call with a recorded id; the recorded id itself if no call has it."""
        return self._latest.get(id, id)

    def __contains__(self, id: str) -> bool:
        return id in self._latest


def declared_tools(tools: Any) -> list[Record]:
    """Return chat tool declarations in the shape of the Messages API; those without a name are left out."""
    out: list[Record] = []
    for tool in rows_of(tools):
        function = object_of(tool.get("function")) or tool
        if name := as_text(function.get("name")):
            schema = (
                object_of(function.get("parameters")) or object_of(function.get("input_schema")) or {"type": "object"}
            )
            out.append({"name": name, "description": as_text(function.get("description")), "input_schema": schema})
    return out


def use_block(id: str, name: str, given: Record) -> Record:
    """Return a call of a tool."""
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def result_block(call: str, content: Any, *, is_error: bool = False) -> Record:
    """Return the result of a call."""
    return {"type": "tool_result", "tool_use_id": call, **({"is_error": True} if is_error else {}), "content": content}


def image_of(url: str) -> Record:
    """Return an image block for a data URL or for the address of an image."""
    found = _DATA_URL.match(url)
    if found:
        source: Record = {"type": "base64", "media_type": found[1], "data": url[found.end() :]}
    else:
        source = {"type": "url", "url": url}
    return {"type": "image", "source": source}


def content_of(content: Any) -> str | list[Record]:
    """Return chat content in the shape of the Messages API; an unknown part becomes a text block with its JSON."""
    if isinstance(content, str):
        return content
    out: list[Record] = []
    for part in as_list(content):
        if isinstance(part, str):
            out.append({"type": "text", "text": part})
            continue
        block = object_of(part)
        kind = as_text(block.get("type"))
        url = block.get("image_url")
        address = as_text(url) or as_text(object_of(url).get("url"))
        if kind in _TEXTS:
            if text := as_text(block.get("text")):
                out.append({"type": "text", "text": text})
        elif address:
            out.append(image_of(address))
        elif kind == "image" and isinstance(block.get("source"), dict):
            out.append({"type": "image", "source": block["source"]})
        elif kind:
            out.append({"type": "text", "text": compact_json(block)})
    return out


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


def gemini_usage(recorded: Record, prompt: str, cached: str, *output: str) -> Record | None:
    """Return usage whose prompt includes cached tokens in the shape of the Messages API; None without tokens."""
    fresh = max(0, as_count(recorded.get(prompt)) - as_count(recorded.get(cached)))
    return usage_fields({**recorded, "fresh": fresh}, "fresh", cached, "", *output)
