"""The items in view, and where they may be cut: no call is separated from its result, no reply is split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ...conversation.cuts import Item
from ...conversation.entries import ASSISTANT, ATTACHMENT, reply_id
from ...conversation.tokens.estimate import estimate_message
from ...conversation.view import View
from ...conversation.wire.flatten import with_overrides
from ...values import record


@record
class TailPolicy:
    """The size of the kept tail: the least tokens and messages with text, and the most tokens."""

    tokens: int
    texts: int
    max_tokens: int
    unseen_tokens: int = 0
    """Messages that the model has not seen, mainly results of its last calls, stay up to this size."""
    keeps_open: bool = True
    """Calls that wait for results stay, even if they are large."""


@record
class CutRange:
    """All visible items, and the range that a summary replaces: ``items[start:end]``."""

    items: tuple[Item, ...]
    start: int
    end: int

    @property
    def cut(self) -> tuple[Item, ...]:
        """The items that the summary replaces."""
        return self.items[self.start : self.end]

    @property
    def kept(self) -> tuple[Item, ...]:
        """The items after the range; items before ``start`` stay too."""
        return self.items[self.end :]


def legal_starts(items: Sequence[Item]) -> list[bool]:
    """Return for every position, the end included, whether a tail there splits no round (K10)."""
    first_piece: dict[str, int] = {}
    called_at: dict[str, int] = {}
    needs: list[int] = []
    for at, item in enumerate(items):
        need = at
        if item.kind == ASSISTANT:
            need = first_piece.setdefault(reply_id(item.entry), at)
            for called in _ids(item, "tool_use", "id"):
                called_at.setdefault(called, at)
        else:
            for answered in _ids(item, "tool_result", "tool_use_id"):
                need = min(need, called_at.get(answered, need))
        needs.append(need)
    legal = [True] * (len(items) + 1)
    least = len(items)
    for at in range(len(items) - 1, -1, -1):
        least = min(least, needs[at])
        legal[at] = least >= at
    return legal


def open_from(view: View, items: Sequence[Item]) -> int:
    """Return the position of the last message with a call that waits for a result; the end if there is none."""
    waiting = set(view.unanswered())
    if waiting:
        for at in range(len(items) - 1, -1, -1):
            if items[at].kind == ASSISTANT and waiting.intersection(_ids(items[at], "tool_use", "id")):
                return at
    return len(items)


def kept_from(view: View, items: Sequence[Item], policy: TailPolicy, *, cursor: int | None = None) -> int:
    """Return the position at which the kept tail starts.

    All items from ``cursor`` on stay. The tail grows backwards until it has enough tokens and messages with text.
    It stops before it has too many tokens and before the last summary, and separates no call from its result.
    """
    legal = legal_starts(items)
    forced = len(items) if cursor is None else cursor
    if policy.keeps_open:
        forced = min(forced, open_from(view, items))
    forced = min(forced, _unseen_from(view, items, policy.unseen_tokens))
    floor = _after_last_summary(items)
    tokens = sum(tokens_of(view, item) for item in items[forced:])
    texts = sum(has_text(item) for item in items[forced:])
    start = forced
    while start > floor and (tokens < policy.tokens or texts < policy.texts):
        more = tokens_of(view, items[start - 1])
        if tokens + more > policy.max_tokens:
            break
        start, tokens, texts = start - 1, tokens + more, texts + has_text(items[start - 1])
    wider = next((at for at in range(start, floor - 1, -1) if legal[at]), None)
    if wider is not None and (wider == start or _fits(view, items[wider:], policy)):
        return wider
    narrower = next((at for at in range(start, forced + 1) if legal[at]), None)
    return narrower if narrower is not None else wider if wider is not None else 0


def _unseen_from(view: View, items: Sequence[Item], max_tokens: int) -> int:
    """Return the start of the last round if it has no answer yet and fits ``max_tokens``; else the end."""
    final = view.final
    if final is None or final.role == ASSISTANT:
        return len(items)
    last = next((at for at in range(len(items) - 1, -1, -1) if items[at].kind == ASSISTANT), None)
    if last is None:
        return len(items)
    id = reply_id(items[last].entry)
    while last > 0 and items[last - 1].kind == ASSISTANT and reply_id(items[last - 1].entry) == id:
        last -= 1
    tokens = 0
    for item in reversed(items[last:]):
        tokens += tokens_of(view, item)
        if tokens > max_tokens:
            return len(items)
    return last


def tokens_of(view: View, item: Item) -> int:
    """Estimate the tokens of an item as the view shows it, with results that decisions replaced."""
    content: Any = item.message.get("content")
    if not isinstance(content, str | list):
        return 0
    blocks = cast("list[Any]", content)
    sound = isinstance(content, str) or all(isinstance(block, dict) and "type" in block for block in blocks)
    return estimate_message(
        with_overrides(item.message, view.overrides) if sound and item.kind != ASSISTANT else item.message
    )


def has_text(item: Item) -> bool:
    """Say whether a message, other than an attachment, has text and not only calls and results."""
    if item.kind == ATTACHMENT:
        return False
    content: Any = item.message.get("content")
    if isinstance(content, str):
        return bool(content.strip())
    listed = cast("list[Any]", content) if isinstance(content, list) else []
    blocks = (cast("dict[str, Any]", one) for one in listed if isinstance(one, dict))
    return any(block.get("type") == "text" and str(block.get("text") or "").strip() for block in blocks)


def is_summary(item: Item) -> bool:
    """Say whether this item is the summary of an earlier compaction."""
    return item.entry.body.get("decision") == "compacted" and item.uuid == item.entry.uuid


def _after_last_summary(items: Sequence[Item]) -> int:
    return next((at + 1 for at in range(len(items) - 1, -1, -1) if is_summary(items[at])), 0)


def _fits(view: View, items: Sequence[Item], policy: TailPolicy) -> bool:
    return sum(tokens_of(view, item) for item in items) <= policy.max_tokens


def _ids(item: Item, kind: str, key: str) -> list[str]:
    content: Any = item.message.get("content")
    if not isinstance(content, list):
        return []
    blocks = (cast("dict[str, Any]", one) for one in cast("list[Any]", content) if isinstance(one, dict))
    found = (block.get(key) for block in blocks if block.get("type") == kind)
    return [one for one in found if isinstance(one, str)]
