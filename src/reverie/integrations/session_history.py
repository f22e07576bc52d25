"""The host's history as it is in a session's log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ..conversation.cuts import Item
from ..conversation.decisions import Snipped
from ..conversation.entries import ASSISTANT, USER, reply_id
from ..conversation.view import View
from .history_pieces import HistoryPiece, block_list, content_key, message_key, reply_key

OWN: Final = "items"
"""The field of a logged message or reply that holds the host's own form of it."""


class LoggedResult:
    """The entry of one call's result, and the digests of every content that the host may show for the result."""

    def __init__(self, uuid: str, contents: Iterable[bytes] = ()) -> None:
        self.uuid = uuid
        self.contents = set(contents)


class LoggedTurn:
    """A logged message, or a logged reply, with the results that follow it; ``key`` is its digest."""

    def __init__(self, key: bytes, uuids: list[str]) -> None:
        self.key = key
        self.uuids = uuids
        self.results: dict[str, LoggedResult] = {}

    def rewrites(self, piece: HistoryPiece) -> bool:
        """Say whether the host shows another content of a result than any that is known."""
        known = self.results.get(piece.id)
        return known is not None and bool(known.contents) and piece.key not in known.contents

    def entries(self) -> list[str]:
        """Return the uuids of all entries of this turn."""
        return [*self.uuids, *(result.uuid for result in self.results.values())]


def kept_positions(known: Sequence[bytes], host: Sequence[bytes]) -> list[int]:
    """Return the positions of the logged turns with which the host's history begins; its other turns are new.

    Turns that the host left out are skipped where its history continues with a logged one, so that a history
    without its oldest turns does not count as a new one.
    """
    kept: list[int] = []
    at = 0
    for number, key in enumerate(host):
        if at < len(known) and known[at] == key:
            found = at
        else:
            candidates = [later for later in range(at, len(known)) if known[later] == key]
            if not candidates:
                break
            found = max(candidates, key=lambda later: (_run(known, later, host, number), -later))
        kept.append(found)
        at = found + 1
    return kept


def _run(known: Sequence[bytes], at: int, host: Sequence[bytes], number: int) -> int:
    length = 0
    for one, other in zip(known[at:], host[number:], strict=False):
        if one != other:
            break
        length += 1
    return length


def logged_turns(view: View, first: LoggedTurn) -> list[LoggedTurn]:
    """Return the turns in a view's log that no snip removed; add results before the first turn to ``first``."""
    turns: list[LoggedTurn] = []
    replies: dict[str, LoggedTurn] = {}
    blocks: dict[str, list[Any]] = {}
    gone: set[str] = set()
    for one in view.each():
        if not isinstance(one, Item):
            if isinstance(one.cut, Snipped):
                gone.update(one.cut.messages)
            continue
        if one.entry.kind == ASSISTANT:
            name = reply_id(one.entry)
            blocks.setdefault(name, []).extend(block_list(one.message["content"]))
            if name not in replies:
                replies[name] = LoggedTurn(b"", [])
                turns.append(replies[name])
            replies[name].uuids.append(one.uuid)
            replies[name].key = reply_key(blocks[name])
        elif one.entry.kind == USER or OWN in one.entry.body:
            _add_user_turn(one, view, turns, first)
    return [one for one in turns if not gone.issuperset(one.uuids)]


def _add_user_turn(item: Item, view: View, turns: list[LoggedTurn], first: LoggedTurn) -> None:
    words: list[Any] = []
    for block in block_list(item.message["content"]):
        if block.get("type") != "tool_result":
            words.append(block)
            continue
        called = str(block.get("tool_use_id"))
        whole = view.offloaded(called) is None
        owner = turns[-1] if turns else first
        owner.results[called] = LoggedResult(item.uuid, [content_key(block.get("content"))] if whole else [])
    if words:
        turns.append(LoggedTurn(message_key(words), [item.uuid]))
