"""Preserved thinking: which thinking blocks a provider accepts, from digests of the content sent before them.

Newer models accept a thinking block only while system prompt, tools and messages before it are those of the request
that the block answered. Thinking itself and cache marks are not compared. After a provider's signed summary the
comparison starts at that summary; thinking that was kept across it is compared with the messages that it replaced.

A position therefore has several digests: one counted from the newest summary, and one for each earlier count that
thinking in the view may rest on. A reply is bound to the newest one of its request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, cast

from ..values import record
from .entries import ASSISTANT, Message
from .tokens.counting import billed_tokens
from .tokens.estimate import measure_message
from .view import View
from .wire.blocks import Block, as_blocks, has_server_tools, is_signed_summary, paired_server_tools
from .wire.canonical import canonical_block
from .wire.flatten import THINKING, Group
from .wire.request import request_indexes

PREFIX: Final = "prefix_binding_mismatch"
"""The provider's reason for dropping thinking because content before it changed."""
UNBOUND: Final = ""
"""The binding of a reply whose model does not check the content before its thinking."""
_SIZE: Final = 12
_MOST: Final = 4  # digests kept at a position: the newest summaries that kept thinking may rest on


@record
class Digests:
    """The digests of the content before a position: the opening's, and one for each way to count, newest last."""

    opening: str
    states: tuple[str, ...]

    @property
    def newest(self) -> str:
        """The digest that a reply to a request with this content is bound to."""
        return self.states[-1]

    def after(self, blocks: Iterable[Block], role: str) -> Digests:
        """Return the digests after more blocks of a role; thinking does not count."""
        states = self.states
        for block in blocks:
            if block["type"] not in THINKING:
                said = canonical_block(block, role)
                states = tuple([_linked(state, said) for state in states])
        return self if states is self.states else Digests(self.opening, states)

    def after_summary(self, block: Block, covers: Mapping[str, Any]) -> Digests:
        """Return the digests after a signed summary that begins the messages and replaces others."""
        kept: Sequence[str] = covers.get("states", ()) if covers.get("opening") == self.opening else ()
        begun = _linked(self.opening, canonical_block(block, "assistant"))
        return Digests(self.opening, (*kept, begun)[-_MOST:])

    def as_covered(self) -> dict[str, Any]:
        """Return the digests as the field ``covers`` of a compaction whose summary replaces this content."""
        return {"opening": self.opening, "states": list(self.states)}


def opening_digest(request: Mapping[str, Any]) -> str:
    """Return the digest of a request's system prompt and tools."""
    system: Any = request.get("system")
    texts: list[Any] = [{"type": "text", "text": system}] if isinstance(system, str) else list(system or ())
    hashed = blake2b(digest_size=_SIZE)
    for tool in cast("list[Any]", request.get("tools") or []):
        hashed.update(canonical_block(tool, "tool"))
    for block in texts:
        hashed.update(canonical_block(block, "system"))
    return hashed.hexdigest()


def _linked(state: str, said: bytes) -> str:
    return blake2b(state.encode() + said, digest_size=_SIZE).hexdigest()


class SentPrefix:
    """The digests before each message of a request; the next request counts on from where it is the same.

    ``settled`` is a list that only grows and holds the first messages of the request; while it is the same list, the
    messages that were counted before are not read again.
    """

    def __init__(self) -> None:
        self._opening: tuple[Any, Any, str] = (None, None, "")
        self._settled: tuple[list[Message], int] | None = None
        self._before: list[Digests] = []

    def follow(
        self,
        request: Mapping[str, Any],
        settled: tuple[list[Message], int] | None,
        covers: Mapping[str, Mapping[str, Any]],
        *,
        offset: int = 0,
    ) -> int:
        """Count a request's messages and return how many of them were counted before and are the same.

        ``covers`` has the digests of the messages behind each signed summary, by its signature; ``offset`` counts the
        messages that the request has before the first settled one.
        """
        messages: list[Message] = request["messages"]
        opening = self._digest_of_opening(request)
        before, start = self._settled, 0
        same = before is not None and settled is not None and before[0] is settled[0]
        if before and settled and same and self._before and self._before[0].opening == opening:
            # A fork of an older view has fewer messages than the conversation that went on.
            start = min(min(before[1], settled[1]) + offset, len(self._before) - 1)
        del self._before[start + 1 :]
        if not start:
            self._before = [Digests(opening, (opening,))]
        for message in messages[start:]:
            self._before.append(_after(self._before[-1], message, first=len(self._before) == 1, covers=covers))
        self._settled = settled  # messages behind the settled ones may still grow
        return start

    def copied(self) -> SentPrefix:
        """Return a copy that may follow the requests of a branch."""
        new = SentPrefix()
        new._opening, new._settled, new._before = self._opening, self._settled, self._before.copy()
        return new

    def before(self, message: int) -> Digests:
        """Return the digests of the content before a message, by its index; the index may be one past the last."""
        return self._before[message]

    @property
    def end(self) -> Digests:
        """The digests of the whole request."""
        return self._before[-1]

    def _digest_of_opening(self, request: Mapping[str, Any]) -> str:
        system, tools = request.get("system"), request.get("tools")
        if self._opening[0] != system or self._opening[1] != tools or not self._opening[2]:
            self._opening = system, tools, opening_digest(request)
        return self._opening[2]


def _after(digests: Digests, message: Message, *, first: bool, covers: Mapping[str, Mapping[str, Any]]) -> Digests:
    blocks = as_blocks(message)
    if first and blocks and is_signed_summary(blocks[0]):
        digests = digests.after_summary(blocks[0], covers.get(str(blocks[0].get("signature")), {}))
        blocks = blocks[1:]
    return digests.after(blocks, message["role"])


def stale_replies(
    view: View, sent: SentPrefix, bound: Mapping[str, str | None], *, start: int = 0, offset: int = 0
) -> list[str]:
    """Return the uuids of the replies whose thinking the provider would refuse, in order; empty if there are none.

    The first one that does not fit and every later one with thinking are stale. ``bound`` has the digest of the
    request that each reply answered; ``start`` is the first message to look at, and ``offset`` the number of messages
    that the request has before the view's first.
    """
    for at in range(start, view.length):
        group = view.group(at)
        if group.role != "assistant":
            continue
        stale = _first_stale(group, view, sent.before(at + offset), bound)
        if stale is not None:
            later = replies_with_thinking(view, start=at)
            return later[later.index(stale) :]
    return []


def _first_stale(group: Group, view: View, before: Digests, bound: Mapping[str, str | None]) -> str | None:
    """Return the uuid of the group's first reply with thinking that is not bound to the content before it."""
    shown = [block for piece in group.pieces for block in as_blocks(piece.message)]
    if has_server_tools(shown):  # a call that the provider gave up is sent as text
        shown = paired_server_tools(shown, group is view.final and not group.uses)
    for piece in group.pieces:
        many = len(as_blocks(piece.message))
        blocks, shown = shown[:many], shown[many:]
        if _shows_thinking(piece.uuid, blocks, view) and bound.get(piece.uuid, UNBOUND) not in (
            UNBOUND,
            *before.states,
        ):
            return piece.uuid
        before = before.after(blocks, "assistant")
    return None


def replies_with_thinking(view: View, *, start: int = 0) -> list[str]:
    """Return the uuids of the replies whose thinking the view shows, from the message with the index ``start`` on."""
    groups = (view.group(at) for at in range(start, view.length))
    pieces = (piece for group in groups if group.role == "assistant" for piece in group.pieces)
    return [piece.uuid for piece in pieces if _shows_thinking(piece.uuid, as_blocks(piece.message), view)]


def unreadable_messages(view: View, reads: Callable[[str], bool]) -> list[int]:
    """Return the indexes in a request of the messages with thinking of a model that the model in use cannot read.

    The provider drops such thinking without an error, and it is readable again when its model comes back.
    """
    models = {item.uuid: str(item.entry.reply.get("model") or "") for item in view.items_in_view()}
    indexes = request_indexes(view)
    return [
        indexes[at]
        for at in range(view.length)
        for piece in view.group(at).pieces
        if view.group(at).role == ASSISTANT
        and _shows_thinking(piece.uuid, as_blocks(piece.message), view)
        and not reads(models.get(piece.uuid, ""))
    ]


def dropped_messages(reply: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the message index and the reason of each thinking block that a reply says was dropped."""
    found: Any = reply.get("input_transformations")
    out: list[tuple[int, str]] = []
    for one in cast("list[Any]", found) if isinstance(found, list) else ():
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", one) if isinstance(one, Mapping) else {}
        parts = str(fields.get("path")).split(".")
        if fields.get("type") == "thinking_dropped" and len(parts) > 1 and parts[1].isdigit():
            out.append((int(parts[1]), str(fields.get("reason"))))
    return out


def _shows_thinking(uuid: str, blocks: Sequence[Block], view: View) -> bool:
    return uuid not in view.overrides.thinking and any(block["type"] in THINKING for block in blocks)


def thinking_tokens(view: View, replies: Iterable[str]) -> int:
    """Return the estimated tokens of the thinking of these replies."""
    wanted = set(replies)
    return sum(tokens for _, uuid, tokens in _thinking(view) if uuid in wanted)


def thinking_sizes(view: View) -> list[tuple[int, int]]:
    """Return the message index and the estimated tokens of each reply whose thinking the view shows."""
    return [(at, tokens) for at, uuid, tokens in _thinking(view) if uuid not in view.overrides.thinking]


def _thinking(view: View) -> Iterator[tuple[int, str, int]]:
    """Yield the message index, the uuid and the estimated tokens of thinking of each reply that has some.

    Many models return thinking without its words; its tokens are then the rest of the output that was billed.
    """
    billed: dict[str, int] = {}
    for at, group in enumerate(view.groups):
        for piece in group.pieces if group.role == "assistant" else ():
            blocks = as_blocks(piece.message)
            thinking = [block for block in blocks if block["type"] in THINKING]
            if not thinking:
                continue
            tokens = _tokens(thinking)
            if not any(block.get("thinking") for block in thinking):
                billed = billed or _billed_outputs(view)
                others = [block for block in blocks if block["type"] not in THINKING]
                tokens = max(tokens, billed.get(piece.uuid, 0) - (_tokens(others) if others else 0))
            yield at, piece.uuid, tokens


def _tokens(blocks: list[Block]) -> int:
    return round(measure_message({"role": "assistant", "content": blocks}).total)


def _billed_outputs(view: View) -> dict[str, int]:
    replies = (item.entry for item in view.items_in_view() if item.kind == ASSISTANT)
    usages = ((entry.uuid, billed_tokens(entry.reply)) for entry in replies)
    return {uuid: usage.output_tokens for uuid, usage in usages if usage is not None}
