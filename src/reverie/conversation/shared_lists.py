"""What views share: lists that only the newest view may extend.

``head`` names the view that did so last; a view that is not the head copies its own part before it grows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from .cuts import Cutting, Item
from .entries import USER, Entry, Message
from .tokens.tally import Event
from .tool_calls import Use, path_of
from .wire.blocks import as_blocks, count_images
from .wire.flatten import Group, Piece

__all__ = ["Closed", "Result", "Said", "results_in"]

T = TypeVar("T")


class Result(Struct, frozen=True, gc=False):
    """A tool result that stands in the view: in a piece, alone or as one of its blocks."""

    tool_use_id: str
    tool: str
    path: str | None
    message: str
    time: str
    has_images: bool
    group: int
    piece: Piece

    @property
    def tokens(self) -> int:
        """Estimate of what it held when it came."""
        return self.piece.tokens


def results_in(
    piece: Piece, expected: tuple[str, ...], uses: Mapping[str, Use], entry: Entry, group: int
) -> list[Result]:
    """Return the results of a piece that answer the calls before it."""
    blocks = as_blocks(piece.message)
    found: list[Result] = []
    for block in blocks:
        if block["type"] != "tool_result" or block["tool_use_id"] not in expected:
            continue
        called: str = block["tool_use_id"]
        use = uses[called]
        mine = piece if len(blocks) == 1 else Piece(entry.uuid, {"role": USER, "content": [block]})
        pictured = count_images([block]) > 0
        found.append(Result(called, use.name, path_of(use.input), entry.uuid, entry.time, pictured, group, mine))
    return found


class Closed:
    """The messages that are finished, as groups and as they are sent."""

    __slots__ = ("flat", "groups", "head", "results", "uses")

    def __init__(self, head: int) -> None:
        self.head = head
        self.groups: list[Group] = []
        self.flat: list[Message] = []
        self.results: list[Result] = []
        self.uses: dict[str, Use] = {}

    def copied(self, head: int, groups: int, results: int, tail: tuple[Group, ...]) -> Closed:
        """Return an own copy of the part that a view with this tail sees."""
        new = Closed(head)
        new.groups = self.groups[:groups]
        new.flat = self.flat[:groups]
        new.results = self.results[:results]
        mine = {called for group in tail for called in group.uses}
        new.uses = _until(self.uses, lambda called, use: use.group < groups or called in mine)
        return new

    def redrawable(self, groups: int) -> Closed:
        """Return the same for the same head, with messages of its own to draw anew.

        The rest stays shared: whoever holds the old one is not the head, and copies before it grows.
        """
        new = Closed(self.head)
        new.groups, new.results, new.uses = self.groups, self.results, self.uses
        new.flat = self.flat[:groups]
        return new


class Said:
    """Everything said so far, in order, whatever the view still shows of it."""

    __slots__ = ("events", "head", "items", "kept", "known")

    def __init__(self, head: int) -> None:
        self.head = head
        self.items: list[Item | Cutting] = []
        self.events: list[Event] = []
        self.known: dict[str, int] = {}
        self.kept: dict[str, int] = {}

    def copied(self, head: int, items: int, events: int, folded: int) -> Said:
        """Return an own copy of what had been said after so many entries."""
        new = Said(head)
        new.items = self.items[:items]
        new.events = self.events[:events]
        new.known = _until(self.known, lambda _, at: at < folded)
        new.kept = _until(self.kept, lambda _, at: at < folded)
        return new


def _until(found: dict[str, T], is_mine: Callable[[str, T], bool]) -> dict[str, T]:
    """Return a copy without what others added: they did so later, so that all of it stands at the end."""
    new = found.copy()
    while new:
        key, value = new.popitem()
        if is_mine(key, value):
            new[key] = value
            break
    return new
