"""``reverie stop``: stop the running query of a session or an agent from another process."""

from __future__ import annotations

from typing import Any

import click

from ...errors import SessionError
from ...runtime.library import Library
from ...runtime.places.projects import session_of
from ...runtime.session.inbox import STOP, post
from ...settings import Settings, load_settings
from ..output import emit_json, say
from ..sessions.recordings import SESSION, opened_storage


@click.command()
@click.argument("session", type=SESSION)
@click.option("--dry-run", is_flag=True, help="Only print the process that would be asked.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, dry_run: bool, as_json: bool) -> None:
    """Stop the running query of a session or an agent, as Esc does in its terminal.

    The process that has it open stops within a second and completes its log. A loop of your own gets the event
    InboxDrained with 'stop' before its next request.
    """
    result = stop_session(session, load_settings(), dry_run=dry_run)
    if as_json:
        emit_json(result)
    else:
        say(result["text"])


def stop_session(
    name: str, settings: Settings, *, dry_run: bool = False, sender: str = "reverie stop"
) -> dict[str, Any]:
    """Ask the process that has a session or an agent open to stop its query, and return the effect, for JSON.

    Raise ``SessionError`` if no process has it open.
    """
    with opened_storage(settings) as storage:
        key = Library(storage).find(name)
        holder = storage.holder(key)
        session = session_of(key)
        if holder is None:
            raise SessionError(f"{session} does not run: no process has it open")
        queued = None if dry_run else post(storage, f"{key.removesuffix('.jsonl')}/inbox", STOP, {}, sender=sender).id
    text = f"{'would ask' if dry_run else 'asked'} {session} to stop ({holder})"
    return {"session": session, "holder": holder, "queued": queued, "dry_run": dry_run, "text": text}
