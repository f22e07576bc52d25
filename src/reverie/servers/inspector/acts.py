"""The acts of the layers: every logged decision with its reason, the removed blocks and their replacements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...conversation.cuts import ContentDecision, Cut, item_shown_by
from ...conversation.decisions import (
    CallRecorded,
    Compacted,
    CompactionUndone,
    CursorMoved,
    Decision,
    ResultOffloaded,
    ResultsCleared,
    ResultsKept,
    Snipped,
    Unknown,
    decision_of,
)
from ...conversation.entries import ASSISTANT, DECISION, Entry, reply_id
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from ...values import picked, record, replace
from .tables import Tables, blocks_of

_BOOKKEEPING: Final = (ResultsKept, CursorMoved)


@record
class Act:
    """One decision: its place in the log and in the film, its cause, and the blocks that left and came."""

    uuid: str
    number: int
    """The first request that it may have changed."""
    at: float
    line: int | None
    """The line of the log; None where another program wrote the file."""
    name: str
    decision: Decision
    body: int
    """The block that holds the decision as it was logged."""
    went: list[int]
    stands: list[int]
    undone: bool = False

    def data(self, command: str) -> dict[str, Any]:
        """Return the act as values of JSON; ``command`` undoes it or reads the removed content."""
        cause = self.decision.cause
        return {
            "n": self.number,
            "at": self.at,
            "line": self.line,
            "name": self.name.replace("_", " "),
            "layer": cause.layer,
            "reason": cause.reason,
            "frees": cause.frees,
            "moves": cause.moves_prefix,
            "minor": isinstance(self.decision, _BOOKKEEPING),
            **picked(self, "body went stands undone"),
            "command": command,
        }


def acts_of(entries: Iterable[Entry], tables: Tables, lines: Mapping[str, int]) -> list[Act]:
    """Return all decisions of a log but the records of calls, in order; ``lines`` are the lines by entry."""
    found: list[Act] = []
    view, replies = View(), set[str]()
    for entry in entries:
        before, view = view, view.fold(entry)
        if entry.kind == ASSISTANT:
            replies.add(reply_id(entry))
        decision = decision_of(entry.body) if entry.kind == DECISION else None
        if decision is None or isinstance(decision, Unknown | CallRecorded):
            continue
        went, stands = _changes(entry, decision, before, view, tables)
        body = tables.block(entry.body, "decision")
        name = str(entry.body.get("decision"))
        found.append(Act(entry.uuid, len(replies), entry.at, lines.get(entry.uuid), name, decision, body, went, stands))
    return [replace(act, undone=act.uuid in view.facts.undone) for act in found]


def _changes(
    entry: Entry, decision: Decision, before: View, after: View, tables: Tables
) -> tuple[list[int], list[int]]:
    """Return the blocks that a decision took out of the view, and those that it put there."""
    if isinstance(decision, Cut | ContentDecision | CompactionUndone):
        old = blocks_of(tables.messages, map(tables.message, before.messages()))
        new = blocks_of(tables.messages, map(tables.message, after.messages()))
        return _without(old, new), _without(new, old)
    item = item_shown_by(entry, decision)
    if item is None:
        return [], []
    role = str(item.message.get("role"))
    tables.context.update(str(block["text"]).strip() for block in as_blocks(item.message) if "text" in block)
    return [], [tables.block(block, role) for block in as_blocks(item.message)]


def _without(blocks: list[int], others: list[int]) -> list[int]:
    """Return the blocks that the others lack, counted, in order."""
    rest = Counter(blocks) - Counter(others)
    out: list[int] = []
    for block in blocks:
        if rest[block] > 0:
            rest[block] -= 1
            out.append(block)
    return out


def command_of(act: Act, acts: Iterable[Act], session: str) -> str:
    """Return the command that undoes an act or reads the removed content; empty if there is none."""
    decision = act.decision
    if isinstance(decision, Compacted) and not act.undone:
        standing = [one.uuid for one in acts if isinstance(one.decision, Compacted) and not one.undone]
        if standing and standing[-1] == act.uuid:
            return f"reverie compact --undo {session}"
    match decision:
        case Compacted() | Snipped():
            handle = decision.handle or act.uuid
        case ResultOffloaded():
            handle = decision.tool_use_id
        case ResultsCleared() if decision.cleared:
            handle = decision.cleared[0].handle or decision.cleared[0].tool_use_id
        case _:
            return ""
    return f"reverie read {session} {handle}"
