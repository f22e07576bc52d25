"""``reverie notes``: show, update or edit the running notes of a session, or turn them into a skill."""

from __future__ import annotations

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
from ...layers.l3_notes import Notes, render_notes, take_notes, template_of
from ...ports import Storage
from ...runtime.library import Library
from ...runtime.session.notes.keeper import NOTES_FILE, NotesKeeper
from ...runtime.session.parts import SessionOptions
from ...runtime.session.session import Session
from ...settings import Settings, load_settings
from ...storage.in_memory import InMemoryStorage
from ..editor import open_editor
from ..output import emit_json, say, warn, warn_of_fallback
from ..sessions.recordings import found_key, opened_storage, recordings, session_argument


@click.command()
@session_argument("SESSION|FILE")
@click.option("--update", is_flag=True, help="Update the notes now, without a model.")
@click.option("--edit", is_flag=True, help="Edit the notes in $VISUAL or $EDITOR and log the changes.")
@click.option("--as-skill", is_flag=True, help="Turn the session into a skill: DIR/NAME/SKILL.md.")
@click.option("--name", metavar="NAME", default="", help="With --as-skill: name of the skill; default: by its task.")
@click.option("-o", "--output", metavar="DIR", default="", help="With --as-skill: its parent; default: <home>/skills.")
@click.option("--model", metavar="NAME", default="", help="With --as-skill: the model to ask; default: setting model.")
@click.option("--local", is_flag=True, help="With --as-skill: use no model, even if one is set.")
@click.option("--force", is_flag=True, help="With --as-skill: replace the SKILL.md of an existing skill.")
@click.option("--dry-run", is_flag=True, help="With --update or --as-skill: use no model and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, update: bool, edit: bool, as_skill: bool, as_json: bool, **skill: Any) -> None:
    """Show, update or edit the running notes of a session, or turn it into a skill.

    If a session has no notes yet, or FILE is a recording of another agent, temporary notes are written and printed.
    --update and --edit save the notes in the session's log and in its summary.md.

    --as-skill writes a file in the Agent Skills format from the notes and the user's messages since the last
    compaction. A model writes it if one is set; without one it is a skeleton with TODO lines. Read it before you
    share it: it quotes the session.
    """
    settings = load_settings()
    if update + edit + as_skill > 1:
        raise InputError("--update, --edit and --as-skill exclude each other: use one of them")
    if as_skill:
        from .skill import SkillOptions, write_as_skill

        options = SkillOptions(skill.pop("name"), skill.pop("output"), as_json=as_json, **skill)
        return write_as_skill(session, options, settings)
    dry_run = update and skill.pop("dry_run")
    if any(skill.values()):
        unused = next(name for name, value in skill.items() if value).replace("_", "-")
        also = "--update or " if unused == "dry-run" else ""
        raise InputError(f"--{unused} needs {also}--as-skill")
    if edit and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("--edit needs a terminal; edit the session's summary.md instead")
    if update or edit:
        made = anyio.run(_change_notes, session, settings, edit, dry_run)
        show(made["notes"], settings, {key: value for key, value in made.items() if key != "notes"}, as_json)
        return
    for one in recordings(session):
        view = View().fold_all(one.entries)
        kept = Notes(dict(view.facts.notes))
        about = {"session": one.session_id, "kept": not kept.empty, "covered": view.facts.notes_covered}
        if kept.empty and not as_json:
            warn(f"{one.session_id} has no notes yet: these are temporary; --update saves them")
        show(take_notes(view) if kept.empty else kept, settings, about, as_json)


def show(notes: Notes, settings: Settings, about: dict[str, Any], as_json: bool) -> None:
    """Print notes as a Markdown document, or as JSON together with the values of ``about``."""
    if as_json:
        tokens = {name: estimate_text(content) for name, content in notes.sections.items()}
        emit_json({**about, "sections": dict(notes.sections), "tokens": tokens, "total_tokens": sum(tokens.values())})
        return
    say(render_notes(notes, template_of(settings.notes)).rstrip("\n"))


async def _change_notes(name: str, settings: Settings, edit: bool, dry_run: bool) -> dict[str, Any]:
    """Update or ``edit`` the notes of a session and log that; return a dict of the notes and facts about them.

    With ``dry_run`` a copy of the session in memory is changed.
    """
    with opened_storage(settings) as storage:
        key = found_key(Library(storage), name)
        project, session = key.removeprefix("projects/").removesuffix(".jsonl").split("/", 1)
        changed = _copy_in_memory(storage, key) if dry_run else storage
        async with Session(SessionOptions(session, storage=changed, project=project, settings=settings)) as opened:
            noting = opened.parts.notes
            opened.listen(warn_of_fallback)
            made = await (_edit_notes(noting) if edit else noting.update(manual=True, local=True))
            return {
                "session": session,
                "kept": not dry_run,
                "covered": opened.view.facts.notes_covered,
                "changed": list(made.sections) if made is not None else [],
                "path": noting.path,
                "notes": noting.notes,
            }


def _copy_in_memory(storage: Storage, log: str) -> InMemoryStorage:
    """Return a storage in memory with the log and the notes of one session."""
    copy = InMemoryStorage()
    for key in (log, f"{log.removesuffix('.jsonl')}/{NOTES_FILE}"):
        document = storage.read(key)
        if document is not None:
            copy.write(key, document.data)
    return copy


async def _edit_notes(noting: NotesKeeper) -> NotesUpdated | None:
    """Open the notes in the user's editor and log the changes; on failure keep the file and raise InputError."""
    await noting.adopt()
    with tempfile.NamedTemporaryFile("w", suffix=".md", prefix="notes-", delete=False, encoding="utf-8") as file:
        file.write(await noting.document())
    path = Path(file.name)
    open_editor(path)
    try:
        made = await noting.edit(path.read_text("utf-8"))
    except InputError as error:
        raise InputError(f"{error}; your text is in {path}") from None
    path.unlink()
    return made
