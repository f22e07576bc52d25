"""Flattening: turn log entries into the alternating messages that a provider accepts.

Entries are collected in groups; each group becomes one message of the request. The message depends only on the group
and on the open tool calls of the group before it, so the cost of appending does not grow with the conversation, and
only a decision changes a finished group.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Set
from operator import is_
from typing import Any, Final, cast

from msgspec import Struct

from ...values import record, replace
from ..entries import Message
from ..layered_map import LayeredMap
from ..tokens.estimate import Measure, measure_message
from .blocks import (
    DOCUMENT_GONE,
    IMAGE_GONE,
    Block,
    as_blocks,
    has_server_tools,
    is_signed_summary,
    is_text_call,
    paired_server_tools,
    placeholder,
    result_as_text,
    result_stub,
    text_block,
    unmatched_result,
)
from .images import is_media, media_in

"""The type of the block with a provider's signed summary."""
NO_REPLY: Final = "[No reply arrived.]"
NO_MESSAGE: Final = "[The conversation continues.]"
THINKING: Final = frozenset({"thinking", "redacted_thinking"})


class MessagePiece(Struct, eq=False, gc=False):
    """The message one entry adds to the view; its tokens are measured on first use, in the form first shown."""

    uuid: str
    message: Message
    attachment: bool = False
    first_shown: Message | None = None
    _measure: Measure | None = None

    @property
    def measure(self) -> Measure:
        """The estimated tokens of the message as first shown, by content class."""
        if self._measure is None:
            self._measure = measure_message(self.first_shown or self.message)
        return self._measure

    def take_measure(self, other: MessagePiece | None) -> None:
        """Take the measure of another piece if that was first shown in the same form."""
        if other is not None and (self.first_shown or self.message) == (other.first_shown or other.message):
            self._measure = other._measure

    @property
    def tokens(self) -> int:
        """The estimated tokens of the message as first shown, over all classes."""
        return round(self.measure.total)


class Group(Struct, frozen=True, gc=False):
    """One message of the request: consecutive pieces of one role.

    ``uses`` are the ids of its tool calls, ``expects`` the ids of the calls it should answer.
    """

    role: str
    id: str
    pieces: tuple[MessagePiece, ...]
    uses: tuple[str, ...] = ()
    expects: tuple[str, ...] = ()

    @staticmethod
    def unanswered(uuid: str) -> Group:
        """Return a message of the assistant in place of a reply that never came, before the entry ``uuid``."""
        piece = MessagePiece(f"{uuid}:unanswered", {"role": "assistant", "content": NO_REPLY})
        return Group("assistant", piece.uuid, (piece,))

    @staticmethod
    def unasked(uuid: str, expects: tuple[str, ...]) -> Group:
        """Return a message of the user, with no results for these calls, in place of one that left the view."""
        piece = MessagePiece(f"{uuid}:unasked", {"role": "user", "content": NO_MESSAGE})
        return Group("user", piece.uuid, () if expects else (piece,), (), expects)

    @property
    def takes_no_system_message(self) -> bool:
        """Whether a system message may not follow: it is a reply that does not end with a result of the provider."""
        return self.role == "assistant" and not as_blocks(self.pieces[-1].message)[-1]["type"].endswith("tool_result")

    @property
    def tokens(self) -> int:
        """The estimated tokens of the pieces as first shown."""
        return sum(piece.tokens for piece in self.pieces)

    @property
    def is_compaction(self) -> bool:
        """Whether the group is a provider's signed summary, which is a message of its own."""
        return bool(self.pieces) and is_signed_summary(as_blocks(self.pieces[0].message)[0])

    @property
    def only_attachments(self) -> bool:
        """Whether the group has only attachments, so that a later piece of a reply may be placed before it."""
        return self.role == "user" and all(piece.attachment for piece in self.pieces)


@record
class Overrides:
    """The texts that decisions show in place of content: tool results by call id, images by message and position.

    ``thinking`` has the uuids of the replies whose thinking is not shown.
    """

    results: LayeredMap[str]
    images: Mapping[str, frozenset[int]]
    image_text: str = IMAGE_GONE
    thinking: frozenset[str] = frozenset()

    def without_images(self, gone: Iterable[tuple[str, int]], text: str = "") -> Overrides:
        """Return overrides that also replace these images, each as (message, position).

        ``text`` becomes the text in place of all replaced images unless it is blank.
        """
        images = {uuid: set(ordinals) for uuid, ordinals in self.images.items()}
        for uuid, ordinal in gone:
            images.setdefault(uuid, set()).add(ordinal)
        frozen = {uuid: frozenset(ordinals) for uuid, ordinals in images.items()}
        return replace(self, images=frozen, image_text=text if text.strip() else self.image_text)

    def only(self, calls: Container[str], messages: Set[str]) -> Overrides:
        """Return the overrides of these calls and messages alone."""
        gone = {called: None for called in self.results if called not in calls}
        images = {uuid: ordinals for uuid, ordinals in self.images.items() if uuid in messages}
        return replace(
            self, results=self.results.changed(gone), images=images, thinking=self.thinking.intersection(messages)
        )


NO_OVERRIDES: Final = Overrides(LayeredMap(), {})


def with_overrides(message: Message, overrides: Overrides) -> Message:
    """Return a user message with its tool results overridden; the same object if nothing changes."""
    content = message["content"]
    if not overrides.results or isinstance(content, str):
        return message
    blocks = [_overridden_result(block, overrides) for block in cast("list[Block]", content)]
    return message if all(map(is_, blocks, content)) else {"role": "user", "content": blocks}


def _overridden_result(block: Block, overrides: Overrides) -> Block:
    replaced = overrides.results.get(block["tool_use_id"]) if block["type"] == "tool_result" else None
    return block if replaced is None else {**block, "content": replaced}


def missing_result_block(tool_use_id: str, overrides: Overrides) -> Block:
    """Return the placeholder block of a result that never arrived, with its override if there is one."""
    return _overridden_result(result_stub(tool_use_id), overrides)


def with_piece(group: Group, piece: MessagePiece, uses: tuple[str, ...], id: str | None = None) -> Group:
    """Return a new group with one more piece and its tool calls (``uses``), and with the new ``id`` if given."""
    return Group(group.role, id or group.id, (*group.pieces, piece), (*group.uses, *uses), group.expects)


def missing_results(group: Group) -> list[str]:
    """Return the ids of the calls that this user group should answer but does not."""
    if not group.expects:
        return []
    answered = {
        block["tool_use_id"]
        for piece in group.pieces
        for block in as_blocks(piece.message)
        if block["type"] == "tool_result"
    }
    return [expected for expected in group.expects if expected not in answered]


def render(group: Group, overrides: Overrides, *, last: bool = False) -> Message:
    """Return the group's message; in the ``last`` group a paused call of the provider may still wait for its result."""
    if group.role == "assistant":
        return _assistant(group, overrides.thinking, last and not group.uses)
    if group.role == "system":
        return _system(group)
    return _user(group, overrides)


def _system(group: Group) -> Message:
    if len(group.pieces) == 1:
        return group.pieces[0].message
    return {"role": "system", "content": [block for piece in group.pieces for block in as_blocks(piece.message)]}


def _assistant(group: Group, without_thinking: frozenset[str], last: bool) -> Message:
    pieces = group.pieces
    if len(pieces) == 1 and pieces[0].uuid not in without_thinking:
        message = pieces[0].message
        content = message["content"]
        if isinstance(content, str):
            return message
        blocks = cast("list[Block]", content)
        if not has_server_tools(blocks):
            return message
    blocks = [
        block
        for piece in pieces
        for block in as_blocks(piece.message)
        if (block["type"] not in THINKING or piece.uuid not in without_thinking)
        and not (block["type"] == "tool_use" and is_text_call(block["id"]))
    ]
    if has_server_tools(blocks):
        blocks = paired_server_tools(blocks, last)
    return {"role": "assistant", "content": blocks or [placeholder("assistant")]}


def _user(group: Group, overrides: Overrides) -> Message:
    pieces = group.pieces
    if len(pieces) == 1 and _is_plain(pieces[0], group.expects, overrides):
        return pieces[0].message
    waiting = dict.fromkeys(group.expects)
    results: list[Block] = []
    rest: list[Block] = []
    for piece in pieces:
        gone = overrides.images.get(piece.uuid)
        blocks = as_blocks(piece.message)
        for block in blocks if gone is None else _without_images(blocks, gone, overrides.image_text):
            if block["type"] != "tool_result":
                rest.append(block)
                continue
            answered: str = block["tool_use_id"]
            block = _overridden_result(block, overrides)
            if answered in waiting:
                del waiting[answered]
                results.extend(result_as_text(block) if is_text_call(answered) else (block,))
            else:
                rest.extend(unmatched_result(block))
    results.extend(
        missing_result_block(unanswered, overrides) for unanswered in waiting if not is_text_call(unanswered)
    )
    return _message_of_blocks(pieces, results + rest)


def _is_plain(piece: MessagePiece, expects: tuple[str, ...], overrides: Overrides) -> bool:
    """Say whether a message can be sent unchanged: a plain text, or exactly the expected results (the fast path)."""
    content: Any = piece.message["content"]
    if isinstance(content, str):
        return not expects
    answered = tuple([block.get("tool_use_id") for block in content])
    if answered != expects or piece.uuid in overrides.images or any(map(is_text_call, expects)):
        return False
    return not overrides.results or not any(called in overrides.results for called in expects)


def _message_of_blocks(pieces: tuple[MessagePiece, ...], blocks: list[Block]) -> Message:
    """Return a message of these blocks; the single piece's own message if its blocks are the same objects."""
    if len(pieces) == 1:
        content: Any = pieces[0].message["content"]
        if len(blocks) == len(content) and all(map(is_, blocks, content)):
            return pieces[0].message
    return {"role": "user", "content": blocks or [placeholder("user")]}


def _without_images(blocks: list[Block], gone: frozenset[int], text: str) -> list[Block]:
    """Return a message's blocks with the images and PDF documents of these numbers replaced by text."""
    numbers = (number for number, _ in media_in(blocks))

    def shown(block: Block) -> Block:
        if is_media(block):
            number = next(numbers)
            return text_block(text if number >= 0 else DOCUMENT_GONE) if number in gone else block
        if block["type"] != "tool_result" or not isinstance(block.get("content"), list):
            return block
        content: list[Block] = block["content"]
        parts = [shown(part) for part in content]
        return block if all(map(is_, parts, content)) else {**block, "content": parts}

    return [shown(block) for block in blocks]
