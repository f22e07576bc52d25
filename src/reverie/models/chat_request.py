"""Translate a request of the Messages API for chat completions. Pure: the same message always gives the same text.

Each message is translated by itself, so a request that extends another gives a translation that extends the other's,
and a server's prefix cache hits. Signed thinking is never sent: other providers cannot verify its signature. Reasoning
text of a chat server, and the fields that the server added, go back with tool calls as they came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ..conversation.entries import compact_json
from ..conversation.fork import FORK_TAG
from ..conversation.wire.carried_items import carried_item, text_field
from ..model_facts import ModelFacts, facts_of
from .content_parts import (
    Block,
    Part,
    content_blocks,
    content_parts,
    error_text,
    joined_text,
    text_part,
)
from .request_options import (
    effort_of,
    function_tools,
    output_schema,
    sampling_of,
    told_blocks,
    tool_changes,
    tool_fields,
)

ChatMessage: TypeAlias = "dict[str, Any]"

NO_RESULT: Final = "[no result]"
NO_CONTENT: Final = "[no content]"
IMAGE_BELOW: Final = "[image: see the next user message]"
CALL_FIELDS: Final = "chat_call"
MESSAGE_FIELDS: Final = "chat_message"
"""Kinds of carried items: the fields that a server added to a tool call or to its message."""


def chat_body(
    request: Mapping[str, Any], *, limit_field: str = "max_tokens", facts: ModelFacts | None = None
) -> dict[str, Any]:
    """Return the body of a chat completion for a request of the Messages API, without extras and not streamed.

    ``limit_field`` is the server's name for ``max_tokens``; ``facts`` are the model's, if not those of its name.
    """
    model = str(request.get("model") or "")
    facts = facts or facts_of(model)
    messages: Any = request.get("messages") or ()
    opening = _opening(request, facts)
    body: dict[str, Any] = {
        "model": request.get("model"),
        "messages": [*opening, *chat_messages(messages, model=model, facts=facts)],
    }
    if request.get("max_tokens") is not None:
        body[limit_field] = request["max_tokens"]
    body.update(sampling_of(request, facts))
    effort = effort_of(request, facts)
    if effort is not None:
        body["reasoning_effort"] = effort
    if request.get("stop_sequences"):
        body["stop"] = list(request["stop_sequences"])
    body.update(_tools(request))
    schema = output_schema(request)
    if schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def chat_messages(
    messages: Sequence[Mapping[str, Any]], *, model: str = "", facts: ModelFacts | None = None
) -> list[ChatMessage]:
    """Return messages of the Messages API as chat messages, with a result or a placeholder after each call.

    A result without a call becomes text of the user's message.
    """
    facts = facts or facts_of(model)
    marks = _takes_marks(facts)
    out: list[ChatMessage] = []
    open_calls: list[str] = []
    for message in messages:
        blocks = list(content_blocks(message.get("content")))
        if message.get("role") == "assistant":
            out += _answered(open_calls, {})
            summaries = [text_part(joined_text([block])) for block in blocks if block.get("type") == "compaction"]
            out += _message("user", summaries)
            said = [block for block in blocks if block.get("type") != "compaction"]
            out += [_assistant(said, model, facts)] if said or not summaries else []
            open_calls = [str(block.get("id")) for block in said if block.get("type") == "tool_use"]
        elif message.get("role") == "system" and not open_calls:
            out += _message("developer" if facts.system_messages else "user", content_parts(told_blocks(blocks)))
        else:
            out += _user(blocks, open_calls, marks)
            open_calls = []
    return out


def limit_field_of(facts: ModelFacts) -> str:
    """Return the name of ``max_tokens`` for a model: OpenAI's reasoning models know only the newer one."""
    return "max_completion_tokens" if facts.api != "messages" and not facts.sampling else "max_tokens"


def used_ids(request: Mapping[str, Any]) -> set[str]:
    """Return the set of ids of all calls in a request, so that a new call gets another id."""
    messages: Any = request.get("messages") or ()
    return {
        str(block.get("id"))
        for message in messages
        for block in content_blocks(message.get("content"))
        if block.get("type") == "tool_use"
    }


def _takes_marks(facts: ModelFacts) -> bool:
    """Say whether the model's provider caches at breakpoints inside the content."""
    return facts.api == "responses"


def _opening(request: Mapping[str, Any], facts: ModelFacts) -> list[ChatMessage]:
    system = list(content_blocks(request.get("system")))
    if _takes_marks(facts):
        return _message("system", content_parts(system, marks=True))
    said = joined_text(system)
    return [{"role": "system", "content": said}] if said else []


def _assistant(blocks: Sequence[Block], model: str, facts: ModelFacts) -> ChatMessage:
    """Return a reply as a chat message, with the fields that its server wants back."""
    items = [item for item in (carried_item(block, model) for block in blocks) if item is not None]
    extra: dict[Any, dict[str, Any]] = {
        item.get("call"): item.get("fields") or {} for item in items if item.get("type") == CALL_FIELDS
    }
    calls: list[dict[str, Any]] = [
        {
            **extra.get(block.get("id"), {}),
            "id": block.get("id"),
            "type": "function",
            "function": {"name": block.get("name"), "arguments": compact_json(block.get("input") or {})},
        }
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    if calls and not extra:
        calls[0] = {**facts.foreign_call, **calls[0]}
    text = joined_text(block for block in blocks if block.get("type") != "tool_use")
    empty = NO_CONTENT if blocks else ""
    said: ChatMessage = {"role": "assistant", "content": text or (None if calls else empty)}
    for item in items:
        if item.get("type") == MESSAGE_FIELDS:
            said = {**(item.get("fields") or {}), **said}
    return {**said, **_reasoning(blocks, facts), "tool_calls": calls} if calls else said


def _reasoning(blocks: Sequence[Block], facts: ModelFacts) -> dict[str, str]:
    """Return the reasoning text of a reply with tool calls, in the field it came in.

    A model that demands the field gets an empty one where another model made the reply.
    """
    found: dict[str, str] = {facts.reasoning_field: ""} if facts.reasoning_field else {}
    for block in blocks:
        field = text_field(block)
        if field:
            name = facts.reasoning_field or field
            found[name] = found.get(name, "") + str(block.get("thinking") or "")
    return found


def _user(blocks: Sequence[Block], open_calls: Sequence[str], marks: bool) -> Iterator[ChatMessage]:
    """Yield a result or a placeholder for each open call, in the calls' order, then other content as a message."""
    results: dict[str, str | list[Part]] = {}
    parts: list[Part] = []
    for block in blocks:
        if block.get("type") != "tool_result":
            parts += content_parts([block], marks=marks)
            continue
        call = str(block.get("tool_use_id"))
        text, images = _result(block)
        if call in open_calls and call not in results:
            marked = marks and bool(block.get("cache_control"))
            results[call] = content_parts([{"text": text, "cache_control": True}], marks=True) if marked else text
            parts += [text_part(f"Image of the result of call {call}:"), *images] if images else []
        else:
            parts += [text_part(text), *images]
    yield from _answered(open_calls, results)
    directive = [parts.pop()] if len(parts) > 1 and parts[-1].get("text", "").startswith(FORK_TAG) else []
    if parts or not open_calls:
        yield from _message("user", parts) or [{"role": "user", "content": ""}]
    # A message that grew would not be found in the server's cache.
    yield from _message("user", directive)


def _message(role: str, parts: list[Part]) -> list[ChatMessage]:
    """Return a list with one message of these parts, as plain text where they are; empty without parts."""
    if not parts:
        return []
    if any(part["type"] != "text" or "prompt_cache_breakpoint" in part for part in parts):
        return [{"role": role, "content": parts}]
    return [{"role": role, "content": "\n\n".join(part["text"] for part in parts)}]


def _answered(open_calls: Sequence[str], results: Mapping[str, str | list[Part]]) -> Iterator[ChatMessage]:
    for call in open_calls:
        yield {"role": "tool", "tool_call_id": call, "content": results.get(call, NO_RESULT)}


def _result(block: Block) -> tuple[str, list[Part]]:
    """Return a result's text, marked if it is an error, and its images, which a tool message cannot hold."""
    parts = content_parts(content_blocks(block.get("content")))
    images = [part for part in parts if part["type"] != "text"]
    text = "\n\n".join(part["text"] if part["type"] == "text" else IMAGE_BELOW for part in parts)
    return error_text(text) if block.get("is_error") else text, images


def _tools(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request fields for tools and their choice, empty without tools that have a schema."""
    messages: Any = request.get("messages") or ()
    added = [tool for message in messages if message["role"] == "system" for tool in tool_changes(message, request)]
    given = {tool["name"]: tool for tool in [*function_tools(request), *added]}
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
        for tool in given.values()
    ]
    return tool_fields(request, tools, lambda name: {"type": "function", "function": {"name": name}})
