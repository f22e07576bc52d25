"""The view: what the model is shown, as a pure and incremental fold of the log.

A View never changes. ``view.fold(entry)`` returns the next one and costs what that entry costs: views share what they
have in common and only the newest may append to it; any other copies first. A snapshot is therefore the view itself,
and forking it is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import count
from typing import Final

from ..values import replace
from .cuts import EDIT, Cutting, Item, Standing, message_of, shown_by
from .decisions import (
    CacheEdits,
    Collapsed,
    Compacted,
    CompactionUndone,
    Decision,
    ImagesDropped,
    InstructionsAttached,
    MemoriesSurfaced,
    MessageQueued,
    ResultOffloaded,
    ResultsCleared,
    ResultsKept,
    ResultsRestored,
    ResultStubbed,
    Snipped,
    Unknown,
    decision_of,
)
from .entries import ASSISTANT, ATTACHMENT, DECISION, META, USER, Entry, Message
from .facts import Facts, facts_after
from .layered_map import Layered
from .shared_lists import Closed, Result, Said, results_in
from .tokens.counting import Counted
from .tokens.tally import CUT, Event, Redrawn, Replied, Tally, tallied
from .tool_calls import Use, with_fresh_uses
from .wire.blocks import Block, admitted, as_blocks, count_images, edit_block
from .wire.flatten import Group, Piece, Shown, as_shown, joined, missing_results, render

__all__ = ["View"]

_NOTHING: Final = Shown(Layered(), {})
_OPEN: Final = 2  # groups that may still change: a reply's later piece may look past one message of attachments
_heads = count(1)


class View:
    """What the model is shown after the entries folded so far."""

    __slots__ = (
        *("_closed", "_events", "_folded", "_groups", "_head", "_items", "_offloaded", "_results", "_said"),
        *("_tail", "_tally", "_tools", "cuts", "facts", "images", "last", "last_reply_time", "shown", "standing"),
    )

    def __init__(self) -> None:
        self._head = next(_heads)
        self._closed = Closed(self._head)
        self._said = Said(self._head)
        self._groups = self._results = self._items = self._events = self._folded = 0  # our part of the shared lists
        self._tally = Tally()
        self._tail: tuple[Group, ...] = ()
        self._tools: tuple[str, ...] = ()
        self._offloaded: Layered[ResultOffloaded] = Layered()
        self.images = self.cuts = 0
        self.shown, self.facts, self.standing = _NOTHING, Facts(), Standing()
        self.last: str | None = None
        self.last_reply_time = ""

    # -- reading

    @property
    def groups(self) -> list[Group]:
        """The messages of the view, each as the pieces it is made of."""
        return [*self._closed.groups[: self._groups], *self._tail]

    @property
    def counted(self) -> Counted:
        """The count before the next request."""
        return self._tallied().counted

    @property
    def tokens(self) -> int:
        """Estimate of all that is shown."""
        return self._tallied().tokens

    def _tallied(self) -> Tally:
        tally = self._tally
        if tally.events < self._events:
            tally = self._tally = tallied(tally, self._said.events[tally.events : self._events])
        return tally

    @property
    def final(self) -> Group | None:
        """The last message of the view."""
        return self._tail[-1] if self._tail else None

    def tool_names(self) -> list[str]:
        """Return the tools whose calls stand in the view, in the order of their first call."""
        return list(self._tools)

    @property
    def length(self) -> int:
        """How many messages the view has."""
        return self._groups + len(self._tail)

    @property
    def closed(self) -> int:
        """How many of them only a decision can still change."""
        return self._groups

    def group(self, at: int) -> Group:
        """Return one message of the view, as the pieces it is made of."""
        return self._closed.groups[at] if at < self._groups else self._tail[at - self._groups]

    @property
    def results(self) -> list[Result]:
        """The tool results of the view, oldest first."""
        return self._closed.results[: self._results]

    @property
    def settled(self) -> tuple[list[Message], int] | None:
        """The closed messages as a shared list and how much of it is ours; None where the builder may redraw them."""
        return None if self.images > 100 else (self._closed.flat, self._groups)

    def results_from(self, start: int) -> list[Result]:
        """Return the tool results of the view without the oldest so many."""
        return self._closed.results[start : self._results]

    @property
    def said(self) -> list[Entry]:
        """Every message entry ever said, shown or not, oldest first."""
        return [one.entry for one in self._said.items[: self._items] if isinstance(one, Item)]

    def said_from(self, start: int) -> list[Item | Cutting]:
        """Return what was said, shown or not, and what was cut, without the oldest so many."""
        return self._said.items[start : self._items]

    def messages(self) -> list[Message]:
        """Return the view as alternating messages; those that nothing touched are the very objects that came in."""
        flat, final = self._closed.flat, self.final
        tail = [render(group, self.shown, last=group is final) for group in self._tail]
        # One pass where the list is all ours: next to it, everything else here is cheap.
        return flat + tail if len(flat) == self._groups else flat[: self._groups] + tail

    def unanswered(self) -> list[str]:
        """Return the calls at the end of the view that no result answers."""
        if not self._tail:
            return []
        group = self._tail[-1]
        return list(group.uses) if group.role == ASSISTANT else missing_results(group)

    def use(self, tool_use_id: str) -> Use | None:
        """Return a tool call that stands in the view."""
        found = self._closed.uses.get(tool_use_id)
        if found is None or found.group < self._groups:
            return found
        return found if any(tool_use_id in group.uses for group in self._tail) else None

    def knows(self, uuid: str) -> bool:
        """Say whether this entry has been folded."""
        return self._said.known.get(uuid, self._folded) < self._folded

    def kept(self, tool_use_id: str) -> bool:
        """Say whether this result was seen and left whole."""
        return self._said.kept.get(tool_use_id, self._folded) < self._folded

    def offloaded(self, tool_use_id: str) -> ResultOffloaded | None:
        """Return where this result rests, if it was moved to disk."""
        return self._offloaded.get(tool_use_id)

    # -- folding

    def fold(self, entry: Entry) -> View:
        """Return the view after one more entry."""
        new = self._next()
        new._add(entry)
        return new

    def fold_all(self, entries: Iterable[Entry]) -> View:
        """Return the view after these entries."""
        new = self._next()
        for entry in entries:
            new._add(entry)
        return new

    def _next(self) -> View:
        """Return a view of the same that may grow: field by field, since every entry comes this way."""
        new = View.__new__(View)
        new._head, new._closed, new._said = self._head, self._closed, self._said
        new._groups, new._results, new._items = self._groups, self._results, self._items
        new._events, new._folded, new._tally = self._events, self._folded, self._tally
        new._tail, new._tools, new._offloaded = self._tail, self._tools, self._offloaded
        new.shown, new.facts, new.images, new.cuts = self.shown, self.facts, self.images, self.cuts
        new.standing, new.last, new.last_reply_time = self.standing, self.last, self.last_reply_time
        new._own()
        return new

    def _own(self) -> None:
        """Become the head of what is shared, copying it first if another view has extended it."""
        before, self._head = self._head, next(_heads)
        if self._closed.head == before:
            self._closed.head = self._head
        else:
            self._closed = self._closed.copied(self._head, self._groups, self._results, self._tail)
        if self._said.head == before:
            self._said.head = self._head
        else:
            self._said = self._said.copied(self._head, self._items, self._events, self._folded)

    def _add(self, entry: Entry) -> None:
        if entry.uuid in self._said.known:
            return
        self._said.known[entry.uuid] = self._folded
        self._folded += 1
        self.last = entry.uuid
        if entry.kind == DECISION:
            if not isinstance(decision := decision_of(entry.body), Unknown):
                self._decide(entry, decision)
        elif entry.kind in (USER, ASSISTANT, ATTACHMENT):
            message = message_of(entry)
            if message is not None:
                self._say(Item(entry.uuid, entry.kind, message, entry))
        elif entry.kind == META:
            self.facts = replace(self.facts, meta={**self.facts.meta, **entry.body})

    def _say(self, item: Item) -> None:
        self._said.items.append(item)
        self._items += 1
        self._show(item)

    def _show(self, item: Item, *, again: bool = False) -> None:
        if item.kind == ASSISTANT:
            self._show_reply(item, again)
            return
        message = item.message if item.kind == EDIT else admitted(item.message, USER)
        if message is None:
            return
        piece = Piece(item.uuid, message, item.kind == ATTACHMENT, as_shown(message, self.shown))
        self._count(piece)
        group = self._tail[-1] if self._tail else None
        if group is not None and group.role == USER:
            self._tail = (*self._tail[:-1], joined(group, piece, ()))
        else:
            self._push(Group(USER, item.uuid, (piece,), (), group.uses if group else ()))
        if isinstance(message["content"], list):
            self._note_results(item.entry, piece)

    def _show_reply(self, item: Item, again: bool) -> None:
        reply = item.entry.reply
        self.last_reply_time = item.entry.time or self.last_reply_time
        message = admitted(item.message, ASSISTANT)
        if message is None:
            if not again:
                self._count(Replied(None, reply))
            return
        message, uses = with_fresh_uses(message, self._closed.uses)
        piece = Piece(item.uuid, message)
        # What a reply reported speaks of the view it answered, not of one that has been cut since.
        self._count(piece if again else Replied(piece, reply))
        id = reply.get("id")
        self._join_reply(id if isinstance(id, str) and id else item.uuid, piece, uses)

    def _join_reply(self, id: str, piece: Piece, uses: list[Block]) -> None:
        """Put a piece of a reply where it belongs: with its siblings, or as the next message."""
        tail = self._tail
        ids = tuple([block["id"] for block in uses if block["type"] == "tool_use"])
        group = tail[-1] if tail else None
        before = tail[-2] if len(tail) > 1 else None
        if group is not None and group.role == ASSISTANT and (group.id == id or not group.uses):
            self._tail = (*tail[:-1], joined(group, piece, ids, id))
            at = self._groups + len(tail) - 1
        elif group is not None and before is not None and before.id == id and self._may_look_back(id):
            grown = joined(before, piece, ids)
            self._tail = (*tail[:-2], grown, Group(USER, group.id, group.pieces, (), grown.uses))
            at = self._groups + len(tail) - 2
        else:
            if group is not None and group.role == ASSISTANT:
                self._push(Group(USER, f"{piece.uuid}:interrupted", (), (), group.uses))
            self._push(Group(ASSISTANT, id, (piece,), ids))
            at = self._groups + len(self._tail) - 1
        for block in uses:
            self._closed.uses[block["id"]] = Use(block["name"], block["input"], at)
            if block["type"] == "tool_use" and block["name"] not in self._tools:
                self._tools = (*self._tools, block["name"])

    def _may_look_back(self, id: str) -> bool:
        """Say whether a reply's later piece may look past attachments: not once the reply was booked as whole."""
        booked = self.facts.last_call
        return self._tail[-1].only_attachments and (booked is None or booked.message_id != id)

    def _count(self, event: Event) -> None:
        self._said.events.append(event)
        self._events += 1

    def _push(self, group: Group) -> None:
        self._tail = (*self._tail, group)
        if len(self._tail) > _OPEN:
            first, self._tail = self._tail[0], self._tail[1:]
            self._closed.groups.append(first)
            self._closed.flat.append(render(first, self.shown))
            self._groups += 1

    def _note_results(self, entry: Entry, piece: Piece) -> None:
        self.images += count_images(as_blocks(piece.message))
        found = results_in(piece, self._tail[-1].expects, self._closed.uses, entry, self.length - 1)
        self._closed.results.extend(found)
        self._results += len(found)

    # -- deciding

    def _decide(self, entry: Entry, decision: Decision) -> None:
        self.facts = facts_after(self.facts, entry.uuid, decision)
        match decision:
            case ResultStubbed() if decision.tool_use_id in self.unanswered():
                stub: Block = {"type": "tool_result", "tool_use_id": decision.tool_use_id, "content": decision.text}
                message: Message = {"role": USER, "content": [{**stub, "is_error": True}]}
                self._say(Item(entry.uuid, USER, message, entry))
            case MemoriesSurfaced() | InstructionsAttached() | MessageQueued():
                item = shown_by(entry, decision)
                if item is not None:
                    self._say(item)
            case CacheEdits():
                edit = edit_block(decision.tool_use_ids)
                if edit is not None:
                    self._say(Item(entry.uuid, EDIT, {"role": USER, "content": [edit]}, entry))
            case ResultOffloaded():
                self._offloaded = self._offloaded.changed({decision.tool_use_id: decision})
                self._replace_results({decision.tool_use_id: decision.text})
            case ResultsKept():
                for called in decision.tool_use_ids:
                    self._said.kept.setdefault(called, self._folded - 1)
            case ResultsCleared():
                self._replace_results({one.tool_use_id: one.text for one in decision.cleared})
            case ResultsRestored():
                self._restore_results(decision.tool_use_ids)
            case ImagesDropped():
                self._drop_images(decision)
            case Compacted() | Collapsed() | Snipped():
                self._said.items.append(Cutting(entry.uuid, entry, decision))
                self._items += 1
                self._rebuild()
            case CompactionUndone():
                self._rebuild()
            case _:
                pass

    def _redraw(self, shown: Shown, groups: Set[int]) -> None:
        """Show these groups anew; whoever holds an older view keeps what it had."""
        before, self.shown = self.shown, shown
        if any(at < self._groups for at in groups):
            self._closed = self._closed.redrawable(self._groups)
        for at in groups:
            group = self.group(at)
            after = render(group, shown)
            self._count(Redrawn(render(group, before), after))
            if at < self._groups:
                self._closed.flat[at] = after

    def _replace_results(self, texts: Mapping[str, str]) -> None:
        results = self.shown.results.changed(texts)
        self._redraw(replace(self.shown, results=results), self._holding(texts))

    def _restore_results(self, ids: Iterable[str]) -> None:
        back = [called for called in ids if called in self.shown.results]
        results = self.shown.results.changed(dict.fromkeys(back))
        self._redraw(replace(self.shown, results=results), self._holding(back))

    def _holding(self, ids: Iterable[str]) -> set[int]:
        """Return the messages that show these results; one that is still to come is drawn when it does."""
        uses = ((called, self._closed.uses.get(called)) for called in ids)
        at = {called: use.group + 1 for called, use in uses if use is not None and use.group + 1 < self.length}
        return {
            one for called, one in at.items() if one < self._groups or called not in missing_results(self.group(one))
        }

    def _drop_images(self, decision: ImagesDropped) -> None:
        named = {image.message for image in decision.images}
        groups = {at for at, group in enumerate(self.groups) if any(piece.uuid in named for piece in group.pieces)}
        gone = [(image.message, image.ordinal) for image in decision.images]
        self._redraw(self.shown.without_images(gone, decision.text), groups)
        self.images = sum(count_images(as_blocks(message)) for message in self.messages())

    def _rebuild(self) -> None:
        """Fold what is still visible anew, after a cut or its undoing."""
        replied = self.last_reply_time
        self._count(CUT)
        self.cuts += 1
        known = self.standing.of(self.facts.undone)
        self.standing = known.then(self.said_from(known.count))
        self._closed = Closed(self._head)
        self._groups = self._results = self.images = 0
        self._tail = self._tools = ()
        for item in self.standing.items:
            self._show(item, again=True)
        self.last_reply_time = replied
