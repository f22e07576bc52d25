"""What views share: lists that only the newest view may extend.

``head`` names the view that did so last; a view that is not the head copies its own part before it grows.
"""

from __future__ import annotations

from ..values import record
from .cuts import Cutting, Item
from .decisions import ResultOffloaded
from .entries import Message
from .flatten import Group
from .uses import Use

__all__ = ["Closed", "Result", "Said"]


@record
class Result:
    """A tool result that stands in the view."""

    tool_use_id: str
    tool: str
    path: str | None
    message: str
    tokens: int
    time: str
    has_images: bool
    group: int


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
        new.uses = {called: use for called, use in self.uses.items() if use.group < groups or called in mine}
        return new


class Said:
    """Everything said so far, in order, whatever the view still shows of it."""

    __slots__ = ("head", "items", "kept", "known", "offloaded")

    def __init__(self, head: int) -> None:
        self.head = head
        self.items: list[Item | Cutting] = []
        self.known: dict[str, int] = {}
        self.kept: dict[str, int] = {}
        self.offloaded: dict[str, tuple[int, ResultOffloaded]] = {}

    def copied(self, head: int, items: int, folded: int) -> Said:
        """Return an own copy of what had been said after so many entries."""
        new = Said(head)
        new.items = self.items[:items]
        new.known = {uuid: at for uuid, at in self.known.items() if at < folded}
        new.kept = {called: at for called, at in self.kept.items() if at < folded}
        new.offloaded = {called: found for called, found in self.offloaded.items() if found[0] < folded}
        return new
