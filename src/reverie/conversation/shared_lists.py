"""The lists that consecutive views share; only the newest view may extend them.

``head`` is the number of the view that extended a list last. A view with another number copies its part of the list
before it grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from .cuts import Item, LoggedCut
from .entries import USER, Entry, Message
from .tokens.tally import CountEvent
from .tool_calls import ToolCall, path_of
from .wire.blocks import as_blocks, count_images
from .wire.flatten import Group, MessagePiece, missing_results

__all__ = ["EntryHistory", "FinishedMessages", "Result", "groups_of", "groups_showing", "results_in"]

OPEN_GROUPS: Final = 2
"""Messages at the end that may still change: a later piece of a reply may belong before one of attachments."""
T = TypeVar("T")


class Result(Struct, frozen=True, gc=False):
    """A tool result in the view; ``piece`` holds only its block, and ``message`` is the uuid of its log entry.

    ``group`` is the index of its message in the view.
    """

    tool_use_id: str
    tool: str
    path: str | None
    message: str
    time: str
    has_images: bool
    group: int
    piece: MessagePiece

    @property
    def tokens(self) -> int:
        """The estimated tokens of the result when it arrived; later decisions do not change this number."""
        return self.piece.tokens


def results_in(
    piece: MessagePiece, expected: tuple[str, ...], calls: Mapping[str, ToolCall], entry: Entry, group: int
) -> list[Result]:
    """Return the results in an entry's message that answer ``expected`` calls; ``group`` is its index in the view."""
    blocks = as_blocks(piece.message)
    found: list[Result] = []
    for block in blocks:
        if block["type"] != "tool_result" or block["tool_use_id"] not in expected:
            continue
        called: str = block["tool_use_id"]
        call = calls[called]
        mine = piece if len(blocks) == 1 else MessagePiece(entry.uuid, {"role": USER, "content": [block]})
        pictured = count_images([block]) > 0
        found.append(Result(called, call.name, path_of(call.input), entry.uuid, entry.time, pictured, group, mine))
    return found


class FinishedMessages:
    """The messages that only a decision can still change, as groups and as rendered for sending (``flat``).

    ``results`` and ``calls`` also hold the tool results and calls of the last messages, which may still change.
    """

    __slots__ = ("calls", "flat", "groups", "head", "results", "summaries")

    def __init__(self, head: int) -> None:
        self.head = head
        self.groups: list[Group] = []
        self.flat: list[Message] = []
        self.summaries: list[int] = []
        self.results: list[Result] = []
        self.calls: dict[str, ToolCall] = {}

    def append(self, group: Group, message: Message) -> None:
        """Append a message that is finished; note where it has a summary that a provider made at a threshold."""
        is_reply = group.role == "assistant" and not group.is_compaction
        if is_reply and any(block["type"] == "compaction" for block in as_blocks(message)):
            self.summaries.append(len(self.flat))
        self.groups.append(group)
        self.flat.append(message)

    def copied(self, head: int, groups: int, results: int, tail: tuple[Group, ...]) -> FinishedMessages:
        """Return a copy with only the first groups and results, by number, and the calls of those and the tail."""
        new = FinishedMessages(head)
        new.groups = self.groups[:groups]
        new.flat = self.flat[:groups]
        new.summaries = [at for at in self.summaries if at < groups]
        new.results = self.results[:results]
        mine = {called for group in tail for called in group.uses}
        new.calls = _without_later_keys(self.calls, lambda called, call: call.group < groups or called in mine)
        return new

    def redrawable(self, groups: int) -> FinishedMessages:
        """Return an object with its own copy of the first ``groups`` rendered messages, so that some can change.

        The other lists stay shared: a view that holds the old object is not the head and copies before it grows.
        """
        new = FinishedMessages(self.head)
        new.groups, new.results, new.calls = self.groups, self.results, self.calls
        new.summaries = self.summaries
        new.flat = self.flat[:groups]
        return new


class EntryHistory:
    """The items, cuts and count events folded so far, in order, whether or not they are still in the view.

    ``known`` maps each entry's uuid, and ``kept`` each id of a kept tool result, to the number of its entry.
    """

    __slots__ = ("events", "head", "items", "kept", "known")

    def __init__(self, head: int) -> None:
        self.head = head
        self.items: list[Item | LoggedCut] = []
        self.events: list[CountEvent] = []
        self.known: dict[str, int] = {}
        self.kept: dict[str, int] = {}

    def copied(self, head: int, items: int, events: int, folded: int) -> EntryHistory:
        """Return a copy of the history as it was after this many items, events and entries."""
        new = EntryHistory(head)
        new.items = self.items[:items]
        new.events = self.events[:events]
        new.known = _without_later_keys(self.known, lambda _, at: at < folded)
        new.kept = _without_later_keys(self.kept, lambda _, at: at < folded)
        return new


def groups_of(groups: Sequence[Group], uuids: Set[str]) -> set[int]:
    """Return the positions of the messages with a piece of one of these entries."""
    return {at for at, group in enumerate(groups) if any(piece.uuid in uuids for piece in group.pieces)}


class Groups(Protocol):
    """The messages of a view, by their index."""

    @property
    def length(self) -> int:
        """The number of messages."""
        ...

    def group(self, at: int) -> Group:
        """Return the message at an index."""
        ...


def groups_showing(groups: Groups, calls: Mapping[str, ToolCall], ids: Iterable[str]) -> set[int]:
    """Return the positions of the messages with these results; a result still to come is rendered on arrival."""
    known = ((called, calls.get(called)) for called in ids)
    at = {called: call.group + 1 for called, call in known if call is not None and call.group + 1 < groups.length}
    settled = groups.length - OPEN_GROUPS
    return {one for called, one in at.items() if one < settled or called not in missing_results(groups.group(one))}


def _without_later_keys(found: dict[str, T], is_mine: Callable[[str, T], bool]) -> dict[str, T]:
    """Return a copy of the dict without the keys at its end that ``is_mine`` rejects; other views added those."""
    new = found.copy()
    while new:
        key, value = new.popitem()
        if is_mine(key, value):
            new[key] = value
            break
    return new
