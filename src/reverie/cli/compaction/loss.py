"""``reverie loss``: list the names that each compaction of a session or a recording removed from view."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from ...conversation.decisions import Compacted, decision_of
from ...conversation.entries import DECISION, Entry
from ...conversation.view import View
from ...layers.l4_compact import LossReport, loss_of, loss_text
from ...values import record, replace
from ..output import console, emit_json, say
from ..sessions.recordings import SESSION, recordings


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


@click.command()
@click.argument("session", metavar="SESSION|FILE", type=SESSION)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, as_json: bool) -> None:
    """List the exact names that each compaction of a session or a recording removed from view.

    A name (path, sha, test, error, number) counts as kept if it still appears literally right after the compaction.
    Each missing name is listed with a handle; 'reverie read' shows its message.
    """
    found = [(one.session_id, losses(one.entries)) for one in recordings(session)]
    if as_json:
        emit_json([{"session": name, "compactions": [_json_object(one) for one in taken]} for name, taken in found])
        return
    for name, taken in found:
        if not taken:
            say(f"{name}: no compactions")
        for one in taken:
            undone = ", undone later" if one.undone else ""
            how = f"{one.decision.trigger} compaction, method {one.decision.method}"
            say(name)
            say(f"  {how}, {one.time or 'time unknown'}{undone}")
            say(f"  {one.tokens_before:,} tokens before, {one.tokens_after:,} after; {one.uuid}")
            say(loss_text(one.loss, width=console().width))
            say()


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


def _json_object(one: CompactionLoss) -> dict[str, Any]:
    return {
        "uuid": one.uuid,
        "time": one.time,
        "trigger": one.decision.trigger,
        "method": one.decision.method,
        "handle": one.decision.handle or one.uuid,
        "tokens_before": one.tokens_before,
        "tokens_after": one.tokens_after,
        "undone": one.undone,
        **loss_report(one.loss),
    }
