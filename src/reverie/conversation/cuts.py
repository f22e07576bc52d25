"""Cuts: which items of the history are still visible after compactions, collapses and snips, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, Final, TypeAlias, cast

from msgspec import Struct, to_builtins

from ..values import record, replace
from .decisions import (
    CacheEdits,
    Collapsed,
    Compacted,
    ContextSaid,
    Decision,
    ImagesDropped,
    InstructionsAttached,
    MemoriesSurfaced,
    MessageQueued,
    PrefixAmended,
    ResultOffloaded,
    ResultsCleared,
    ResultsClearedByProvider,
    ResultsRestored,
    ResultStubbed,
    SaidItem,
    Snipped,
    ThinkingDropped,
    Unknown,
    decision_of,
)
from .entries import ATTACHMENT, DECISION, USER, Entry, Message
from .standing_context import USER_CONTEXT, said_in, said_message
from .wire.blocks import accepted_message, as_blocks, edit_block, is_signed_summary, summary_as_text
from .wire.flatten import Overrides

EDIT: Final = "cache edit"
"""The kind of an item that deletes results from the provider's cache; only providers that support this get it."""
BLOCK: Final = "compaction block"
"""The kind of an item that holds a provider's signed summary."""
SYSTEM: Final = "system"
"""The kind of an item with the role ``system``: a changed system prompt or changed tools."""
_HIDDEN: Final = "hidden"
"""The kind of an item whose standing context another item shows; a cut may still name it as its place."""
Cut: TypeAlias = Compacted | Collapsed | Snipped
ContentDecision: TypeAlias = ResultOffloaded | ResultsCleared | ResultsRestored | ImagesDropped | ThinkingDropped
"""The decisions that change how content in the view is shown."""
LeftOut: TypeAlias = Callable[[str], bool]
Sayings: TypeAlias = dict[str, tuple[int, SaidItem]]
"""By key: the last saying of an item, and its index."""


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


def logged_item(entry: Entry) -> Item | LoggedCut:
    """Return the item or cut that an entry of the history made; raise ``ValueError`` if it made none."""
    if entry.kind != DECISION:
        message = message_of(entry)
        found = None if message is None else Item(entry.uuid, entry.kind, message, entry)
    else:
        decision = decision_of(entry.body)
        if isinstance(decision, Compacted | Collapsed | Snipped):
            return LoggedCut(entry.uuid, entry, decision)
        found = None if isinstance(decision, Unknown) else item_shown_by(entry, decision)
    if found is None:
        raise ValueError(f"the log has no message at entry {entry.uuid}")
    return found


def item_shown_by(entry: Entry, decision: Decision) -> Item | None:
    """Return the item that a decision adds to the end of the view; None if it adds nothing."""
    if isinstance(decision, ResultStubbed):
        stub = {"type": "tool_result", "tool_use_id": decision.tool_use_id, "content": decision.text, "is_error": True}
        return Item(entry.uuid, USER, {"role": USER, "content": [stub]}, entry)
    if isinstance(decision, CacheEdits):
        edit = edit_block(decision.tool_use_ids)
        return None if edit is None else Item(entry.uuid, EDIT, {"role": USER, "content": [edit]}, entry)
    # A recording does not speak for the program.
    if isinstance(decision, PrefixAmended):
        amended = {**decision.message, "role": USER} if entry.imported else decision.message
        return Item(entry.uuid, _kind_of(amended["role"]), amended, entry)
    if isinstance(decision, ContextSaid):
        role = USER if entry.imported else decision.role
        message = said_message(decision.items, role=role, heading=decision.heading, later_words=decision.later_words)
        return None if message is None else Item(entry.uuid, _kind_of(role), message, entry)
    if not isinstance(decision, MemoriesSurfaced | InstructionsAttached | MessageQueued | ResultsClearedByProvider):
        return None
    said = [] if isinstance(decision, MessageQueued | ResultsClearedByProvider) else decision.items
    if said and (message := said_message(said, role=USER)) is not None:
        return Item(entry.uuid, ATTACHMENT, message, entry)
    text = decision.text
    return Item(entry.uuid, ATTACHMENT, {"role": "user", "content": text}, entry) if text.strip() else None


def overrides_after(overrides: Overrides, decision: ContentDecision) -> Overrides:
    """Return the overrides after a decision about content."""
    if isinstance(decision, ImagesDropped):
        gone = ((image.message, image.ordinal) for image in decision.images)
        return overrides.without_images(gone, decision.text)
    if isinstance(decision, ThinkingDropped):
        return replace(overrides, thinking=overrides.thinking.union(decision.messages))
    return replace(overrides, results=overrides.results.changed(changed_results(overrides, decision)))


def changed_results(
    overrides: Overrides, decision: ResultOffloaded | ResultsCleared | ResultsRestored
) -> Mapping[str, str | None]:
    """Return the texts that a decision shows in place of results, by call; None for a result that is shown again."""
    if isinstance(decision, ResultOffloaded):
        return {decision.tool_use_id: decision.text}
    if isinstance(decision, ResultsCleared):
        return {one.tool_use_id: one.text for one in decision.cleared}
    return {called: None for called in decision.tool_use_ids if called in overrides.results}


def _never(called: str) -> bool:
    return False


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

    def after(self, history: Iterable[Item | LoggedCut], count: int, is_left_out: LeftOut = _never) -> VisibleItems:
        """Return the items that are visible after ``count`` items and cuts, of which ``history`` is the rest."""
        items = tuple(visible_items(chain(self.items, history), undone=self.undone, is_left_out=is_left_out))
        return VisibleItems(count, self.undone, items)


def visible_items(
    history: Iterable[Item | LoggedCut], *, undone: Set[str] = frozenset(), is_left_out: LeftOut = _never
) -> list[Item]:
    """Return a list of the items that are visible after all cuts, in order; a cut that cannot apply is ignored.

    Each value of standing context is visible once. A saying after an undone cut leaves if an older saying, or the tool
    result that it replaced, is visible before it; a later cut does not bring it back. Behind the place that a cut
    changed a repeat leaves too. Before that place, and after a signed summary, nothing changes: thinking needs it.
    ``is_left_out`` says whether a request lacks the result of a tool call that is visible.
    """
    out: list[Item] = []
    said: Sayings | None = None
    for one in history:
        if isinstance(one, Item):
            out.append(one if said is None else _without_repeats(one, out, said, is_left_out))
        elif one.uuid in undone:
            said = _sayings(out)
        else:
            before, out = out, _after_cut(out, one)
            if out is not before and not (isinstance(one.cut, Compacted) and _is_signed(one.cut)):
                out = _without_returned(out, _first_change(before, out), is_left_out)
            said = said if said is None else _sayings(out)
    return [item for item in out if item.kind != _HIDDEN]


def _after_cut(items: list[Item], logged: LoggedCut) -> list[Item]:
    """Return the items after a cut; the same list if it cannot apply."""
    cut = logged.cut
    if isinstance(cut, Compacted):
        return _compacted(items, logged, cut)
    if isinstance(cut, Collapsed):
        return _collapsed(items, logged, cut)
    gone = set(cut.messages)
    return [item for item in items if item.uuid not in gone]


def _compacted(items: list[Item], logged: LoggedCut, cut: Compacted) -> list[Item]:
    """Return the items after a compaction; unchanged if it has no summary or the message it names is missing."""
    if not cut.summary.strip():
        return items
    if cut.from_message is not None:
        first = position_of(items, cut.from_message)
        return items if first is None else _with_summary(items[:first], logged, cut, [])
    start = len(items) if cut.first_kept is None else position_of(items, cut.first_kept)
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


def _first_change(before: Sequence[Item], after: Sequence[Item]) -> int:
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (one, two) in pairs if one is not two), min(len(before), len(after)))


def _without_returned(items: Sequence[Item], start: int, is_left_out: LeftOut) -> list[Item]:
    """Return the items, from the index ``start`` on without standing context that the items before it show."""
    out = list(items[:start])
    said = _sayings(out)
    for item in items[start:]:
        out.append(_without_repeats(item, out, said, is_left_out))
    return out


def _without_repeats(item: Item, before: Sequence[Item], said: Sayings, is_left_out: LeftOut) -> Item:
    """Return an item without standing context that the items ``before`` it show; a hidden one if that is all.

    ``said`` has the last saying of each key before it, and learns those of the item.
    """
    sayings = _said_by(item)
    fresh = [one for one in sayings if not _is_repeat(one, before, said.get(one.key), is_left_out)]
    said.update((one.key, (len(before), one)) for one in fresh if one.text.strip())
    if len(fresh) == len(sayings):
        return item
    later_words = str(item.entry.body.get("later_words") or "")
    message = said_message(fresh, role=item.message["role"], later_words=later_words)
    entry = replace(item.entry, body={**item.entry.body, "items": to_builtins(fresh)})
    return Item(item.uuid, _HIDDEN if message is None else item.kind, message or item.message, entry)


def _sayings(items: Iterable[Item]) -> Sayings:
    return {one.key: (at, one) for at, item in enumerate(items) for one in _said_by(item) if one.text.strip()}


def _said_by(item: Item) -> list[SaidItem]:
    return said_in(item.entry.body) if item.uuid == item.entry.uuid and item.kind != _HIDDEN else []


def _is_repeat(said: SaidItem, items: Sequence[Item], last: tuple[int, SaidItem] | None, is_left_out: LeftOut) -> bool:
    """Return whether items show a value already, by ``last``, the last saying of it, or by results behind that."""
    other = max((_place_of(one, items, is_left_out) for one in said.not_shown_by), default=-1)
    places = [_place_of(one, items, is_left_out) for one in said.shown_by]
    at, shown = last or (-1, None)
    if said.state in ("said", "named") and min(places, default=-1) > max(at, other):
        return True
    states = ("said", "named") if said.state == "named" else (said.state,)
    return shown is not None and shown.digest == said.digest and shown.state in states and at > other


def _place_of(id: str, items: Sequence[Item], is_left_out: LeftOut) -> int:
    """Return the index of the item that is the log entry, or has the result of the call, with this id; -1 if none."""
    if is_left_out(id):
        return -1
    for at, item in enumerate(items):
        answers = as_blocks(item.message) if item.kind == USER else ()
        if item.uuid == id or any(block.get("tool_use_id") == id for block in answers):
            return at
    return -1


def is_user_context(item: Item) -> bool:
    """Say whether an item opens the session, so that compactions of older messages keep it."""
    body = item.entry.body
    return item.kind == ATTACHMENT and (body.get("type") == USER_CONTEXT or body.get("opening") is True)


def _collapsed(items: list[Item], logged: LoggedCut, cut: Collapsed) -> list[Item]:
    first, last = position_of(items, cut.first), position_of(items, cut.last)
    if first is None or last is None or last < first or not cut.text.strip():
        return items
    stub = Item(logged.uuid, USER, {"role": "user", "content": cut.text}, logged.entry)
    return [*items[:first], stub, *items[last + 1 :]]


def position_of(items: Sequence[Item], uuid: str) -> int | None:
    """Return the index of the item with this uuid; None if there is none."""
    return next((at for at, item in enumerate(items) if item.uuid == uuid), None)
