"""``reverie skill``: turn a session into a skill file that agents can use."""

from __future__ import annotations

from pathlib import Path

import click

from ...conversation.view import View
from ...errors import InputError
from ...layers.l3_notes import Notes, render_skill, skill_of, take_notes, words_since_compaction
from ..output import emit_json, say
from ..sessions.recordings import recordings

__all__ = ["command", "skill_text", "write_skill"]


@click.command(short_help="Turn a session into a skill.")
@click.argument("session", metavar="SESSION|FILE")
@click.option("--name", metavar="NAME", default="", help="Name of the skill; default: from the session's title.")
@click.option(
    "--out",
    "folder",
    metavar="DIR",
    default="skills",
    show_default=True,
    help="Parent directory of the skill's folder.",
)
@click.option("--dry-run", is_flag=True, help="Print the file and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, name: str, folder: str, dry_run: bool, as_json: bool) -> None:
    """Turn a session into a skill: DIR/NAME/SKILL.md in the Agent Skills format.

    The skill is built, without a model, from the session's notes and the user's messages since the last compaction.
    Read it before you share it: it quotes the session.
    """
    one = recordings(session)[0]
    called, text = skill_text(View().fold_all(one.entries), name)
    path = Path(folder) / called / "SKILL.md"
    if not dry_run:
        write_skill(path, text)
    if as_json:
        emit_json({"session": one.session, "path": str(path), "written": not dry_run, "name": called, "text": text})
    elif dry_run:
        say(text.rstrip("\n"))
    else:
        say(f"wrote {path}")


def skill_text(view: View, name: str = "") -> tuple[str, str]:
    """Return the name of the skill made from a session's view, and the text of its SKILL.md."""
    notes = Notes(dict(view.facts.notes))
    skill = skill_of(take_notes(view) if notes.empty else notes, words_since_compaction(view), name=name)
    return skill.name, render_skill(skill)


def write_skill(path: Path, text: str) -> None:
    """Write a new skill file and its folders; raise InputError if the file exists or cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists already and was not changed; use another --name or --out") from None
    except OSError as error:
        raise InputError(f"cannot write {path} ({error.strerror}); use another --out") from None
