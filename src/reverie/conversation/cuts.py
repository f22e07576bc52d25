"""What is visible after cuts: which of the things said still stand in the view, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, TypeAlias

from msgspec import Struct

from ..values import record
from .decisions import Collapsed, Compacted, Decision, Snipped
from .entries import ATTACHMENT, USER, Entry, Message

__all__ = ["EDIT", "USER_CONTEXT", "Cut", "Cutting", "Item", "Standing", "message_of", "shown_by", "visible"]

USER_CONTEXT: Final = "user_context"
"""The type of attachments that open a session, such as instruction files: no compaction takes them out of the view."""
EDIT: Final = "cache edit"
"""The kind of an item that edits the server's cache: it is sent as it stands, to providers that can."""
Cut: TypeAlias = Compacted | Collapsed | Snipped


class Item(Struct, frozen=True, gc=False):
    """Something said that may stand in the view."""

    uuid: str
    kind: str
    message: Message
    entry: Entry


@record
class Cutting:
    """A cut and the log entry that made it."""

    uuid: str
    entry: Entry
    cut: Cut


def message_of(entry: Entry) -> Message | None:
    """Return the message an entry puts into the view; ephemeral ones put none."""
    if entry.body.get("ephemeral") is True:
        return None
    message = entry.message
    if message is None and entry.kind == ATTACHMENT and "content" in entry.body:
        return {"role": "user", "content": entry.body["content"]}
    return message


def shown_by(entry: Entry, decision: Decision) -> Item | None:
    """Return what a decision itself puts into the view: memories, instructions, queued messages."""
    text: str | None = getattr(decision, "text", None)
    if not text or not text.strip():
        return None
    return Item(entry.uuid, ATTACHMENT, {"role": "user", "content": text}, entry)


@record
class Standing:
    """What stood in the view at its last cut, so that the next one looks only at what was said since."""

    count: int = 0
    undone: frozenset[str] = frozenset()
    items: tuple[Item, ...] = ()

    def of(self, undone: frozenset[str]) -> Standing:
        """Return this, or the beginning of all where other cuts are undone by now."""
        return self if self.undone == undone else Standing(undone=undone)

    def then(self, said: Sequence[Item | Cutting]) -> Standing:
        """Return what stands after all this was said and cut too."""
        counted = (one for one in said if isinstance(one, Item) or one.uuid not in self.undone)
        return Standing(self.count + len(said), self.undone, tuple(visible(chain(self.items, counted))))


def visible(said: Iterable[Item | Cutting]) -> list[Item]:
    """Return what still stands in the view, in order; a cut that cannot be applied changes nothing."""
    out: list[Item] = []
    for one in said:
        if isinstance(one, Item):
            out.append(one)
            continue
        cut = one.cut
        if isinstance(cut, Compacted):
            out = _compacted(out, one, cut)
        elif isinstance(cut, Collapsed):
            out = _collapsed(out, one, cut)
        else:
            gone = set(cut.messages)
            out = [item for item in out if item.uuid not in gone]
    return out


def _compacted(items: list[Item], made: Cutting, cut: Compacted) -> list[Item]:
    """A boundary counts only if its summary can be read and the tail it keeps can be found."""
    if not cut.summary.strip():
        return items
    if cut.from_message is not None:
        first = _position(items, cut.from_message)
        return items if first is None else _folded(items[:first], made, cut, [])
    start = len(items) if cut.first_kept is None else _position(items, cut.first_kept)
    if start is None:
        return items
    return _folded([item for item in items[:start] if _stands(item)], made, cut, items[start:])


def _folded(before: list[Item], made: Cutting, cut: Compacted, kept: list[Item]) -> list[Item]:
    opening = [Item(made.uuid, USER, {"role": "user", "content": cut.summary}, made.entry)]
    extra: list[Item] = []
    if cut.attachments:
        message: Message = {"role": "user", "content": cut.attachments}
        extra.append(Item(f"{made.uuid}:attachments", ATTACHMENT, message, made.entry))
    return before + opening + kept + extra


def _stands(item: Item) -> bool:
    return item.kind == ATTACHMENT and item.entry.body.get("type") == USER_CONTEXT


def _collapsed(items: list[Item], made: Cutting, cut: Collapsed) -> list[Item]:
    first, last = _position(items, cut.first), _position(items, cut.last)
    if first is None or last is None or last < first or not cut.text.strip():
        return items
    stub = Item(made.uuid, USER, {"role": "user", "content": cut.text}, made.entry)
    return [*items[:first], stub, *items[last + 1 :]]


def _position(items: list[Item], uuid: str) -> int | None:
    return next((at for at, item in enumerate(items) if item.uuid == uuid), None)
