"""The view: the conversation as the model sees it, folded from the log one entry at a time.

A View never changes. ``view.fold(entry)`` returns the next view, and its cost depends on that entry alone: consecutive
views share their lists. Only the newest view may append to a shared list; an older one that is folded further copies
its part first. A view is therefore its own snapshot, and forking a conversation costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import chain, count

from msgspec import structs

from ..values import replace
from .amendments import with_known_tools
from .boundary import ClearedRange, cleared_range, left_out
from .cuts import (
    BLOCK,
    EDIT,
    SYSTEM,
    ContentDecision,
    Cut,
    Item,
    LoggedCut,
    VisibleItems,
    item_shown_by,
    message_of,
    overrides_after,
    placed_items,
)
from .decisions import (
    ClearingBoundaryMoved,
    CompactionUndone,
    Decision,
    ImagesDropped,
    PlanChanged,
    PrefixRendered,
    ResultOffloaded,
    ResultsKept,
    ResultStubbed,
    Snipped,
    Unknown,
    decision_of,
)
from .entries import ASSISTANT, ATTACHMENT, DECISION, META, USER, Entry, Message
from .facts import Facts, facts_after, facts_with
from .layered_map import LayeredMap
from .shared_lists import OPEN_GROUPS, Archive, EntryHistory, FinishedMessages, Result, groups_changed, results_in
from .tokens.counting import TokenCount
from .tokens.tally import CUT, KEPT, SNIP, ClearingEvent, CountEvent, RedrawEvent, ReplyEvent, Tally, tally_after
from .tool_calls import ToolCall, is_sent_call, with_fresh_calls
from .wire.blocks import Block, accepted_message, as_blocks
from .wire.flatten import (
    NO_OVERRIDES,
    Group,
    MessagePiece,
    Overrides,
    missing_results,
    render,
    with_overrides,
    with_piece,
)
from .wire.images import NO_IMAGES, image_totals, media_in

_heads = count(1)


class View:
    """The conversation as the model sees it after the entries folded so far."""

    __slots__ = (
        "_entries_folded", "_events_made", "_finished", "_groups_finished", "_head", "_history", "_items_said",
        "_offloaded", "_results_shown", "_tail", "_tally", "_tools", "clearing", "cuts", "facts", "images", "last",
        "last_reply", "last_reply_time", "overrides", "visible_items"
    )  # fmt: skip

    def __init__(self, archive: Archive | None = None) -> None:
        """Begin with nothing; the ``archive`` has the messages that leave the view, else memory keeps them."""
        self._head = next(_heads)
        self._finished = FinishedMessages(self._head)
        self._history = EntryHistory(self._head, archive)
        # How much of each shared list belongs to this view.
        self._groups_finished = self._results_shown = self._items_said = self._events_made = self._entries_folded = 0
        self._tally = Tally()
        self._tail: tuple[Group, ...] = ()
        self._tools: tuple[str, ...] = ()
        self._offloaded: LayeredMap[ResultOffloaded] = LayeredMap()
        self.images = NO_IMAGES
        self.clearing: ClearedRange | None = None
        self.cuts = 0
        self.overrides = NO_OVERRIDES
        self.facts = Facts()
        self.visible_items = VisibleItems()
        self.last: str | None = None
        self.last_reply: Entry | None = None
        self.last_reply_time = ""

    # -- reading

    @property
    def groups(self) -> list[Group]:
        """A new list of the view's messages, each as a ``Group`` of the logged pieces that were joined into it."""
        return [*self._finished.groups[: self._groups_finished], *self._tail]

    @property
    def token_count(self) -> TokenCount:
        """The running token count: the last bill plus an estimate of everything after it."""
        return self._current_tally().token_count

    @property
    def tokens(self) -> int:
        """The estimated tokens of all messages in the view."""
        return self._current_tally().tokens

    def _current_tally(self) -> Tally:
        """Measure the messages that were folded since the tally was last read, and return the updated tally."""
        tally = self._tally
        if tally.events < self._events_made:
            tally = self._tally = tally_after(tally, self._history.events[tally.events : self._events_made])
        return tally

    @property
    def final(self) -> Group | None:
        """The last message of the view as a ``Group``, or None if the view is empty."""
        return self._tail[-1] if self._tail else None

    def tool_names(self) -> list[str]:
        """Return the names of the tools called in the view, by first call, without those the provider runs."""
        return list(self._tools)

    @property
    def length(self) -> int:
        """The number of messages in the view."""
        return self._groups_finished + len(self._tail)

    @property
    def finished(self) -> int:
        """The number of leading messages that only a decision can still change."""
        return self._groups_finished

    def group(self, at: int) -> Group:
        """Return the message at an index as a ``Group``, which holds the logged pieces that were joined in it."""
        return self._finished.groups[at] if at < self._groups_finished else self._tail[at - self._groups_finished]

    @property
    def results(self) -> list[Result]:
        """The tool results in the view, oldest first."""
        return self._finished.results[: self._results_shown]

    @property
    def finished_messages(self) -> tuple[list[Message], int] | None:
        """A list of messages only decisions can change, and the length of this view's part; None if requests differ."""
        prefix = self.facts.prefix
        converts = self.facts.has_system_messages and (prefix is None or "system_messages" not in prefix.capabilities)
        return None if converts or self.images.excess(prefix) else (self._finished.flat, self._groups_finished)

    @property
    def threshold_summaries(self) -> list[int]:
        """The indexes of the messages that may have a summary which a provider made at a threshold."""
        return [*self._finished.summaries, *range(self._groups_finished, self.length)]

    def results_from(self, start: int) -> list[Result]:
        """Return the tool results in the view from the index ``start`` on, oldest first."""
        return self._finished.results[start : self._results_shown]

    @property
    def history(self) -> list[Entry]:
        """The entries of all messages folded so far, oldest first, also of those that left the view."""
        return list(self.entries())

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of ``history`` without holding all of them."""
        return (one.entry for one in self.each() if isinstance(one, Item))

    def latest(self) -> Iterator[Entry]:
        """Yield the entries of ``history``, newest first, without holding all of them."""
        return (one.entry for one in self._history.latest(self._items_said) if isinstance(one, Item))

    def may_have_reply(self, id: str) -> bool:
        """Say whether the log may hold a reply with this id of the provider; False is certain."""
        return self._history.knows_reply(id)

    def history_from(self, start: int) -> list[Item | LoggedCut]:
        """Return the items and cuts folded so far from index ``start`` on, even those no longer in the view."""
        return self._history.part(start, self._items_said)

    def each(self, start: int = 0) -> Iterator[Item | LoggedCut]:
        """Yield the items and cuts folded so far from index ``start`` on, without holding all of them."""
        return self._history.each(start, self._items_said)

    def items_in_view(self) -> tuple[Item, ...]:
        """Return the items that the view shows, in the order of the log, with summaries in place of removed items."""
        known = self.visible_items.if_undone_is(self.facts.undone)
        return known.after(self.each(known.count), self._items_said).items

    def messages(self) -> list[Message]:
        """Return a new list of messages with alternating roles; an unchanged message is the logged object."""
        flat, final = self._finished.flat, self.final
        tail = [render(group, self.overrides, last=group is final) for group in self._tail]
        # Adding the whole list is one pass instead of two, and this copy dominates the cost of the call.
        return flat + tail if len(flat) == self._groups_finished else flat[: self._groups_finished] + tail

    def unanswered(self) -> list[str]:
        """Return the ids of the tool calls at the end of the view that have no result."""
        group = self.final
        if group is None:
            return []
        return list(group.uses) if group.role == ASSISTANT else missing_results(group)

    def tool_call(self, tool_use_id: str) -> ToolCall | None:
        """Return the tool call with this id, or None if it is not in the view."""
        found = self._finished.calls.get(tool_use_id)
        if found is None or found.group < self._groups_finished:
            return found
        return found if any(tool_use_id in group.uses for group in self._tail) else None

    def is_kept(self, tool_use_id: str) -> bool:
        """Say whether a ``ResultsKept`` decision settled that this result is not offloaded with its message."""
        return self._history.kept.get(tool_use_id, self._entries_folded) < self._entries_folded

    def offloaded(self, tool_use_id: str) -> ResultOffloaded | None:
        """Return the last decision that moved this result to a file, without its text; None if it was not offloaded."""
        return self._offloaded.get(tool_use_id)

    def offloads(self) -> Iterable[ResultOffloaded]:
        """Return the last decision about each result that was moved to a file, without its text."""
        return self._offloaded.values()

    # -- folding

    def fold(self, entry: Entry, place: int = -1) -> View:
        """Return a new view after one more entry, which begins at ``place`` in the archive; a known one is ignored."""
        new = self._next()
        new._add(entry, place)
        return new

    def fold_all(self, entries: Iterable[Entry]) -> View:
        """Return a new view after these entries, in order; this view stays the same."""
        return self.fold_logged((-1, entry) for entry in entries)

    def fold_logged(self, entries: Iterable[tuple[int, Entry]]) -> View:
        """Return a new view after these entries, each with the offset of its line in the archive."""
        new = self._next()
        for place, entry in entries:
            new._add(entry, place)
        return new

    def branched(self) -> View:
        """Return an equal view that copies the shared lists before it grows, so that this one still extends them."""
        lists = self._finished.head, self._history.head
        new = self._next()
        self._finished.head, self._history.head = lists
        return new

    def _next(self) -> View:
        """Return a copy of this view that may grow; every entry passes here, so each field is copied by name."""
        new = View.__new__(View)
        new._head = self._head
        new._finished, new._history = self._finished, self._history
        new._groups_finished = self._groups_finished
        new._results_shown = self._results_shown
        new._items_said = self._items_said
        new._events_made = self._events_made
        new._entries_folded = self._entries_folded
        new._tally = self._tally
        new._tail = self._tail
        new._tools = self._tools
        new._offloaded = self._offloaded
        new.images = self.images
        new.clearing, new.cuts = self.clearing, self.cuts
        new.overrides = self.overrides
        new.facts, new.visible_items = self.facts, self.visible_items
        new.last = self.last
        new.last_reply, new.last_reply_time = self.last_reply, self.last_reply_time
        new._take_lists()
        return new

    def _take_lists(self) -> None:
        """Become the view that may append to the shared lists; copy a list first if another view extended it."""
        before, self._head = self._head, next(_heads)
        if self._finished.head == before:
            self._finished.head = self._head
        else:
            self._finished = self._finished.copied(self._head, self._groups_finished, self._results_shown, self._tail)
        if self._history.head == before:
            self._history.head = self._head
        else:
            self._history = self._history.copied(self._head, self._items_said, self._events_made, self._entries_folded)

    def _add(self, entry: Entry, place: int) -> None:
        if self._history.knows(entry.uuid):
            return
        self._history.known[entry.uuid] = self._entries_folded
        self._entries_folded += 1
        self.last = entry.uuid
        if entry.kind == DECISION:
            if not isinstance(decision := decision_of(entry.body), Unknown):
                self._decide(entry, decision, place)
        elif entry.kind in (USER, ASSISTANT, ATTACHMENT, META):
            self.facts = facts_with(self.facts, entry)
            self.last_reply = entry if entry.kind == ASSISTANT else self.last_reply
            message = message_of(entry) if entry.kind != META else None
            if message is not None:
                self._say(Item(entry.uuid, entry.kind, message, entry), place)

    def _say(self, item: Item, place: int) -> None:
        """Add an item to the history and to the view."""
        self._history.append(item, place)
        self._items_said += 1
        for placed in placed_items(item, first=not self.length):
            self._show(placed)

    def _show(self, item: Item, *, again: bool = False) -> None:
        """Add an item to the view; ``again`` when a cut rebuilds the view from items already counted."""
        if item.kind == ASSISTANT:
            return self._show_reply(item, again)
        if item.kind in (BLOCK, SYSTEM):
            return self._show_alone(item)
        message = item.message if item.kind == EDIT else accepted_message(item.message, USER)
        if message is None:
            return None
        piece = MessagePiece(item.uuid, message, item.kind == ATTACHMENT, with_overrides(message, self.overrides))
        self._count(piece)
        group = self._tail[-1] if self._tail else None
        if group is not None and group.role == SYSTEM:  # only a reply may follow it, and none came
            self._push(Group.unanswered(item.uuid))
            group = None
        if group is not None and group.role == USER:
            self._tail = (*self._tail[:-1], with_piece(group, piece, ()))
        else:
            self._push(Group(USER, item.uuid, (piece,), (), group.uses if group else ()))
        if isinstance(message["content"], list):
            self._note_results(item.entry, piece)

    def _show_alone(self, item: Item) -> None:
        """Add a signed summary, or a system message behind a message of the user, as a message of its own."""
        piece = MessagePiece(item.uuid, item.message)
        group = self._tail[-1] if self._tail else None
        self._count(piece)
        if item.kind == BLOCK:
            self._push(Group(ASSISTANT, item.uuid, (piece,)))
        elif group is not None and group.role == SYSTEM:
            self._tail = (*self._tail[:-1], with_piece(group, piece, ()))
        else:
            if group is None or group.takes_no_system_message:  # a cut or its undoing took the message before it
                self._push(Group.unasked(item.uuid, group.uses if group else ()))
            self._push(Group(SYSTEM, item.uuid, (piece,)))

    def _show_reply(self, item: Item, again: bool) -> None:
        reply = item.entry.reply
        self.last_reply_time = item.entry.time or self.last_reply_time
        message = accepted_message(item.message, ASSISTANT)
        if message is None:
            if not again:
                self._count(ReplyEvent(None, reply))
            return
        message, uses = with_fresh_calls(message, self._finished.calls)
        piece = MessagePiece(item.uuid, message)
        # A reply's usage describes the view it answered; after a cut it describes nothing.
        self._count(piece if again else ReplyEvent(piece, reply))
        id = reply.get("id")
        self._join_reply(id if isinstance(id, str) and id else item.uuid, piece, uses)

    def _join_reply(self, id: str, piece: MessagePiece, uses: list[Block]) -> None:
        """Add a piece of a reply to the group of the same reply, or start the next message with it."""
        tail = self._tail
        ids = tuple([block["id"] for block in uses if block["type"] == "tool_use"])
        group = tail[-1] if tail else None
        before = tail[-2] if len(tail) > 1 else None
        joins = group is not None and group.role == ASSISTANT and not group.is_compaction
        if group is not None and joins and (group.id == id or not group.uses):
            self._tail = (*tail[:-1], with_piece(group, piece, ids, id))
            at = self._groups_finished + len(tail) - 1
        elif group is not None and before is not None and before.id == id and self._may_look_back(id):
            grown = with_piece(before, piece, ids)
            self._tail = (*tail[:-2], grown, Group(USER, group.id, group.pieces, (), grown.uses))
            at = self._groups_finished + len(tail) - 2
        else:
            if group is not None and joins:
                self._push(Group(USER, f"{piece.uuid}:interrupted", (), (), group.uses))
            self._push(Group(ASSISTANT, id, (piece,), ids))
            at = self._groups_finished + len(self._tail) - 1
        if self.clearing is not None:
            self.clearing = self.clearing.after_calls(one["name"] for one in uses if is_sent_call(one))
        for block in uses:
            self._finished.calls[block["id"]] = ToolCall(block["name"], block["input"], at)
            if is_sent_call(block) and block["name"] not in self._tools:
                self._tools = (*self._tools, block["name"])

    def _may_look_back(self, id: str) -> bool:
        """Say whether a later piece of this reply may be placed before the attachments that follow the reply.

        It may not once a ``CallRecorded`` decision has recorded the reply as complete.
        """
        recorded = self.facts.last_call
        return self._tail[-1].only_attachments and (recorded is None or recorded.message_id != id)

    def _count(self, event: CountEvent) -> None:
        self._history.events.append(event)
        self._events_made += 1

    def _push(self, group: Group) -> None:
        """Append a group; the group that is then too far from the end to change becomes finished."""
        self._tail = (*self._tail, group)
        if len(self._tail) > OPEN_GROUPS:
            first, self._tail = self._tail[0], self._tail[1:]
            self._finished.append(first, render(first, self.overrides))
            self._groups_finished += 1

    def _note_results(self, entry: Entry, piece: MessagePiece) -> None:
        self.images += image_totals(one for _, one in media_in(as_blocks(piece.message)))
        found = results_in(piece, self._tail[-1].expects, self._finished.calls, entry, self.length - 1)
        self._finished.results.extend(found)
        self._results_shown += len(found)

    # -- deciding

    def _decide(self, entry: Entry, decision: Decision, place: int) -> None:
        if isinstance(decision, PlanChanged) and entry.imported:  # a recording gives no permission
            decision = replace(decision, mode="")
        before, self.facts = self.facts, facts_after(self.facts, entry.uuid, decision)
        if isinstance(decision, ContentDecision):
            self._override(decision)
        elif isinstance(decision, Cut):
            self._history.append(LoggedCut(entry.uuid, entry, decision), place)
            self._items_said += 1
            self._rebuild(SNIP if isinstance(decision, Snipped) else CUT)
        elif isinstance(decision, CompactionUndone) or before.retired != self.facts.retired:
            self._rebuild()
        elif isinstance(decision, ResultsKept):
            self._history.note(decision, self._entries_folded - 1)
            for called in decision.tool_use_ids:
                self._history.kept.setdefault(called, self._entries_folded - 1)
        elif isinstance(decision, ClearingBoundaryMoved | PrefixRendered):
            self.clearing = cleared_range(self.groups, self._finished.calls, self.facts)
            self._count(ClearingEvent(decision.cause.frees))
        elif isinstance(decision, ResultStubbed) and decision.tool_use_id not in self.unanswered():
            return
        elif (item := item_shown_by(entry, decision)) is not None:
            self._say(item, place)

    def _redraw(self, overrides: Overrides, groups: Set[int]) -> None:
        """Render these groups again with new overrides; older views keep the messages they had."""
        before, self.overrides = self.overrides, overrides
        if any(at < self._groups_finished for at in groups):
            self._finished = self._finished.redrawable(self._groups_finished)
        for at in groups:
            group = self.group(at)
            after = render(group, overrides)
            self._count(RedrawEvent(render(group, before), after))
            if at < self._groups_finished:
                self._finished.flat[at] = after

    def _override(self, decision: ContentDecision) -> None:
        """Show content as a decision says."""
        self._history.note(decision, self._entries_folded - 1)
        changed = groups_changed(self, self._finished.calls, self.overrides, decision)
        self._redraw(overrides_after(self.overrides, decision), changed)
        if isinstance(decision, ImagesDropped):
            self.images = image_totals(one for message in self.messages() for _, one in media_in(as_blocks(message)))
        if isinstance(decision, ResultOffloaded):
            self._offloaded = self._offloaded.changed({decision.tool_use_id: replace(decision, text="")})

    def _rebuild(self, cut: CountEvent = CUT) -> None:
        """Build the view again from the items that are still visible, after a cut or its undoing."""
        replied = self.last_reply_time
        self._count(cut)
        self.cuts += 1
        known, kept = self.visible_items.if_undone_is(self.facts.undone), self._history.kept
        if not known.count and self.visible_items.count:
            # messages return that had left the view with the decisions about their content
            self.overrides, kept = self._history.content(self.last, self._entries_folded - 1)
        is_left_out = left_out(self.facts, self.overrides.results, lambda: chain(known.items, self.each(known.count)))
        self.visible_items = known.after(self.each(known.count), self._items_said, is_left_out)
        measured = {piece.uuid: piece for group in self.groups for piece in group.pieces}
        self._finished = FinishedMessages(self._head)
        self._groups_finished = self._results_shown = 0
        self.images, self.clearing = NO_IMAGES, None
        self._tail = self._tools = ()
        shown = self.visible_items.shown(self.facts.retired)
        for item in with_known_tools(shown, self.facts.prefix) if self.facts.amendments else shown:
            for placed in placed_items(item, first=not self.length):
                self._show(placed, again=True)
        for piece in chain.from_iterable(group.pieces for group in self.groups):
            piece.take_measure(measured.get(piece.uuid))
        self._count(KEPT)
        self.last_reply_time = replied
        self.clearing = cleared_range(self.groups, self._finished.calls, self.facts)
        self.facts = self.facts.after_cut(self.visible_items.items)
        self._release(kept)

    def _release(self, kept: dict[str, int]) -> None:
        """Forget the decisions about content that left the view, and leave its messages to the archive."""
        self.overrides = self.overrides.only(self._finished.calls, {item.uuid for item in self.visible_items.items})
        left = {called: at for called, at in kept.items() if called in self._finished.calls}
        if self._history.archive is not None:
            self._tally = structs.replace(self._current_tally(), events=0)
            self._events_made = 0
        self._history = self._history.released(self._items_said, left)
