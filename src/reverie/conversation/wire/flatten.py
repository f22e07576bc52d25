"""Flattening: entries to the alternating messages a provider accepts.

Entries gather into groups, one a message of the request. A group's message depends only on the group itself and on
the calls the group before it left open, so appending costs what is appended, and a closed group never changes unless
a decision says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import is_
from typing import Any, Final, cast

from msgspec import Struct

from ...values import record
from ..entries import Message
from ..layered_map import LayeredMap
from ..tokens.estimate import Measure, measure_message
from .blocks import (
    IMAGE_GONE,
    Block,
    as_blocks,
    count_images,
    has_server_tools,
    paired_server_tools,
    placeholder,
    result_stub,
    text_block,
    unmatched_result,
)

__all__ = [
    "Group",
    "MessagePiece",
    "Overrides",
    "missing_result_block",
    "missing_results",
    "render",
    "with_overrides",
    "with_piece",
]

_THINKING: Final = frozenset({"thinking", "redacted_thinking"})


class MessagePiece(Struct, eq=False, gc=False):
    """What one entry puts into the view; measured, as it was first shown, when somebody asks."""

    uuid: str
    message: Message
    attachment: bool = False
    first_shown: Message | None = None
    _measure: Measure | None = None

    @property
    def measure(self) -> Measure:
        """What it holds, by content class."""
        if self._measure is None:
            self._measure = measure_message(self.first_shown or self.message)
        return self._measure

    @property
    def tokens(self) -> int:
        """Estimate of what it holds."""
        return round(self.measure.total)


class Group(Struct, frozen=True, gc=False):
    """One message of the request: a run of pieces of one role."""

    role: str
    id: str
    pieces: tuple[MessagePiece, ...]
    uses: tuple[str, ...] = ()
    expects: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Estimate of what the pieces hold, before any decision shortened them."""
        return sum(piece.tokens for piece in self.pieces)

    @property
    def only_attachments(self) -> bool:
        """Say whether nothing but attachments stands here, so that a reply's later piece may look past it."""
        return self.role == "user" and all(piece.attachment for piece in self.pieces)


@record
class Overrides:
    """What decisions put in place of content: results by call, images by message."""

    results: LayeredMap[str]
    images: Mapping[str, frozenset[int]]
    image_text: str = IMAGE_GONE

    def without_images(self, gone: Iterable[tuple[str, int]], text: str = "") -> Overrides:
        """Return the same with more images replaced, each named by message and place, by this text if it is one."""
        images = {uuid: set(ordinals) for uuid, ordinals in self.images.items()}
        for uuid, ordinal in gone:
            images.setdefault(uuid, set()).add(ordinal)
        frozen = {uuid: frozenset(ordinals) for uuid, ordinals in images.items()}
        return Overrides(self.results, frozen, text if text.strip() else self.image_text)


def with_overrides(message: Message, shown: Overrides) -> Message:
    """Return a user message with its tool results as decisions show them; the same object where none does."""
    content = message["content"]
    if not shown.results or isinstance(content, str):
        return message
    blocks = [_shown_result(block, shown) for block in cast("list[Block]", content)]
    return message if all(map(is_, blocks, content)) else {"role": "user", "content": blocks}


def _shown_result(block: Block, shown: Overrides) -> Block:
    replaced = shown.results.get(block["tool_use_id"]) if block["type"] == "tool_result" else None
    return block if replaced is None else {**block, "content": replaced}


def missing_result_block(tool_use_id: str, shown: Overrides) -> Block:
    """Return what stands in for a result that never came."""
    return _shown_result(result_stub(tool_use_id), shown)


def with_piece(group: Group, piece: MessagePiece, uses: tuple[str, ...], id: str | None = None) -> Group:
    """Return the group with one more piece."""
    return Group(group.role, id or group.id, (*group.pieces, piece), (*group.uses, *uses), group.expects)


def missing_results(group: Group) -> list[str]:
    """Return the calls that this user group should answer and does not."""
    if not group.expects:
        return []
    answered = {
        block["tool_use_id"]
        for piece in group.pieces
        for block in as_blocks(piece.message)
        if block["type"] == "tool_result"
    }
    return [expected for expected in group.expects if expected not in answered]


def render(group: Group, shown: Overrides, *, last: bool = False) -> Message:
    """Return the group's message: the very object that came in where nothing has to change."""
    if group.role == "assistant":
        return _assistant(group, last and not group.uses)
    return _user(group, shown)


def _assistant(group: Group, last: bool) -> Message:
    pieces = group.pieces
    if len(pieces) == 1:
        message = pieces[0].message
        content = message["content"]
        if isinstance(content, str):
            return message
        blocks = cast("list[Block]", content)
        if blocks[-1]["type"] not in _THINKING and not has_server_tools(blocks):
            return message
    blocks = [block for piece in pieces for block in as_blocks(piece.message)]
    if has_server_tools(blocks):
        blocks = paired_server_tools(blocks, last)
    while blocks and blocks[-1]["type"] in _THINKING:
        blocks.pop()
    return {"role": "assistant", "content": blocks or [placeholder("assistant")]}


def _user(group: Group, shown: Overrides) -> Message:
    pieces = group.pieces
    if len(pieces) == 1 and _is_plain(pieces[0], group.expects, shown):
        return pieces[0].message
    waiting = dict.fromkeys(group.expects)
    results: list[Block] = []
    rest: list[Block] = []
    for piece in pieces:
        gone = shown.images.get(piece.uuid)
        blocks = as_blocks(piece.message)
        for block in blocks if gone is None else _without_images(blocks, gone, shown.image_text):
            if block["type"] != "tool_result":
                rest.append(block)
                continue
            answered: str = block["tool_use_id"]
            block = _shown_result(block, shown)
            if answered in waiting:
                del waiting[answered]
                results.append(block)
            else:
                rest.extend(unmatched_result(block))
    results.extend(missing_result_block(unanswered, shown) for unanswered in waiting)
    return _whole(pieces, results + rest)


def _is_plain(piece: MessagePiece, expects: tuple[str, ...], shown: Overrides) -> bool:
    """Say at a glance, for the most common messages, that nothing has to change: a text, or just the results."""
    content: Any = piece.message["content"]
    if isinstance(content, str):
        return not expects
    answered = tuple([block.get("tool_use_id") for block in content])
    if answered != expects or piece.uuid in shown.images:
        return False
    return not shown.results or not any(called in shown.results for called in expects)


def _whole(pieces: tuple[MessagePiece, ...], blocks: list[Block]) -> Message:
    """Return the single piece's own message where the blocks are exactly its own."""
    if len(pieces) == 1:
        content: Any = pieces[0].message["content"]
        if len(blocks) == len(content) and all(map(is_, blocks, content)):
            return pieces[0].message
    return {"role": "user", "content": blocks or [placeholder("user")]}


def _without_images(blocks: list[Block], gone: frozenset[int], text: str) -> list[Block]:
    """Return a message's blocks with some images, counted from the message's start, replaced by text."""
    out: list[Block] = []
    ordinal = 0
    for block in blocks:
        here = count_images([block])
        if not here or gone.isdisjoint(range(ordinal, ordinal + here)):
            out.append(block)
        elif block["type"] == "image":
            out.append(text_block(text))
        else:
            parts: list[Block] = []
            at = ordinal
            for part in block["content"]:
                is_image = part["type"] == "image"
                parts.append(text_block(text) if is_image and at in gone else part)
                at += is_image
            out.append({**block, "content": parts})
        ordinal += here
    return out
