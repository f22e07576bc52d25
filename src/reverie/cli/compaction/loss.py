"""``reverie loss``: list the names that each compaction of a session or a recording removed from view."""

from __future__ import annotations

from typing import Any

import click

from ...layers.l4_compact import loss_text
from ...runtime.reports.measures import CompactionLoss, loss_report, losses
from ...values import picked
from ..output import console, emit_json, say
from ..sessions.recordings import recordings, session_argument


@click.command()
@session_argument("SESSION|FILE")
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


def _json_object(one: CompactionLoss) -> dict[str, Any]:
    about = {**picked(one.decision, "trigger method"), "handle": one.decision.handle or one.uuid}
    sizes = picked(one, "tokens_before tokens_after undone")
    return {**picked(one, "uuid time"), **about, **sizes, **loss_report(one.loss)}
