"""Context edits that a provider applies before it counts and caches: ``context_management`` and ``cache_edits``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from ...conversation.wire.canonical import canonical_block
from ...conversation.wire.documents import document_pages
from ...model_facts import ModelFacts
from ...values import record
from .prefix import content_blocks, is_thinking, referenced_tools, visible_tools
from .refusals import ProviderRefusal
from .signatures import record_of

TokenCounter: TypeAlias = "Callable[[Any], int]"

_BYTES_PER_TOKEN: Final = 4
_MEDIA_TOKENS: Final = 2_000
_UNCOUNTED: Final = ("signature",)
CLEARED: Final = "[Tool result cleared by the server]"
_DEFAULT_TRIGGER_TOKENS: Final = 100_000
_DEFAULT_KEPT_USES: Final = 3
_DEFAULT_KEPT_TURNS: Final = 1
Request: TypeAlias = "dict[str, Any]"
Block: TypeAlias = "dict[str, Any]"
Edit: TypeAlias = "Mapping[str, Any]"
Report: TypeAlias = "dict[str, Any]"


def count_block_tokens(block: Any) -> int:
    """Return a block's tokens: one per 4 bytes of JSON; 2,000 per image or PDF page; 0 for signatures."""
    media, bare = _without_media(block)
    return max(1, len(canonical_block(bare, "")) // _BYTES_PER_TOKEN) + media * _MEDIA_TOKENS


def _without_media(block: Any) -> tuple[int, Any]:
    """Return the number of images, pages and documents in a block, and the block without their bytes."""
    if not isinstance(block, Mapping):
        return 0, block
    fields = dict(cast(Mapping[str, Any], block))
    if fields.get("type") in ("image", "document"):
        return max(1, document_pages(fields)), {**fields, "source": None}
    for name in _UNCOUNTED:
        fields.pop(name, None)
    inner = fields.get("content")
    if not isinstance(inner, list):
        return 0, fields
    parts = [_without_media(item) for item in cast("list[Any]", inner)]
    return sum(count for count, _ in parts), {**fields, "content": [part for _, part in parts]}


@record
class EditedRequest:
    """A request after the edits it declares; ``applied`` reports the effective ones, None without any."""

    request: dict[str, Any]
    applied: list[dict[str, Any]] | None


def blocks_of(request: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (part, block) for tools, system and messages in order; a message's part is its role.

    The part of a system message is ``instruction``, or ``reminder`` if it is turn-scoped. A deferred tool comes after
    the first block that refers to it, as the part ``definition``.
    """
    deferred = {str(tool.get("name")): tool for tool in request.get("tools") or () if tool.get("defer_loading")}
    for tool in visible_tools(request):
        yield "tool", tool
    for block in content_blocks(request.get("system") or ()):
        yield "system", block
    for message in request["messages"]:
        part = message["role"]
        if part == "system":
            part = "reminder" if message.get("clear_at") == "next_user_message" else "instruction"
        for block in content_blocks(message["content"]):
            yield part, block
            for name in referenced_tools(block) if deferred else ():
                if name in deferred:
                    yield "definition", deferred.pop(name)


def _tokens(request: Request, count: TokenCounter) -> int:
    return sum(count(block) for _, block in blocks_of(request))


def apply_context_management(request: Request, count: TokenCounter, facts: ModelFacts) -> EditedRequest:
    """Return the request after the edits it declares that clear something, in order."""
    declared = request.get("context_management")
    if declared is None:
        return EditedRequest(request, None)
    applied: list[dict[str, Any]] = []
    for edit in declared.get("edits") or ():
        if edit["type"] not in _EDITS:  # a threshold, which is looked at once all is cleared
            continue
        edited, report = _EDITS[edit["type"]](request, edit, count, facts)
        if report:
            report["cleared_input_tokens"] = _tokens(request, count) - _tokens(edited, count)
            wanted: Any = edit.get("clear_at_least") or {}
            if report["cleared_input_tokens"] >= wanted.get("value", 0):
                applied.append({"type": edit["type"], **report})
                request = edited
    return EditedRequest(request, applied)


def _clear_thinking(request: Request, edit: Edit, count: TokenCounter, facts: ModelFacts) -> tuple[Request, Report]:
    keep: Any = edit.get("keep") or (
        "all" if facts.keeps_thinking else {"type": "thinking_turns", "value": _DEFAULT_KEPT_TURNS}
    )
    if keep == "all" or keep.get("type") == "all":
        return request, {}
    turns = [
        index
        for index, message in enumerate(request["messages"])
        if any(is_thinking(block) for block in content_blocks(message["content"]))
    ]
    cleared = set(turns[: max(0, len(turns) - int(keep["value"]))])
    messages = [
        {**message, "content": [block for block in content_blocks(message["content"]) if not is_thinking(block)]}
        if index in cleared
        else message
        for index, message in enumerate(request["messages"])
    ]
    return {**request, "messages": messages}, {"cleared_thinking_turns": len(cleared)} if cleared else {}


def _clear_tool_uses(request: Request, edit: Edit, count: TokenCounter, facts: ModelFacts) -> tuple[Request, Report]:
    uses = {
        block["id"]: block["name"]
        for part, block in blocks_of(request)
        if part == "assistant" and block["type"] == "tool_use"
    }
    trigger: Any = edit.get("trigger") or {"type": "input_tokens", "value": _DEFAULT_TRIGGER_TOKENS}
    size = len(uses) if trigger["type"] == "tool_uses" else _tokens(request, count)
    if size <= trigger["value"]:
        return request, {}
    kept = int((edit.get("keep") or {"value": _DEFAULT_KEPT_USES})["value"])
    spared = set(edit.get("exclude_tools") or ())
    oldest = [found for found, name in uses.items() if name not in spared]
    cleared = set(oldest[: max(0, len(oldest) - kept)])
    inputs: Any = edit.get("clear_tool_inputs") or ()
    emptied = {found for found in cleared if inputs is True or uses[found] in inputs} if inputs else set[str]()

    def shorten(block: Block) -> Block:
        if block["type"] == "tool_result" and block["tool_use_id"] in cleared:
            return {**block, "content": CLEARED}
        if block["type"] == "tool_use" and block["id"] in emptied:
            return {**block, "input": {}}
        return block

    messages = [
        {**message, "content": [shorten(block) for block in content_blocks(message["content"])]}
        for message in request["messages"]
    ]
    return {**request, "messages": messages}, {"cleared_tool_uses": len(cleared)} if cleared else {}


_EDITS: Final[Mapping[str, Callable[[Request, Edit, TokenCounter, ModelFacts], tuple[Request, Report]]]] = {
    "clear_thinking_20251015": _clear_thinking,
    "clear_tool_uses_20250919": _clear_tool_uses,
}


def deleted_results(request: Request) -> set[str]:
    """Return the result ids that ``cache_edits`` blocks delete; raise ``ProviderRefusal`` for an unsent id."""
    seen: set[str] = set()
    deleted: set[str] = set()
    for part, block in blocks_of(request):
        if part in ("tool", "definition") or not isinstance(block, dict):
            continue
        fields = cast(Block, block)
        if fields["type"] == "tool_result":
            seen.add(fields["tool_use_id"])
        elif fields["type"] == "cache_edits":
            unknown = [found for found in fields["tool_use_ids"] if found not in seen]
            if unknown:
                raise ProviderRefusal(
                    400, f"messages: `cache_edits` names tool results not sent before it: {unknown[0]}"
                )
            deleted.update(fields["tool_use_ids"])
    return deleted


def shown_request(body: dict[str, Any], dropped: Collection[tuple[int, int]], facts: ModelFacts) -> dict[str, Any]:
    """Return the request without dropped thinking, turn-scoped messages of earlier turns and thinking of old turns."""
    messages = body["messages"]
    last_user = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=-1)
    forgotten = -1 if facts.keeps_thinking or _clears_thinking(body) else _last_prompt(messages)
    shown: list[Any] = []
    for index, message in enumerate(messages):
        content = message["content"]
        if _is_cleared(message, index, last_user):
            content = []
        elif not isinstance(content, str):
            content = [
                _with_words(block)
                for position, block in enumerate(content)
                if (index, position) not in dropped and not (index < forgotten and is_thinking(block))
            ]
        shown.append(message if content == message["content"] else {**message, "content": content})
    return {**body, "messages": shown}


def _with_words(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block with the thinking that its signature holds, where its text was not returned."""
    if block.get("type") != "thinking" or block.get("thinking"):
        return block
    record = record_of(block)
    return {**block, "thinking": record.words} if record is not None and record.words else block


def _is_cleared(message: Mapping[str, Any], index: int, last_user: int) -> bool:
    """Return whether a turn-scoped message is no longer shown, because a user message follows it."""
    return message.get("clear_at") == "next_user_message" and index < last_user


def _clears_thinking(body: Mapping[str, Any]) -> bool:
    declared: Any = body.get("context_management") or {}
    edits: Any = declared.get("edits") or ()
    return any(str(edit.get("type")).startswith("clear_thinking") for edit in edits)


def _last_prompt(messages: list[Any]) -> int:
    """Return the index of the last user message that holds more than tool results; -1 where there is none."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        content = message["content"]
        if message["role"] == "user" and (
            isinstance(content, str) or any(block.get("type") != "tool_result" for block in content)
        ):
            return index
    return -1
