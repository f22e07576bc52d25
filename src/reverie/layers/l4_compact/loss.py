"""Report the losses of a compaction: exact names, user messages and open steps, with handles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from ...conversation.authorship import strings_of
from ...conversation.cuts import Item
from ...conversation.decisions import Compacted
from ...conversation.entries import ASSISTANT
from ...conversation.identifiers import TextNames
from ...conversation.tool_calls import COMPLETED, steps_in
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from ...values import record, rows_of
from .anchors import mined
from .user_words import user_messages

_TODO: Final = frozenset({"TodoWrite", "todo_write", "todowrite", "Todo", "todo", "update_plan"})


@record
class LostName:
    """An exact name, user message or open step out of view: its kind, use count, and handle to read it by."""

    kind: str
    text: str
    count: int
    handle: str


@record
class LossReport:
    """How many names, user messages and open steps the removed part had by kind, and those out of view."""

    had: Mapping[str, int]
    lost: tuple[LostName, ...]
    weight_had: int
    weight_lost: int

    @property
    def counts(self) -> dict[str, list[int]]:
        """A list of two counts by kind: how many the removed part had, and how many are out of view."""
        gone = Counter(one.kind for one in self.lost)
        return {kind: [had, gone[kind]] for kind, had in self.had.items()}

    @property
    def share_kept(self) -> float:
        """The share of exact names still in view, from 0 to 1, weighted by their uses in the removed part."""
        return 1.0 - self.weight_lost / self.weight_had if self.weight_had else 1.0


def shown_text(view: View) -> str:
    """Return all strings in the view's messages, calls and results included, joined for literal search."""
    return "\n".join(text for message in view.messages() for block in as_blocks(message) for text in strings_of(block))


def loss_between(cut: Sequence[Item], after: str, *, handle: str = "") -> LossReport:
    """Return the losses of the removed items: names, user messages and open steps that the text ``after`` lacks.

    ``handle`` is used for names whose message is unknown.
    """
    counts, where = mined(cut)
    shown = TextNames(after)
    had: Counter[str] = Counter()
    lost: list[LostName] = []
    weight_had = weight_lost = 0
    for name, count in counts.items():
        if name.kind == "symbol":
            continue
        had[name.kind] += 1
        weight_had += count
        if name.text not in shown:
            weight_lost += count
            lost.append(LostName(name.kind, name.text, count, where.get(name) or handle))
    for spoken in user_messages(item.entry for item in cut):
        had["user message"] += 1
        if spoken.text not in after and not all(part in after for part in spoken.text.split("\n\n")):
            lost.append(LostName("user message", _first_line(spoken.text), 1, spoken.handle))
    for step, uuid in _open_steps(cut):
        had["open step"] += 1
        if step not in after:
            lost.append(LostName("open step", step, 1, uuid))
    lost.sort(key=lambda one: (-one.count, one.kind, one.text))
    return LossReport(dict(had), tuple(lost), weight_had, weight_lost)


def loss_of(before: View, after: View, decision: Compacted) -> LossReport:
    """Return the loss of one compaction, given the views before and after it."""
    left = {item.uuid for item in after.items_in_view()}
    cut = [item for item in before.items_in_view() if item.uuid not in left]
    return loss_between(cut, shown_text(after), handle=decision.handle)


def _open_steps(items: Sequence[Item]) -> list[tuple[str, str]]:
    """Return the uncompleted steps of the last to-do list in these items, each with its message's uuid."""
    for item in reversed(items):
        if item.kind != ASSISTANT:
            continue
        for block in reversed(rows_of(item.message.get("content"))):
            steps = steps_in(block.get("input")) if block.get("name") in _TODO else None
            if block.get("type") == "tool_use" and steps is not None:
                return [(text, item.uuid) for text, status in steps if status != COMPLETED]
    return []


def loss_text(loss: LossReport, *, width: int = 200, listed: int | None = None) -> str:
    """Return a loss report as text with all or so many losses, in lines of this width if handles allow it."""
    if not loss.had:
        return "Nothing that can be named exactly was in the part that left."
    lines = [f"{'kind':<14}{'had':>8}{'out of view':>13}"]
    lines += [f"{kind:<14}{had:>8,}{gone:>13,}" for kind, (had, gone) in sorted(loss.counts.items())]
    lines.append(f"{loss.share_kept:.1%} of the uses of these names are still in view. The rest can be read back.")
    if loss.lost:
        lines += ["", "Out of view, most used first (kind, uses, text, handle):"]
        lines += [_line(one, width) for one in loss.lost[:listed]]
    if listed is not None and len(loss.lost) > listed:
        lines.append(f"  and {len(loss.lost) - listed:,} more; after the compaction 'reverie loss' lists all")
    return "\n".join(lines)


def _line(one: LostName, width: int) -> str:
    """Return one loss as a line, or as two with the handle on the second if it is too long."""
    head = f"  {one.kind:<13}{one.count:>5}  "
    text = one.text if len(one.text) <= 100 else f"{one.text[:97]}..."
    if len(head) + len(text) + 2 + len(one.handle) <= width:
        return f"{head}{text}  {one.handle}"
    room = max(20, width - len(head))
    text = text if len(text) <= room else f"{text[: room - 3]}..."
    return f"{head}{text}\n{'':<{len(head)}}{one.handle}"


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 120 else f"{line[:117]}..."
