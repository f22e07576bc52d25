"""The lists that consecutive views share; only the newest view may extend them.

``head`` is the number of the view that extended a list last. A view with another number copies its part of the list
before it grows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from heapq import merge
from typing import Any, Final, Protocol, TypeVar, cast

from msgspec import Struct

from ..digests import hex_of
from .cuts import ContentDecision, Item, LoggedCut, changed_results, logged_item, overrides_after
from .decisions import ImagesDropped, ResultsKept, ThinkingDropped, decision_of
from .entries import ASSISTANT, DECISION, USER, Entry, Message
from .tokens.tally import CountEvent
from .tool_calls import ToolCall, path_of
from .wire.blocks import as_blocks, count_images
from .wire.flatten import NO_OVERRIDES, Group, MessagePiece, Overrides, missing_results

OPEN_GROUPS: Final = 2
"""Messages at the end that may still change: a later piece of a reply may belong before one of attachments."""
_STEP: Final = 64
_REPLY: Final = "reply "
"""Before the id of a reply among the ids of entries, which have no blank."""
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


class Archive(Protocol):
    """The log of an open session, where entries that left the view are read again."""

    def at(self, places: Iterable[int]) -> Iterator[Entry]:
        """Yield the entries whose lines begin at these offsets of the log."""
        ...

    def __iter__(self) -> Iterator[Entry]:
        """Yield all entries of the log so far, oldest first."""
        ...


class IdSet:
    """An immutable set of ids that takes 8 bytes for each, as digests in a few sorted layers, the newest first."""

    __slots__ = ("_layers",)

    def __init__(self, layers: tuple[array[int], ...] = ()) -> None:
        self._layers = layers

    def __contains__(self, id: str) -> bool:
        wanted = _digest(id) if self._layers else 0
        places = ((layer, bisect_left(layer, wanted)) for layer in self._layers)
        return any(at < len(layer) and layer[at] == wanted for layer, at in places)

    def with_ids(self, ids: Iterable[str]) -> IdSet:
        """Return a set that also has these ids."""
        top, below = array("Q", sorted(map(_digest, ids))), self._layers
        while below and 4 * len(top) >= len(below[0]):
            top, below = array("Q", merge(top, below[0])), below[1:]
        return IdSet((top, *below)) if top else self


def _digest(id: str) -> int:
    return int(hex_of(id.encode("utf-8", "surrogatepass"))[:16], 16)


class EntryHistory:
    """The items, cuts and count events folded so far, in order, whether or not they are still in the view.

    ``known`` maps each entry's uuid and each reply's id, ``kept`` each id of a kept tool result, to the number of its
    entry. With an
    ``archive`` the items before the last cut are read from the log when they are asked for: their place in the list is
    empty, and ``places`` has the offset of each in the log (-1 if it is not there). Without one, ``decisions`` has
    those about content, each with the number of its entry.
    """

    __slots__ = (
        "_known_before", "_released", "archive", "decisions", "events", "head", "items", "kept", "known", "places"
    )  # fmt: skip

    def __init__(self, head: int, archive: Archive | None = None) -> None:
        self.head = head
        self.archive = archive
        self.items: list[Item | LoggedCut | None] = []
        self.places = array("q")
        self.events: list[CountEvent] = []
        self.known: dict[str, int] = {}
        self.kept: dict[str, int] = {}
        self.decisions: list[tuple[int, ContentDecision | ResultsKept]] = []
        self._known_before = IdSet()
        self._released = 0

    def append(self, item: Item | LoggedCut, place: int) -> None:
        """Append an item or a cut whose line begins at this offset of the log."""
        self.items.append(item)
        self.places.append(place)
        id = item.entry.reply.get("id") if isinstance(item, Item) and item.kind == ASSISTANT else None
        if id and isinstance(id, str):
            self.known.setdefault(_REPLY + id, self.known.get(item.uuid, 0))

    def part(self, start: int, stop: int) -> list[Item | LoggedCut]:
        """Return the items and cuts from one index to before another."""
        return list(self.each(start, stop)) if start < self._released else cast("Any", self.items[start:stop])

    def each(self, start: int, stop: int) -> Iterator[Item | LoggedCut]:
        """Yield the items and cuts from one index to before another; few of those in the log are held at a time."""
        gone = (self.places[at] for at in range(start, stop) if self.items[at] is None)
        read = self.archive.at(gone) if self.archive is not None else iter(())
        for at in range(start, stop):
            one = self.items[at]
            yield one if one is not None else logged_item(next(read))

    def latest(self, stop: int) -> Iterator[Item | LoggedCut]:
        """Yield the items and cuts before an index, newest first; few of those in the log are held at a time."""
        for end in range(stop, 0, -_STEP):
            yield from reversed(self.part(max(0, end - _STEP), end))

    def knows(self, uuid: str) -> bool:
        """Say whether an entry was folded."""
        return uuid in self.known or uuid in self._known_before

    def knows_reply(self, id: str) -> bool:
        """Say whether a reply with this id was folded, here or in a view that shares this history."""
        return self.knows(_REPLY + id)

    def note(self, decision: ContentDecision | ResultsKept, number: int) -> None:
        """Keep a decision about content for an undone cut, if no archive has it."""
        if self.archive is None:
            self.decisions.append((number, decision))

    def content(self, upto: str | None, folded: int) -> tuple[Overrides, dict[str, int]]:
        """Return the overrides and the kept results by all decisions before the entry ``upto``, the ``folded`` first.

        Without an archive the history has them, in memory.
        """
        overrides, kept = NO_OVERRIDES, dict[str, int]()
        noted = self.decisions if self.archive is None else enumerate(_content_decisions(self.archive, upto))
        for number, decision in noted:
            if number >= folded:
                break
            if isinstance(decision, ResultsKept):
                kept.update(dict.fromkeys(decision.tool_use_ids, 0))
            else:
                overrides = overrides_after(overrides, decision)
        return overrides, kept

    def released(self, stop: int, kept: dict[str, int]) -> EntryHistory:
        """Return a history with these kept results that leaves the items before ``stop`` to the archive, if any.

        The list of items is shared with older views, because an item and its line in the log are the same.
        """
        new = copy(self)
        new.kept = kept
        if self.archive is not None:
            for at in range(self._released, stop):
                if self.places[at] >= 0:
                    self.items[at] = None
            new.known, new.events = {}, []
            new._known_before = self._known_before.with_ids(self.known)
            new._released = self._released = stop
        return new

    def copied(self, head: int, items: int, events: int, folded: int) -> EntryHistory:
        """Return a copy of the history as it was after this many items, events and entries."""
        new = EntryHistory(head, self.archive)
        new.items = self.items[:items]
        new.places = self.places[:items]
        new.events = self.events[:events]
        new.known = _without_later_keys(self.known, lambda _, at: at < folded)
        new.kept = _without_later_keys(self.kept, lambda _, at: at < folded)
        new.decisions = [one for one in self.decisions if one[0] < folded]
        new._known_before = self._known_before
        new._released = min(self._released, items)
        return new


def _content_decisions(archive: Archive, upto: str | None) -> Iterator[ContentDecision | ResultsKept]:
    """Yield the decisions about content in an archive, up to an entry."""
    for entry in archive:
        if entry.uuid == upto:
            return
        decision = decision_of(entry.body) if entry.kind == DECISION else None
        if isinstance(decision, ContentDecision | ResultsKept):
            yield decision


def groups_changed(
    groups: Groups, calls: Mapping[str, ToolCall], before: Overrides, decision: ContentDecision
) -> set[int]:
    """Return the positions of the messages that a decision about content shows in another way."""
    if isinstance(decision, ImagesDropped):
        return _groups_of(groups.groups, {image.message for image in decision.images})
    if isinstance(decision, ThinkingDropped):
        return _groups_of(groups.groups, set(decision.messages))
    return _groups_showing(groups, calls, changed_results(before, decision))


def _groups_of(groups: Sequence[Group], uuids: Set[str]) -> set[int]:
    return {at for at, group in enumerate(groups) if any(piece.uuid in uuids for piece in group.pieces)}


class Groups(Protocol):
    """The messages of a view, by their index."""

    @property
    def length(self) -> int:
        """The number of messages."""
        ...

    @property
    def groups(self) -> list[Group]:
        """All of them."""
        ...

    def group(self, at: int) -> Group:
        """Return the message at an index."""
        ...


def _groups_showing(groups: Groups, calls: Mapping[str, ToolCall], ids: Iterable[str]) -> set[int]:
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
