"""Translate a request of the Messages API for OpenAI's Responses, without state at the provider.

Every item that the model made goes back as it came and in its place: reasoning with its encrypted content, messages
with their ids and phases, calls. A reasoning item is never sent without the item that follows it, and ids are sent
only beside their reasoning: the provider refuses either one alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final, TypeAlias, cast

from ..conversation.entries import compact_json
from ..conversation.fork import FORK_TAG
from ..conversation.wire.carried_items import carried_item, is_carried
from ..model_facts import ModelFacts, facts_of
from .chat_request import NO_RESULT
from .content_parts import Block, Part, content_blocks, content_parts, error_text, joined_text
from .request_options import (
    effort_of,
    function_tools,
    output_schema,
    sampling_of,
    told_blocks,
    tool_changes,
    tool_fields,
)

Item: TypeAlias = "dict[str, Any]"

WINDOW: Final = "compacted_window"
"""The kind of a carried item that holds the items of a compacted conversation."""
MAX_BREAKPOINTS: Final = 3
"""Explicit breakpoints of a request; the provider writes four and places one itself."""
LEAST_OUTPUT: Final = 16
"""The smallest limit of output tokens that the provider takes."""
_NONE: Final[frozenset[str]] = frozenset()
_NO_ITEMS: Final = frozenset({"thinking", "redacted_thinking", "cache_edits"})


def responses_body(
    request: Mapping[str, Any], *, facts: ModelFacts | None = None, unreadable: Set[str] = _NONE
) -> dict[str, Any]:
    """Return the body of a stateless response for a request of the Messages API, without extras and not streamed.

    ``facts`` are the model's, if not those of its name; items whose ids are ``unreadable`` are left out.
    """
    facts = facts or facts_of(str(request.get("model") or ""))
    body: dict[str, Any] = {
        "model": request.get("model"),
        "input": input_items(request, facts=facts, unreadable=unreadable),
        "store": False,
    }
    if facts.thinking_by_default:
        body["include"] = ["reasoning.encrypted_content"]
    if request.get("max_tokens") is not None:
        body["max_output_tokens"] = max(LEAST_OUTPUT, request["max_tokens"])
    reasoning = _reasoning(request, facts)
    if reasoning:
        body["reasoning"] = reasoning
    body.update(sampling_of(request, facts))
    tools = [_function(tool) for tool in function_tools(request)]
    body.update(tool_fields(request, tools, lambda name: {"type": "function", "name": name}))
    schema = output_schema(request)
    if schema is not None:
        body["text"] = {"format": {"type": "json_schema", **schema}}
    return body


def input_items(request: Mapping[str, Any], *, facts: ModelFacts, unreadable: Set[str] = _NONE) -> list[Item]:
    """Return system prompt and messages of a request as input items, with a result or placeholder for each call."""
    marks, model = facts.api == "responses", str(request.get("model") or "")
    items = _message("developer", content_blocks(request.get("system")), marks)
    open_calls: list[str] = []
    messages: Any = request.get("messages") or ()
    for message in messages:
        blocks = list(content_blocks(message.get("content")))
        if message.get("role") == "assistant":
            items += _outputs(open_calls, {})
            items += _reply(blocks, model, unreadable)
            open_calls = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        elif message.get("role") == "system" and not open_calls:
            items += _system(message, blocks, request)
        else:
            items += _user(blocks, open_calls, marks)
            open_calls = []
    return _fewer_breakpoints(items)


def encrypted_ids(body: Mapping[str, Any]) -> set[str]:
    """Return the ids of the items in a body that only their model can read."""
    return {str(item.get("id")) for item in body["input"] if item.get("encrypted_content")}


# -- the model's own items


def _reply(blocks: Sequence[Block], model: str, unreadable: Set[str]) -> Iterator[Item]:
    """Yield the items of a reply in their order; reasoning waits for the item that follows it."""
    found = [(block, carried_item(block, model)) for block in blocks]
    has_all = all(_is_sent(item, unreadable) for block, item in found if _is_reasoning(block, item))
    waiting: list[Item] = []
    frame: Item = {}
    said: list[str] = []

    def spoken() -> Iterator[Item]:
        if said:
            yield from waiting
            yield _said(frame, said, with_id=has_all)
            waiting.clear()
            said.clear()

    for block, item in found:
        kind = item.get("type") if item is not None else None
        if kind in ("message", "function_call"):
            yield from spoken()
            frame = cast("Item", item)
        elif kind == "reasoning":
            yield from spoken()
            waiting += [item] if item is not None and _is_sent(item, unreadable) else []
        elif block.get("type") == "compaction":
            yield from spoken()
            yield from _compacted(block, item, unreadable)
        elif block.get("type") == "tool_use":
            yield from spoken()
            yield from waiting
            waiting.clear()
            yield _called(block, frame, with_id=has_all)
            frame = {}
        elif item is not None and str(kind).endswith("_call"):
            yield from spoken()
            yield from [*waiting, item]
            waiting.clear()
        elif block.get("type") not in _NO_ITEMS:
            said.append(joined_text([block]))
    yield from spoken()


def _is_reasoning(block: Block, item: Item | None) -> bool:
    """Say whether a block carries reasoning, also of another model; ``item`` is the one for this model."""
    carried = carried_item(block) if item is None and is_carried(block) else item
    return carried is not None and carried.get("type") == "reasoning"


def _is_sent(item: Item | None, unreadable: Set[str]) -> bool:
    """Say whether an item can be read by its model; reasoning that is not stored has encrypted content."""
    return item is not None and bool(item.get("encrypted_content")) and str(item.get("id")) not in unreadable


def _said(frame: Item, texts: Sequence[str], *, with_id: bool) -> Item:
    """Return texts as a message of the model; ``frame`` has its id, phase and parts, if the model made it."""
    said: Item = {"type": "message", "role": "assistant"}
    if frame.get("type") == "message" and frame.get("phase"):
        said["phase"] = frame["phase"]
    parts: list[Part] = frame.get("parts") or []
    if frame.get("type") == "message" and frame.get("id") and with_id and len(parts) == len(texts):
        content = [
            {**part, "refusal" if part.get("type") == "refusal" else "text": text}
            for part, text in zip(parts, texts, strict=True)
        ]
        return {**said, "id": frame["id"], "status": frame.get("status") or "completed", "content": content}
    return {**said, "content": "\n\n".join(texts)}


def _called(block: Block, frame: Item, *, with_id: bool) -> Item:
    """Return a call; ``frame`` has its id and its arguments as the model wrote them."""
    own = frame if frame.get("type") == "function_call" and frame.get("call_id") == block.get("id") else {}
    kept = {key: value for key, value in own.items() if key != "id" or with_id}
    return {
        **kept,
        "type": "function_call",
        "call_id": block.get("id"),
        "name": block.get("name"),
        "arguments": own.get("arguments") or compact_json(block.get("input") or {}),
    }


def _compacted(block: Block, item: Item | None, unreadable: Set[str]) -> Iterator[Item]:
    """Yield the items of a compacted conversation, or the summary's text where the model cannot read them."""
    kept: list[Item] = (item or {}).get("items") or []
    if kept and not any(str(one.get("id")) in unreadable for one in kept):
        yield from kept
    else:
        yield from _message("user", [{"type": "text", "text": str(block.get("content") or "")}], False)


# -- items of the user and of this program


def _system(message: Mapping[str, Any], blocks: Sequence[Block], request: Mapping[str, Any]) -> Iterator[Item]:
    yield from _message("developer", told_blocks(blocks), False)
    tools = [_function(tool) for tool in tool_changes(message, request)]
    if tools:
        yield {"type": "additional_tools", "role": "developer", "tools": tools}


def _user(blocks: Sequence[Block], open_calls: Sequence[str], marks: bool) -> Iterator[Item]:
    """Yield a result or a placeholder for each open call, in the calls' order, then other content as a message."""
    results: dict[str, str | list[Part]] = {}
    rest: list[Block] = []
    for block in blocks:
        call = str(block.get("tool_use_id")) if block.get("type") == "tool_result" else ""
        if not call:
            rest.append(block)
        elif call in open_calls and call not in results:
            results[call] = _output(block, marks)
        else:
            rest += list(content_blocks(block.get("content")))
    yield from _outputs(open_calls, results)
    directive = [rest.pop()] if len(rest) > 1 and str(rest[-1].get("text", "")).startswith(FORK_TAG) else []
    yield from _message("user", rest, marks)
    # A message that grew would not be found in the provider's cache.
    yield from _message("user", directive, marks)


def _outputs(open_calls: Sequence[str], results: Mapping[str, str | list[Part]]) -> Iterator[Item]:
    for call in open_calls:
        yield {"type": "function_call_output", "call_id": call, "output": results.get(call, NO_RESULT)}


def _output(block: Block, marks: bool) -> str | list[Part]:
    """Return a result's content: text, or a list of parts where it has images or the model takes breakpoints."""
    parts = _parts(content_blocks(block.get("content")), marks)
    if block.get("is_error") and parts and parts[0]["type"] == "input_text":
        parts[0] = {**parts[0], "text": error_text(parts[0]["text"])}
    if marks and parts and block.get("cache_control"):
        parts[-1] = {**parts[-1], "prompt_cache_breakpoint": {"mode": "explicit"}}
    if not parts or (not marks and all(part["type"] == "input_text" for part in parts)):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _message(role: str, blocks: Iterable[Block], marks: bool) -> list[Item]:
    parts = _parts(blocks, marks)
    return [{"type": "message", "role": role, "content": parts}] if parts else []


def _parts(blocks: Iterable[Block], marks: bool) -> list[Part]:
    """Return blocks as parts of an input item."""
    out: list[Part] = []
    for part in content_parts(blocks, marks=marks):
        mark = {key: part[key] for key in ("prompt_cache_breakpoint",) if key in part}
        if part["type"] == "text":
            out.append({"type": "input_text", "text": part["text"], **mark})
        elif part["type"] == "image_url":
            out.append({"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto", **mark})
        else:
            out.append({"type": "input_file", **part["file"], **mark})
    return out


def _fewer_breakpoints(items: list[Item]) -> list[Item]:
    """Return the items with at most three breakpoints: the first, which ends the opening, and the two latest."""
    marked = [part for item in items for part in _content(item) if "prompt_cache_breakpoint" in part]
    for part in marked[1 : 1 - MAX_BREAKPOINTS]:
        del part["prompt_cache_breakpoint"]
    return items


def _content(item: Item) -> list[Part]:
    content: Any = item.get("output") if item.get("type") == "function_call_output" else item.get("content")
    return cast("list[Part]", content) if isinstance(content, list) and item.get("role") != "assistant" else []


# -- options


def _reasoning(request: Mapping[str, Any], facts: ModelFacts) -> dict[str, Any]:
    thinking: Any = request.get("thinking")
    out: dict[str, Any] = {}
    effort = effort_of(request, facts)
    if effort is not None:
        out["effort"] = effort
    if facts.api == "responses":
        out["context"] = "all_turns"
    if facts.thinking_by_default and isinstance(thinking, dict):
        out.update({"summary": "auto"} if cast("Item", thinking).get("display") == "summarized" else {})
    return out


def _function(tool: Mapping[str, Any]) -> Item:
    """Return a tool as a function; the provider would make it strict if the field were missing."""
    described = {"description": tool["description"]} if tool.get("description") else {}
    named = {"type": "function", "name": tool["name"], **described}
    return {**named, "parameters": tool["input_schema"], "strict": bool(tool.get("strict"))}
