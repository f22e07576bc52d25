"""``reverie undo``: what the last compaction took out of view comes back."""

from __future__ import annotations

import anyio
import click

from ...conversation.view import View
from ...errors import SessionBusy, SessionError
from ...runtime.library import Library
from ...runtime.places.projects import inbox_key
from ...runtime.session.inbox import post
from ...settings import Settings, load_settings
from ...storage.files import FileStorage
from ..output import emit_json, say
from .compact import opened_for_writing, place_of

__all__ = ["command"]


@click.command(short_help="Take a session's last compaction back.")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, as_json: bool) -> None:
    """Take a session's last compaction back: all it took out of view stands there again, byte for byte.

    What was said since stays. The session does not compact by itself again before its window is full or it is asked to.
    """
    anyio.run(_undo, session, load_settings(), as_json)


async def _undo(name: str, settings: Settings, as_json: bool) -> None:
    try:
        async with opened_for_writing(name, settings) as session:
            before = session.view.counted.tokens
            entry = await session.undo()
            after, undone = session.view.counted.tokens, str(entry.body["compaction"])
            if as_json:
                emit_json({"session": session.name, "undone": undone, "tokens_before": before, "tokens_after": after})
            else:
                say(f"undone: {before:,} tokens before, {after:,} after")
    except SessionBusy:
        _left_in_inbox(name, settings, as_json)


def _left_in_inbox(name: str, settings: Settings, as_json: bool) -> None:
    """Ask the process that has the session to undo the compaction that stands last now."""
    storage = FileStorage(settings.home, durability=settings.durability)
    try:
        project, session = place_of(storage, name)
        view: View = Library(storage).view(f"projects/{project}/{session}.jsonl")
        standing = [one for one in view.facts.compactions if one not in view.facts.undone]
        if not standing:
            raise SessionError("there is no compaction to undo in this session")
        left = post(storage, inbox_key(project, session), "undo", {"compaction": standing[-1]}, sender="reverie undo")
    finally:
        storage.close()
    if as_json:
        emit_json({"session": session, "undone": None, "queued": left.id})
    else:
        say(f"{session} is open in another process; it is undone at its next turn")
