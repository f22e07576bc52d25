"""The names that each compaction of a log removed from view."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...conversation.decisions import Compacted, decision_of
from ...conversation.entries import DECISION, Entry
from ...conversation.view import View
from ...layers.l4_compact import LossReport, loss_of
from ...values import record, replace


@record
class CompactionLoss:
    """One compaction in a log, with its token counts and a report of the names it kept and removed from view."""

    uuid: str
    time: str
    decision: Compacted
    tokens_before: int
    tokens_after: int
    undone: bool
    loss: LossReport


def losses(entries: Iterable[Entry]) -> list[CompactionLoss]:
    """Return a log's compactions, each with the names that the view had before but not after it."""
    out: list[CompactionLoss] = []
    view = View()
    for entry in entries:
        before, view = view, view.fold(entry)
        decision = decision_of(entry.body) if entry.kind == DECISION and view.cuts != before.cuts else None
        if isinstance(decision, Compacted):
            loss = loss_of(before, view, decision)
            tokens_before = decision.tokens_before or before.token_count.raw_tokens
            tokens_after = decision.tokens_after or view.token_count.tokens
            out.append(CompactionLoss(entry.uuid, entry.time, decision, tokens_before, tokens_after, False, loss))
    return [replace(one, undone=one.uuid in view.facts.undone) for one in out]


def loss_report(loss: LossReport) -> dict[str, Any]:
    """Return a loss as a dict for JSON: counts by kind of name, share of names kept, and the lost names."""
    return {"by_kind": loss.counts, "share_kept": loss.share_kept, "lost": list(loss.lost)}
