"""Standing context: facts that are in every request while they hold, after every kind of cut.

Sources say which items hold now. An item is said when it is new, when it changed, and when a cut removed it from the
view. The table of items said, and of those that a cut removed, is folded from the log. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final, cast

import msgspec

from ..digests import hex_of
from ..values import record, replace
from .causes import SaidItem
from .tokens.estimate import estimate_text
from .wire.blocks import text_block

AGAIN: Final = "This still holds and is said again, because it is no longer in view."
USER_CONTEXT: Final = "user_context"
"""The type of attachments that open a session, such as instruction files; compacting older messages keeps them."""
_REPLACES: Final = "This replaces the earlier text about {}."
_ENDED: Final = "This no longer holds: {}. Ignore the earlier text about this."
_NAMED: Final = "Left out here to save room: {} ({})."
_SHORTENED: Final = "\n[shortened; {} for the rest]"
_FRAME_TOKENS: Final = 8
_SAYINGS: Final = frozenset({"context_said", "memories_surfaced", "instructions_attached"})
RULES: Final = "rules"
"""The budget of the user's rules, which other items do not reduce."""
_ORDER: Final = {RULES: 0, "whole": 0, "skills": 1, "memories": 2, "files": 3}


@record
class StandingItem:
    """A fact that holds now, as its source says it."""

    key: str
    """Its identity, such as ``date`` or ``instructions:/project/AGENTS.md``."""
    source: str
    name: str
    """The item in a sentence, such as ``the date``."""
    value: str
    """Its text; empty if it ended and the view shows it by itself."""
    digest: str = ""
    """The identity of the value, where the text varies without a change of the fact; else that of the text."""
    native: str = ""
    """The digest of the value that the view shows by itself, such as a tool's result, and behind every saying."""
    shown_by: tuple[str, ...] = ()
    """The tool calls (by their results) and log entries that together show this value by themselves where in view."""
    not_shown_by: tuple[str, ...] = ()
    """The tool calls whose results show other values of the item where in view."""
    budget: str = "whole"
    """Its budget after a cut: ``whole``, ``skills``, ``memories`` or ``files``."""
    own: bool = False
    """Whether it is a fact of this program, which no other author can edit; only such facts use the system role."""
    read_with: str = ""
    """How the model can read it where it is only named, such as ``load it with the Skill tool``."""

    @property
    def stands(self) -> bool:
        """Whether the view shows this value by itself, for example as the result of a tool."""
        return self.native != "" and self.native == (self.digest or digest_of(self.value))


@record
class StandingRow:
    """A row of the table: the newest saying of an item, and the entry that said it."""

    item: SaidItem
    entry: str


@record
class BudgetLimit:
    """The limits of a budget in tokens: of one item, and of all; and the most items that are said whole."""

    each: int
    total: int
    count: int = 1_000


def digest_of(text: str) -> str:
    """Return the identity of a value."""
    return hex_of(text.encode("utf-8", "replace"))


def handle_of(digest: str) -> str:
    """Return the handle that reads the value with this digest back."""
    return f"ctx-{digest[:12]}"


def said_message(
    items: Sequence[SaidItem], *, role: str, heading: str = "", later_words: str = ""
) -> dict[str, Any] | None:
    """Return the message that says these items, a block for each; None if none of them has a text.

    ``later_words`` follow if a rule of the user is among the items.
    """
    texts = [one.text for one in items if one.text.strip()]
    if not texts:
        return None
    follows = any(one.source == RULES for one in items)
    blocks = [text_block(text) for text in (heading, *texts, later_words if follows else "") if text]
    return {"role": role, "content": blocks}


def said_in(body: Mapping[str, Any]) -> list[SaidItem]:
    """Return the items that a log entry with this body says; an empty list for every other entry."""
    if body.get("type") == USER_CONTEXT:
        return [_opening_item(body)]
    if body.get("decision") not in _SAYINGS:
        return []
    try:
        return msgspec.convert(body.get("items") or [], list[SaidItem])
    except msgspec.ValidationError:
        return []


def _opening_item(body: Mapping[str, Any]) -> SaidItem:
    """Return the context that a program attached at a session's start as one item, whose only place is the log."""
    message: Any = body.get("message") or {}
    content: Any = message.get("content") or body.get("content") or ""
    blocks = [text_block(content)] if isinstance(content, str) else cast("list[Any]", content)
    texts: list[Any] = [cast("dict[str, Any]", block).get("text") for block in blocks if isinstance(block, dict)]
    value = "\n\n".join(text for text in texts if isinstance(text, str))
    digest = digest_of(value)
    return SaidItem(
        f"opening:{digest[:12]}", USER_CONTEXT, "the context that opened the session", value, digest, held=True
    )


def is_shown(said: SaidItem, shown: SaidItem | None) -> bool:
    """Return whether a view shows the newest saying of an item; ``shown`` is the last saying of it in the view."""
    if said.state == "ended":
        return shown is None or shown.state == "ended"
    return shown is not None and shown.digest == said.digest and shown.state in ("said", said.state)


def items_to_say(
    table: Mapping[str, StandingRow],
    fallen: Mapping[str, SaidItem | None],
    items: Sequence[StandingItem],
    *,
    attached: Set[str],
    room: int,
    limits: Mapping[str, BudgetLimit],
) -> tuple[list[SaidItem], list[SaidItem]]:
    """Return the items to say now: as facts of the program, and as content of the user's message.

    ``items`` are all that hold by the sources with the names in ``attached``; an item of such a source that is not
    among them has ended. Items of other sources hold as they were last said. ``room`` is the size in tokens of
    everything that may be said; an item that does not fit is only named.
    """
    now = {item.key: item for item in items if item.value or item.native}
    wanted = [found for item in now.values() if (found := _due(item, table.get(item.key), fallen)) is not None]
    for key in table:
        row = table[key].item
        if key not in now and (found := _unsourced(row, fallen, attached=row.source in attached)) is not None:
            wanted.append(found)
    own = {item.key for item in items if item.own}
    read_with = {item.key: item.read_with for item in items if item.read_with}
    said = _fitted(wanted, own, read_with, room, limits)
    return [one for one in said if one.key in own], [one for one in said if one.key not in own]


def _due(item: StandingItem, row: StandingRow | None, fallen: Mapping[str, SaidItem | None]) -> SaidItem | None:
    """Return the saying of an item that holds; None if the view shows it."""
    if item.stands:
        return None
    said = SaidItem(
        item.key,
        item.source,
        item.name,
        item.value,
        item.digest or digest_of(item.value),
        budget=item.budget,
        shown_by=item.shown_by,
        not_shown_by=item.not_shown_by,
    )
    if item.native and not item.value:
        return replace(said, lead=_ENDED.format(item.name), state="ended")
    if item.native:
        return replace(said, lead=_REPLACES.format(item.name))
    shown = fallen.get(item.key, row.item if row is not None else None)
    if shown is None or shown.state == "ended":
        return said
    if shown.digest == said.digest and (shown.state == "said" or item.key not in fallen):
        # An older saying in view says it; the log notes that this value holds again.
        is_noted = row is not None and row.item.digest == said.digest and row.item.state != "ended"
        return None if is_noted else replace(said, state="kept")
    is_other = shown.digest != said.digest or shown.state != "named"
    return replace(said, lead=_REPLACES.format(item.name)) if is_other else said


def _unsourced(row: SaidItem, fallen: Mapping[str, SaidItem | None], *, attached: bool) -> SaidItem | None:
    """Return the saying of a row that no source gave now; None if nothing is to be said or logged."""
    has_fallen, shown = row.key in fallen, fallen.get(row.key)
    if row.state == "ended":
        return replace(row, lead=_ENDED.format(row.name)) if shown is not None else None
    if attached and not row.held:
        is_silent = has_fallen and (shown is None or shown.state == "ended")
        return replace(row, value="", lead="" if is_silent else _ENDED.format(row.name), state="ended")
    if not has_fallen:
        return None
    is_older = shown is not None and shown.state == "said"
    return replace(row, state="said", lead=_REPLACES.format(row.name) if is_older else "")


def _fitted(
    wanted: Sequence[SaidItem],
    own: Set[str],
    read_with: Mapping[str, str],
    room: int,
    limits: Mapping[str, BudgetLimit],
) -> list[SaidItem]:
    """Return the sayings that fit the room and the limits, the most important first; others are only named."""
    left = room
    used: dict[str, int] = {}
    counts: dict[str, int] = {}
    out: list[SaidItem] = []
    # The opening of an old log is the oldest of all: every saying of a source comes after it.
    for one in sorted(
        wanted, key=lambda one: (one.key not in own, _ORDER.get(one.budget, 0), one.source != USER_CONTEXT)
    ):
        limit = limits.get(one.budget)
        most = left
        if limit is not None:
            within = limit.total - used.get(one.budget, 0) if counts.get(one.budget, 0) < limit.count else 0
            most = min(within, limit.each) if one.budget == RULES else min(left, within, limit.each)
        fit = _within(one, most, read_with.get(one.key, ""))
        cost = estimate_text(fit.text) + _FRAME_TOKENS
        left -= cost
        used[one.budget] = used.get(one.budget, 0) + cost
        counts[one.budget] = counts.get(one.budget, 0) + (fit.state == "said")
        out.append(fit)
    return out


def _within(one: SaidItem, tokens: int, read_with: str) -> SaidItem:
    """Return a saying that has at most these tokens: whole, for a skill or a file shortened, or only named."""
    size = estimate_text(one.text) + _FRAME_TOKENS
    if one.state != "said" or size <= tokens:
        return one
    how = read_with or f"read it back by its handle {handle_of(one.digest)}"
    least = estimate_text(one.lead) + 64
    if one.budget in ("skills", "files") and tokens >= least:
        chars = len(one.value) * (tokens - least // 2) // max(1, size)
        last = one.value.rpartition("\n")[2]
        end = f"\n{last}" if last.startswith("</") else ""
        head = one.value[:chars]
        whole_lines = head.rpartition("\n")[0]
        start = whole_lines if 2 * len(whole_lines) >= len(head) else head  # a long line is cut within
        return replace(one, value=start + _SHORTENED.format(how) + end)
    named = _NAMED.format(one.name, how)
    return replace(one, state="named", lead=f"{named} {_REPLACES.format(one.name)}" if one.lead else named)
