"""Build a separate summary request, for use where a fork is not possible: reduced and short enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ...conversation.entries import Message
from ...conversation.side_query import side_request
from ...conversation.tokens.estimate import estimate_message, estimate_request
from ...conversation.view import View
from ...conversation.wire.blocks import Block, as_blocks, text_block
from ...conversation.wire.request import build_request
from ...model_facts import ModelFacts

SYNTHETIC: Final = "[The beginning of this conversation is left out here.]"
_SYSTEM: Final = "You summarise conversations between a person and an agent, so that the work can go on."
_IMAGE: Final = "[image]"
_DOCUMENT: Final = "[document]"
_EARLIER: Final = "[a summary of the conversation before this]"
_LEFT_OUT: Final = frozenset({"thinking", "redacted_thinking", "cache_edits", "tool_addition", "tool_removal"})
_LISTINGS: Final = frozenset({"listing", "tools", "agents", "mcp", "skills"})
_SHORT_CHARS: Final = 200
_SHARE: Final = 0.2  # share of rounds to drop if the provider does not say how much too long the prompt is


def plain_messages(view: View) -> list[Message]:
    """Return the view's messages without thinking and listings, with placeholders for images and documents."""
    announced = {item.uuid for item in view.items_in_view() if item.entry.body.get("type") in _LISTINGS}
    texts = {_text_of(piece.message) for group in view.groups for piece in group.pieces if piece.uuid in announced}
    return [_plain(message, texts) for message in view.messages()]


def plain_request(
    view: View, messages: Sequence[Message], directive: str, facts: ModelFacts, *, model: str, max_tokens: int
) -> dict[str, Any]:
    """Return a request for a model: a one-line system prompt, these messages, and ``directive`` at the end.

    The view gives the tools, which may not be called, and the model if ``model`` is empty.
    """
    opening = build_request(view)
    return side_request(
        facts,
        [*messages, {"role": "user", "content": directive}],
        model=model or opening["model"],
        system=_SYSTEM,
        tools=opening.get("tools") or (),  # the messages contain calls, so their tools must be declared
        answer_tokens=max_tokens,
        options={"tool_choice": {"type": "none"}},
    )


def fitted_messages(messages: Sequence[Message], tokens: int) -> list[Message]:
    """Return the messages without the oldest rounds, so that about ``tokens`` remain; one round always stays.

    If that round alone is too long, its long texts are shortened.
    """
    fitted = list(messages)
    gap = estimate_request(fitted) - tokens
    if gap <= 0:
        return fitted
    fitted = dropped_rounds(fitted, gap) or fitted
    count = estimate_request(fitted)
    return fitted if count <= tokens else shortened_messages(fitted, max(0, tokens) / count)


def shortened_messages(messages: Sequence[Message], share: float) -> list[Message]:
    """Return the messages with about this share of each long text: its start and its end."""

    def shortened(block: Block) -> Block:
        out = dict(block)
        for key in ("text", "content"):
            inner: Any = out.get(key)
            if isinstance(inner, str):
                out[key] = _shortened(inner, share)
            elif isinstance(inner, list):
                out[key] = [shortened(cast("Block", one)) for one in cast("list[Any]", inner)]
        return out

    return [{**message, "content": [shortened(block) for block in as_blocks(message)]} for message in messages]


def _shortened(text: str, share: float) -> str:
    chars = max(_SHORT_CHARS, int(len(text) * share * 0.9))  # the line between the parts needs room too
    if len(text) <= chars:
        return text
    head = chars * 2 // 3
    return f"{text[:head]}\n[... {len(text) - chars:,} characters ...]\n{text[len(text) - (chars - head) :]}"


def dropped_rounds(messages: Sequence[Message], gap_tokens: int | None) -> list[Message] | None:
    """Return the messages without the oldest rounds that cover a gap, or a fifth of them if the gap is None.

    Return None if there is only one round.

    If a reply would then come first, a synthetic user line precedes it; the line of an earlier drop is removed.
    """
    given = list(messages[1:] if messages and messages[0]["content"] == SYNTHETIC else messages)
    rounds = _rounds(given)
    if len(rounds) < 2:
        return None
    gone = 0
    if gap_tokens is None:
        gone = max(1, int(len(rounds) * _SHARE))
    else:
        left = gap_tokens
        while gone < len(rounds) - 1 and left > 0:
            left -= sum(estimate_message(message) for message in rounds[gone])
            gone += 1
    kept = [message for part in rounds[min(max(gone, 1), len(rounds) - 1) :] for message in part]
    return [{"role": "user", "content": SYNTHETIC}, *kept] if kept[0]["role"] == "assistant" else kept


def _rounds(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the messages in rounds; each reply begins a round, and messages before the first form one too."""
    out: list[list[Message]] = []
    for message in messages:
        if message["role"] == "assistant" or not out:
            out.append([message])
        else:
            out[-1].append(message)
    return out


def _plain(message: Message, announced: set[str]) -> Message:
    blocks = [
        one
        for block in as_blocks(message)
        if not (block["type"] == "text" and block["text"] in announced)
        for one in _without_media(block)
    ]
    role = "assistant" if message["role"] == "assistant" else "user"
    return {"role": role, "content": blocks or [text_block("[nothing that a summary needs]")]}


def _without_media(block: Block) -> list[Block]:
    kind = block["type"]
    if kind in _LEFT_OUT:
        return []
    if kind == "compaction":
        return [text_block(str(block.get("content") or _EARLIER))]
    if kind in ("image", "document"):
        return [text_block(_IMAGE if kind == "image" else _DOCUMENT)]
    inner = block.get("content")
    if kind == "tool_result" and isinstance(inner, list):
        parts = [cast("Block", part) for part in cast("list[Any]", inner)]
        plain = [one for part in parts for one in _without_media(part)]
        return [{**block, "content": plain}]
    return [block]


def _text_of(message: Mapping[str, Any]) -> str:
    content: Any = message.get("content")
    return content if isinstance(content, str) else ""
