"""``reverie undo``: undo the last compaction of a session."""

from __future__ import annotations

from typing import Any

import anyio
import click

from ...conversation.view import View
from ...errors import SessionBusy, SessionError
from ...settings import Settings, load_settings
from ...values import fields_of
from ..output import emit_json, say
from ..sessions.recordings import session_argument
from .compact import opened_session, queue_command


@click.command()
@session_argument()
@click.option("--dry-run", is_flag=True, help="Only print the effect.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, dry_run: bool, as_json: bool) -> None:
    """Undo the last compaction: every removed message is restored, byte for byte.

    Messages added since then stay. The session does not compact automatically again until its window is full.
    """
    anyio.run(_undo, session, load_settings(), dry_run, as_json)


async def _undo(name: str, settings: Settings, dry_run: bool, as_json: bool) -> None:
    result = await undo_last(name, settings, dry_run=dry_run)
    if as_json:
        emit_json(result)
    elif "queued" in result:
        say(f"{result['session']} is open in another process, which undoes the compaction at its next turn")
    else:
        say(f"{'would undo' if dry_run else 'undone'}: {result['text']}")


async def undo_last(name: str, settings: Settings, *, dry_run: bool = False) -> dict[str, Any]:
    """Undo the last compaction of a session and return the effect, for JSON.

    If another process has the session open, queue the undo for it; the result then has the key ``queued``.
    """
    try:
        async with opened_session(name, settings, dry_run=dry_run) as session:
            price = await session.undo_price()
            undone = None if dry_run else str((await session.undo()).body["compaction"])
            figures = {name: getattr(price, name) for name in fields_of(type(price))}
            return {"session": session.name, "undone": undone, **figures, "text": price.text}
    except SessionBusy:
        session, queued = queue_command(name, settings, "undo", _last_compaction, sender="reverie undo")
        return {"session": session, "undone": None, "queued": queued}


def _last_compaction(view: View) -> dict[str, str]:
    active = [one for one in view.facts.compactions if one not in view.facts.undone]
    if not active:
        raise SessionError("this session has no compaction to undo")
    return {"compaction": active[-1]}
