"""Translate a request of the Messages API for chat completions. Pure: the same message always gives the same text.

Each message is translated by itself, so a request that extends another gives a translation that extends the other's,
and a server's prefix cache hits. Thinking is never sent: other providers cannot verify its signature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from ..conversation.entries import clean
from ..conversation.fork import FORK_TAG

__all__ = ["ChatMessage", "chat_messages", "chat_request", "used_ids"]

ChatMessage: TypeAlias = "dict[str, Any]"
Block: TypeAlias = "Mapping[str, Any]"

NO_RESULT: Final = "[no result]"
IMAGE_BELOW: Final = "[image: see the next user message]"
_encode: Final = msgspec.json.Encoder().encode
_UNSENT: Final = frozenset({"thinking", "redacted_thinking", "cache_edits"})
_SAME: Final = ("temperature", "top_p")
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def chat_request(request: Mapping[str, Any], *, limit_field: str = "max_tokens") -> dict[str, Any]:
    """Return the body of a streamed chat completion for a request of the Messages API.

    ``limit_field`` is the server's name for ``max_tokens``.
    """
    system: Any = request.get("system")
    messages: Any = request.get("messages") or ()
    said = _joined(_blocks(system))
    opening: list[ChatMessage] = [{"role": "system", "content": said}] if said else []
    body: dict[str, Any] = {"model": request.get("model"), "messages": [*opening, *chat_messages(messages)]}
    if request.get("max_tokens") is not None:
        body[limit_field] = request["max_tokens"]
    body.update({key: request[key] for key in _SAME if request.get(key) is not None})
    if request.get("stop_sequences"):
        body["stop"] = list(request["stop_sequences"])
    body.update(_tools(request))
    body.update(_format(request))
    body.update(request.get("extra_body") or {})
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


def chat_messages(messages: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    """Return messages of the Messages API as chat messages, with a result or a placeholder after each call.

    A result without a call becomes text of the user's message.
    """
    out: list[ChatMessage] = []
    open_calls: list[str] = []
    for message in messages:
        blocks = list(_blocks(message.get("content")))
        if message.get("role") == "assistant":
            out += _answered(open_calls, {})
            said = _assistant(blocks)
            out.append(said)
            open_calls = [call["id"] for call in said.get("tool_calls", ())]
        else:
            out += _user(blocks, open_calls)
            open_calls = []
    return out


def used_ids(request: Mapping[str, Any]) -> set[str]:
    """Return the set of ids of all calls in a request, so that a new call gets another id."""
    messages: Any = request.get("messages") or ()
    return {
        str(block.get("id"))
        for message in messages
        for block in _blocks(message.get("content"))
        if block.get("type") == "tool_use"
    }


def _assistant(blocks: Sequence[Block]) -> ChatMessage:
    calls = [
        {
            "id": block.get("id"),
            "type": "function",
            "function": {"name": block.get("name"), "arguments": _json(block.get("input") or {})},
        }
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    text = _joined(block for block in blocks if block.get("type") != "tool_use")
    if calls:
        return {"role": "assistant", "content": text or None, "tool_calls": calls}
    return {"role": "assistant", "content": text}


def _user(blocks: Sequence[Block], open_calls: Sequence[str]) -> Iterator[ChatMessage]:
    """Yield a result or a placeholder for each open call, in the calls' order, then other content as a message."""
    results: dict[str, str] = {}
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if block.get("type") != "tool_result":
            parts += _parts(block)
            continue
        call = str(block.get("tool_use_id"))
        text, images = _result(block)
        if call in open_calls and call not in results:
            results[call] = text
            parts += [_text_part(f"Image of the result of call {call}:"), *images] if images else []
        else:
            parts += [_text_part(text), *images]
    yield from _answered(open_calls, results)
    directive = parts.pop() if len(parts) > 1 and parts[-1].get("text", "").startswith(FORK_TAG) else None
    if any(part["type"] != "text" for part in parts):
        yield {"role": "user", "content": parts}
    elif parts or not open_calls:
        yield {"role": "user", "content": "\n\n".join(part["text"] for part in parts)}
    if directive is not None:  # a message that grew would not be found in the server's cache
        yield {"role": "user", "content": directive["text"]}


def _answered(open_calls: Sequence[str], results: Mapping[str, str]) -> Iterator[ChatMessage]:
    for call in open_calls:
        yield {"role": "tool", "tool_call_id": call, "content": results.get(call, NO_RESULT)}


def _result(block: Block) -> tuple[str, list[dict[str, Any]]]:
    """Return a result's text, marked if it is an error, and its images, which a tool message cannot hold."""
    parts = [part for inner in _blocks(block.get("content")) for part in _parts(inner)]
    images = [part for part in parts if part["type"] != "text"]
    text = "\n\n".join(part["text"] if part["type"] == "text" else IMAGE_BELOW for part in parts)
    if block.get("is_error") and not text.lower().startswith("error"):
        text = f"Error: {text}"
    return text, images


def _parts(block: Block) -> list[dict[str, Any]]:
    """Return a user's block as a list of parts of chat content; a block without text may give none."""
    source: Any = block.get("source")
    if isinstance(source, Mapping) and block.get("type") in ("image", "document"):
        fields = cast("Mapping[str, Any]", source)
        media = str(fields.get("media_type") or "application/octet-stream")
        url = fields.get("url") or f"data:{media};base64,{fields.get('data', '')}"
        if block.get("type") == "image" and fields.get("type") in ("base64", "url"):
            return [{"type": "image_url", "image_url": {"url": url}}]
        if fields.get("type") == "base64":
            name = str(block.get("title") or "document.pdf")
            return [{"type": "file", "file": {"filename": name, "file_data": url}}]
        if fields.get("type") == "text":
            return [_text_part(str(fields.get("data", "")))]
    text = _words(block)
    return [_text_part(text)] if text else []


def _words(block: Block) -> str:
    """Return the text of a block, or a placeholder with its type; empty for thinking and cache edits."""
    if block.get("type") in _UNSENT:
        return ""
    for key in ("text", "content"):
        said: Any = block.get(key)
        if isinstance(said, str):
            return said
        if isinstance(said, list) and key == "content":
            return _joined(_blocks(cast("list[Any]", said)))
    return f"[{block.get('type')}]"


def _joined(blocks: Iterator[Block] | Sequence[Block]) -> str:
    return "\n\n".join(filter(None, map(_words, blocks)))


def _blocks(content: Any) -> Iterator[Block]:
    """Yield the blocks of a content; a string is one text block."""
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, Sequence):
        for block in cast("Sequence[Any]", content):
            yield cast("Block", block) if isinstance(block, Mapping) else {"type": "text", "text": str(block)}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tools(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request fields for tools and their choice, empty without tools that have a schema.

    Tools that run at Anthropic have no schema and are left out.
    """
    given: Any = request.get("tools") or ()
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                **({"description": tool["description"]} if tool.get("description") else {}),
                "parameters": tool["input_schema"],
                **({"strict": True} if tool.get("strict") else {}),
            },
        }
        for tool in given
        if "input_schema" in tool
    ]
    if not tools:
        return {}
    out: dict[str, Any] = {"tools": tools}
    choice: Any = request.get("tool_choice")
    if isinstance(choice, Mapping):
        fields = cast("Mapping[str, Any]", choice)
        if fields.get("type") == "tool":
            out["tool_choice"] = {"type": "function", "function": {"name": fields.get("name")}}
        elif fields.get("type") in _CHOICES:
            out["tool_choice"] = _CHOICES[str(fields["type"])]
        if fields.get("disable_parallel_tool_use"):
            out["parallel_tool_calls"] = False
    return out


def _format(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request field for the reply's JSON schema; an empty dict if the request asks for none."""
    config: Any = request.get("output_config") or {}
    asked: Any = config.get("format") or request.get("output_format") or {}
    if asked.get("type") != "json_schema":
        return {}
    schema: dict[str, Any] = {"name": "reply", "schema": asked.get("schema") or {}, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _json(value: Any) -> str:
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _encode(clean(value)).decode()
