"""``reverie undo``: undo the last compaction of a session."""

from __future__ import annotations

import anyio
import click

from ...conversation.view import View
from ...errors import SessionBusy, SessionError
from ...settings import Settings, load_settings
from ...values import fields_of
from ..output import emit_json, say
from ..sessions.recordings import SESSION
from .compact import opened_session, queue_command


@click.command()
@click.argument("session", type=SESSION)
@click.option("--dry-run", is_flag=True, help="Only print the effect.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, dry_run: bool, as_json: bool) -> None:
    """Undo the last compaction: every removed message is restored, byte for byte.

    Messages added since then stay. The session does not compact automatically again until its window is full.
    """
    anyio.run(_undo, session, load_settings(), dry_run, as_json)


async def _undo(name: str, settings: Settings, dry_run: bool, as_json: bool) -> None:
    try:
        async with opened_session(name, settings, dry_run=dry_run) as session:
            price = await session.undo_price()
            undone = None if dry_run else str((await session.undo()).body["compaction"])
            if as_json:
                figures = {name: getattr(price, name) for name in fields_of(type(price))}
                emit_json({"session": session.name, "undone": undone, **figures})
            else:
                say(f"{'would undo' if dry_run else 'undone'}: {price.text}")
    except SessionBusy:
        _queue_undo(name, settings, as_json)


def _queue_undo(name: str, settings: Settings, as_json: bool) -> None:
    """Queue an undo of the last compaction for the process that has the session open, and print that."""
    session, queued = queue_command(name, settings, "undo", _last_compaction, sender="reverie undo")
    if as_json:
        emit_json({"session": session, "undone": None, "queued": queued})
    else:
        say(f"{session} is open in another process, which undoes the compaction at its next turn")


def _last_compaction(view: View) -> dict[str, str]:
    active = [one for one in view.facts.compactions if one not in view.facts.undone]
    if not active:
        raise SessionError("this session has no compaction to undo")
    return {"compaction": active[-1]}
