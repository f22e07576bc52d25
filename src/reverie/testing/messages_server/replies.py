"""The replies of the scripted model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from ...values import field, record
from .edits import TokenCounter

Block: TypeAlias = "dict[str, Any]"


@record
class ServerReply:
    """A whole reply: its blocks, and its stop reason, which by default follows from the blocks."""

    content: str | list[dict[str, Any]]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: {})


Content: TypeAlias = "str | list[dict[str, Any]] | ServerReply"
ReplyFunction: TypeAlias = "Callable[[dict[str, Any]], Content | Awaitable[Content]]"


def reply_of(said: Any, next_tool_id: Callable[[], str], ending: str = "end_turn") -> ServerReply:
    """Return a reply function's result as a reply with ids; ``ending`` is its stop reason unless it calls a tool."""
    reply = said if isinstance(said, ServerReply) else ServerReply(said)
    given = [{"type": "text", "text": reply.content}] if isinstance(reply.content, str) else reply.content
    blocks = [_whole(dict(block), next_tool_id) for block in given]
    used = any(block["type"] == "tool_use" for block in blocks)
    reason = reply.stop_reason or ("tool_use" if used else ending)
    return ServerReply(blocks, reason, reply.stop_sequence, reply.extra)


def _whole(block: Block, next_tool_id: Callable[[], str]) -> Block:
    kind = block.get("type")
    if kind == "tool_use":
        return {
            "type": kind,
            "id": block.get("id") or next_tool_id(),
            "name": block["name"],
            "input": block.get("input", {}),
            **{key: value for key, value in block.items() if key not in ("type", "id", "name", "input")},
        }
    return block


def cut_to(reply: ServerReply, max_tokens: int, count: TokenCounter) -> ServerReply:
    """Return as much of the reply as ``max_tokens`` allow: text is cut, any other block is whole or left out."""
    kept: list[Block] = []
    left = max_tokens
    for block in reply.content:
        assert isinstance(block, dict)
        tokens = count(block)
        if tokens <= left:
            kept.append(block)
            left -= tokens
            continue
        if block["type"] == "text":
            text = _longest(block, left, count)
            kept += [{**block, "text": text}] if text else []
        return ServerReply(kept, "max_tokens", None, reply.extra)
    return reply


def _longest(block: Block, max_tokens: int, count: TokenCounter) -> str:
    low, high, text = 0, len(block["text"]), block["text"]
    while low < high:
        middle = (low + high + 1) // 2
        if count({**block, "text": text[:middle]}) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]
