"""``reverie notes``: the running notes of a session, shown, brought up to date, edited by hand."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import click

from ...conversation.decisions import NotesUpdated
from ...conversation.tokens.estimate import estimate_text
from ...conversation.view import View
from ...errors import InputError
from ...events import Event, FellBack
from ...layers.l3_notes import Notes, render_notes, take_notes, template_of
from ...runtime.library import Library
from ...runtime.session.notes.keeper import NotesKeeper
from ...runtime.session.parts import SessionOptions
from ...runtime.session.session import Session
from ...settings import Settings, load_settings
from ...storage.files import FileStorage
from ..output import emit_json, say, warn
from ..sessions.recordings import recordings

__all__ = ["command"]


@click.command(short_help="Show, renew or edit the running notes of a session.")
@click.argument("session", metavar="SESSION|FILE")
@click.option("--update", is_flag=True, help="Bring them up to date now, without a model.")
@click.option("--edit", is_flag=True, help="Open them in $VISUAL or $EDITOR and log what was changed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, update: bool, edit: bool, as_json: bool) -> None:
    """Show, renew or edit the running notes of a session.

    Where a session has none yet, or FILE is a recording of another agent, they are written for the occasion and not
    kept. --update and --edit keep what they write: in the session's log, and in its summary.md.
    """
    settings = load_settings()
    if update and edit:
        raise InputError("--update and --edit are two different things: give one of them")
    if edit and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("--edit opens an editor and there is no terminal here; edit the session's summary.md instead")
    if update or edit:
        made = anyio.run(_changed, session, settings, edit)
        show(made["notes"], settings, {key: value for key, value in made.items() if key != "notes"}, as_json)
        return
    for one in recordings(session):
        view = View().fold_all(one.entries)
        kept = Notes(dict(view.facts.notes))
        about = {"session": one.session, "kept": not kept.empty, "covered": view.facts.notes_covered}
        if kept.empty and not as_json:
            warn(f"{one.session} has no notes yet: these are written for the occasion; --update keeps them")
        show(take_notes(view) if kept.empty else kept, settings, about, as_json)


def show(notes: Notes, settings: Settings, about: dict[str, Any], as_json: bool) -> None:
    """Print notes, as the document or as JSON."""
    if as_json:
        tokens = {name: estimate_text(content) for name, content in notes.sections.items()}
        emit_json({**about, "sections": dict(notes.sections), "tokens": tokens, "total_tokens": sum(tokens.values())})
        return
    say(render_notes(notes, template_of(settings.notes)).rstrip("\n"))


async def _changed(name: str, settings: Settings, edit: bool) -> dict[str, Any]:
    """Open the session for writing, change its notes, and return them with what was logged."""
    storage = FileStorage(settings.home, durability=settings.durability)
    try:
        key = Library(storage).find(name)
        project, session = key.removeprefix("projects/").removesuffix(".jsonl").split("/", 1)
        async with Session(SessionOptions(session, storage=storage, project=project, settings=settings)) as opened:
            noting = opened.parts.notes
            opened.listen(_said)
            made = await (_by_hand(noting) if edit else noting.update(manual=True, local=True))
            return {
                "session": session,
                "kept": True,
                "covered": opened.view.facts.notes_covered,
                "changed": list(made.sections) if made is not None else [],
                "path": noting.path,
                "notes": noting.notes,
            }
    finally:
        storage.close()


def _said(event: Event) -> None:
    if isinstance(event, FellBack):
        warn(event.why)


async def _by_hand(noting: NotesKeeper) -> NotesUpdated | None:
    """Let a person edit the notes; what cannot be taken in is kept where they can find it."""
    await noting.adopt()
    with tempfile.NamedTemporaryFile("w", suffix=".md", prefix="notes-", delete=False, encoding="utf-8") as file:
        file.write(await noting.document())
    path = Path(file.name)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except OSError as error:
        raise InputError(f"{editor} cannot be started ({error}): set EDITOR to an editor that is here") from None
    if code != 0:
        raise InputError(f"{editor} ended with {code}: nothing was changed; what it wrote is at {path}")
    try:
        made = await noting.edit(path.read_text("utf-8"))
    except InputError as error:
        raise InputError(f"{error}; what you wrote is at {path}") from None
    path.unlink()
    return made
