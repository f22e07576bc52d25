"""Cuts: which items of the history are still visible after compactions, collapses and snips, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain
from typing import Any, Final, TypeAlias, cast

from msgspec import Struct, to_builtins

from ..values import record, replace
from .decisions import (
    Collapsed,
    Compacted,
    ContextSaid,
    Decision,
    InstructionsAttached,
    MemoriesSurfaced,
    MessageQueued,
    PrefixAmended,
    ResultsClearedByProvider,
    SaidItem,
    Snipped,
)
from .entries import ATTACHMENT, USER, Entry, Message
from .standing_context import USER_CONTEXT, said_in, said_message
from .wire.blocks import accepted_message, is_signed_summary, summary_as_text

__all__ = [
    "BLOCK",
    "EDIT",
    "SYSTEM",
    "USER_CONTEXT",
    "Cut",
    "Item",
    "LoggedCut",
    "VisibleItems",
    "is_user_context",
    "item_shown_by",
    "message_of",
    "placed_items",
    "visible_items",
]

EDIT: Final = "cache edit"
"""The kind of an item that deletes results from the provider's cache; only providers that support this get it."""
BLOCK: Final = "compaction block"
"""The kind of an item that holds a provider's signed summary."""
SYSTEM: Final = "system"
"""The kind of an item with the role ``system``: a changed system prompt or changed tools."""
Cut: TypeAlias = Compacted | Collapsed | Snipped


class Item(Struct, frozen=True, gc=False):
    """A message of the history that may be visible in the view, and the log entry that added it."""

    uuid: str
    kind: str
    message: Message
    entry: Entry


@record
class LoggedCut:
    """A cut and the log entry that made it."""

    uuid: str
    entry: Entry
    cut: Cut


def message_of(entry: Entry) -> Message | None:
    """Return the message that an entry adds to the view; None if the entry is ephemeral or has no message."""
    if entry.body.get("ephemeral") is True:
        return None
    message = entry.message
    if message is None and entry.kind == ATTACHMENT and "content" in entry.body:
        return {"role": "user", "content": entry.body["content"]}
    return message


def item_shown_by(entry: Entry, decision: Decision) -> Item | None:
    """Return the item that a decision adds to the end of the view; None if it adds nothing."""
    if isinstance(decision, PrefixAmended):
        return Item(entry.uuid, _kind_of(decision.message["role"]), decision.message, entry)
    if isinstance(decision, ContextSaid):
        message = said_message(decision.items, role=decision.role, heading=decision.heading)
        return None if message is None else Item(entry.uuid, _kind_of(decision.role), message, entry)
    if not isinstance(decision, MemoriesSurfaced | InstructionsAttached | MessageQueued | ResultsClearedByProvider):
        return None
    said = [] if isinstance(decision, MessageQueued | ResultsClearedByProvider) else decision.items
    if said and (message := said_message(said, role=USER)) is not None:
        return Item(entry.uuid, ATTACHMENT, message, entry)
    text = decision.text
    return Item(entry.uuid, ATTACHMENT, {"role": "user", "content": text}, entry) if text.strip() else None


def _kind_of(role: str) -> str:
    return SYSTEM if role == SYSTEM else ATTACHMENT


@record
class VisibleItems:
    """The items that were visible after the last cut, so that the next cut reads only the history since then."""

    count: int = 0
    """How many items and cuts of the history these items result from."""
    undone: frozenset[str] = frozenset()
    """The uuids of the undone compactions, which are ignored."""
    items: tuple[Item, ...] = ()

    def if_undone_is(self, undone: frozenset[str]) -> VisibleItems:
        """Return this object if it ignores these undone compactions, else an empty object that ignores them."""
        return self if self.undone == undone else VisibleItems(undone=undone)

    def shown(self, retired: Set[str]) -> Iterator[Item]:
        """Yield the items to show: without retired ones."""
        return (item for item in self.items if item.uuid not in retired)

    def after(self, history: Sequence[Item | LoggedCut]) -> VisibleItems:
        """Return the items that are visible once the items and cuts of this further history are applied."""
        applied = (one for one in history if isinstance(one, Item) or one.uuid not in self.undone)
        items = tuple(visible_items(chain(self.items, applied), undone=bool(self.undone)))
        return VisibleItems(self.count + len(history), self.undone, items)


def visible_items(history: Iterable[Item | LoggedCut], *, undone: bool = False) -> list[Item]:
    """Return a list of the items that are visible after all cuts, in order; a cut that cannot apply is ignored.

    With ``undone`` the history lacks cuts that were undone. Standing context that was said again because of one leaves,
    since an older saying of it is visible; a later cut does not bring it back.
    """
    out: list[Item] = []
    said: dict[str, tuple[str, str]] = {}
    for one in history:
        if isinstance(one, Item):
            fresh = _without_repeats(one, said) if undone else one
            out += [fresh] if fresh is not None else []
            continue
        cut = one.cut
        if isinstance(cut, Compacted):
            out = _compacted(out, one, cut)
        elif isinstance(cut, Collapsed):
            out = _collapsed(out, one, cut)
        else:
            gone = set(cut.messages)
            out = [item for item in out if item.uuid not in gone]
        said = {key: value for item in out for key, value in _said_by(item).items()} if undone else {}
    return out


def _compacted(items: list[Item], logged: LoggedCut, cut: Compacted) -> list[Item]:
    """Return the items after a compaction; unchanged if it has no summary or the message it names is missing."""
    if not cut.summary.strip():
        return items
    if cut.from_message is not None:
        first = _position(items, cut.from_message)
        return items if first is None else _with_summary(items[:first], logged, cut, [])
    start = len(items) if cut.first_kept is None else _position(items, cut.first_kept)
    if start is None:
        return items
    if _is_signed(cut):  # all that it covers leaves the view, because nothing may come before the block
        return _with_summary([], logged, cut, items[start:])
    return _with_summary([item for item in items[:start] if is_user_context(item)], logged, cut, items[start:])


def _with_summary(before: list[Item], logged: LoggedCut, cut: Compacted, kept: list[Item]) -> list[Item]:
    """Return the items before the summary, the summary, the kept messages and the compaction's attachments."""
    if _is_signed(cut):
        opening = [Item(logged.uuid, BLOCK, {"role": "assistant", "content": [cut.block]}, logged.entry)]
    else:
        opening = [Item(logged.uuid, USER, {"role": "user", "content": cut.summary}, logged.entry)]
    extra: list[Item] = []
    if cut.attachments:
        message: Message = {"role": "user", "content": cut.attachments}
        extra.append(Item(f"{logged.uuid}:attachments", ATTACHMENT, message, logged.entry))
    return before + opening + kept + extra


def _is_signed(cut: Compacted) -> bool:
    """Say whether a cut has a provider's signed summary whose text is as the provider wrote it."""
    content: Any = cut.block.get("content")
    return bool(cut.block) and (not content or content == cut.summary)


def placed_items(item: Item, *, first: bool) -> list[Item]:
    """Return the items to show for one: a signed summary opens the conversation as a message of its own, or is text.

    A provider refuses one that something precedes. ``first`` means that nothing has been shown yet.
    """
    content: Any = item.message.get("content")
    if not isinstance(content, list) or not any(map(is_signed_summary, cast("list[Any]", content))):
        return [item]
    blocks = cast("list[Any]", content)
    leads = first and is_signed_summary(blocks[0])
    rest = [summary_as_text(block) for block in blocks[leads:]]
    message = accepted_message({"role": "assistant", "content": blocks[:1]}, "assistant") if leads else None
    out = [Item(f"{item.uuid}:summary" if rest else item.uuid, BLOCK, message, item.entry)] if message else []
    if rest:
        kind = USER if item.kind == BLOCK else item.kind
        out.append(Item(item.uuid, kind, {**item.message, "content": rest}, item.entry))
    return out


def _without_repeats(item: Item, before: dict[str, tuple[str, str]]) -> Item | None:
    """Return an item without standing context that was said ``before``, which learns the rest; None if all was."""
    said = said_in(item.entry.body) if item.uuid == item.entry.uuid else []
    fresh = [one for one in said if not _repeats(one, before.get(one.key))]
    before.update((one.key, (one.digest, one.state)) for one in fresh if one.text.strip())
    if len(fresh) == len(said):
        return item
    message = said_message(fresh, role=item.message["role"])
    entry = replace(item.entry, body={**item.entry.body, "items": to_builtins(fresh)})
    return None if message is None else Item(item.uuid, item.kind, message, entry)


def _said_by(item: Item) -> dict[str, tuple[str, str]]:
    """Return the standing context that an item says: the digest and the state of each key."""
    said = said_in(item.entry.body) if item.uuid == item.entry.uuid else []
    return {one.key: (one.digest, one.state) for one in said if one.text.strip()}


def _repeats(said: SaidItem, before: tuple[str, str] | None) -> bool:
    """Say whether a saying adds nothing to the one before: the same again, or a name for a value that is in view."""
    same, named = (said.digest, said.state), (said.digest, "said") if said.state == "named" else None
    return before is not None and before in (same, named)


def is_user_context(item: Item) -> bool:
    """Say whether an item opens the session, so that compactions of older messages keep it."""
    body = item.entry.body
    return item.kind == ATTACHMENT and (body.get("type") == USER_CONTEXT or body.get("opening") is True)


def _collapsed(items: list[Item], logged: LoggedCut, cut: Collapsed) -> list[Item]:
    first, last = _position(items, cut.first), _position(items, cut.last)
    if first is None or last is None or last < first or not cut.text.strip():
        return items
    stub = Item(logged.uuid, USER, {"role": "user", "content": cut.text}, logged.entry)
    return [*items[:first], stub, *items[last + 1 :]]


def _position(items: list[Item], uuid: str) -> int | None:
    return next((at for at, item in enumerate(items) if item.uuid == uuid), None)
