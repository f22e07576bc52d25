"""Turn a session into a skill file that agents can use: ``reverie notes --as-skill``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
from anyio import to_thread

from ...conversation.view import View
from ...errors import InputError, StorageError
from ...importers import ImportedSession
from ...layers.l3_notes import SkillMaterial, checked_name, render_skill, skill_material
from ...paths import replace_file
from ...runtime.places.projects import project_slug
from ...runtime.session.accounts import Accounts
from ...runtime.session.ledger import open_ledger
from ...runtime.session.notes.skill_writer import SOURCE, SkillWriter, WrittenSkill
from ...settings import Settings
from ...values import record
from ..output import emit_json, say, warn
from ..sessions.recordings import recordings

FILE_NAME = "SKILL.md"


@record
class SkillOptions:
    """How to make a skill: its name and parent directory, the model to ask, and whether to replace or only to show.

    Without ``folder`` the skill goes below Reverie's home, where the agent finds it in every project.
    """

    name: str = ""
    folder: str = ""
    model: str = ""
    local: bool = False
    force: bool = False
    dry_run: bool = False
    as_json: bool = False


def write_as_skill(session: str, options: SkillOptions, settings: Settings) -> None:
    """Make a skill of a session or a recording, write it unless it is a dry run, and print the result."""
    found = recordings(session)[0]
    parent = Path(options.folder) if options.folder else settings.home / "skills"
    if options.name:
        folder = parent / checked_name(options.name)
        if not (options.force or options.dry_run):
            refuse_existing(folder)
    material = skill_material(View().fold_all(found.entries))
    made, cost = anyio.run(_written, found, material, parent, options, settings)
    text = render_skill(made.skill)
    path = parent / made.skill.name / FILE_NAME
    if not options.dry_run:
        save_skill(path.parent, text, force=options.force)
    for problem in made.problems:
        warn(problem)
    if options.as_json:
        emit_json(
            {
                "session": found.session_id,
                "path": str(path),
                "written": not options.dry_run,
                "name": made.skill.name,
                "by": made.by,
                "model_calls": made.model_calls,
                "cost_usd": cost,
                "problems": list(made.problems),
                "text": text,
            }
        )
    elif options.dry_run:
        say(text.rstrip("\n"))
    else:
        say(saved_line(path, made))


def saved_line(path: Path, made: WrittenSkill) -> str:
    """Return a sentence about a saved skill: its path, and the work that is left to the user."""
    if made.by == "model":
        return f"wrote {path}: read it before you use or share it, it quotes the session"
    return f"wrote {path}: a skeleton made without a model; fill in the lines that begin with TODO"


def refuse_existing(folder: Path) -> None:
    """Raise InputError if the folder of a skill exists."""
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} exists already and was not changed; use another --name or --output, or --force")


def save_skill(folder: Path, text: str, *, force: bool = False) -> None:
    """Write a skill's file and its folders; raise InputError if its folder exists, unless ``force``, or on failure."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir()
            force = True
        if not force:
            refuse_existing(folder)
        replace_file(str(folder), FILE_NAME, text.encode())
    except OSError as error:
        raise InputError(f"cannot write {folder / FILE_NAME} ({error.strerror}); use another --output") from None
    except StorageError as error:
        raise InputError(f"{error}; use another --output") from None


async def _written(
    found: ImportedSession, material: SkillMaterial, parent: Path, options: SkillOptions, settings: Settings
) -> tuple[WrittenSkill, float | None]:
    """Return the skill of a session and the price of the model's calls in USD, None if there is no price."""
    named = "" if options.local else options.model or settings.model or ""
    model = None
    if named and options.dry_run:
        warn("a dry run calls no model: this is the skeleton, which a model's skill will replace")
    elif named:
        from ...models import open_model

        model = open_model(named, aliases=settings.model_aliases, corrections=settings.models)
    costs: list[float | None] = []
    project = project_slug(Path(found.cwd)) if found.cwd else ""
    with open_ledger(settings) as ledger:
        accounts = Accounts(ledger, session=found.session_id, project=project, clock=time.time)
        writer = SkillWriter(
            model,
            corrections=settings.models,
            record_call=lambda reply: to_thread.run_sync(lambda: costs.append(_billed(accounts, reply))),
            is_taken=lambda name: not options.force and (parent / name).exists(),
        )
        try:
            made = await writer.written(material, name=options.name)
        finally:
            if model is not None:
                await model.aclose()
    known = [cost for cost in costs if cost is not None]
    return made, sum(known) if len(known) == len(costs) and costs else None


def _billed(accounts: Accounts, reply: Mapping[str, Any]) -> float | None:
    """Enter a model call in the ledger and return its price in USD, None if it is unknown."""
    billed = accounts.side_call(reply, source=SOURCE)
    if billed is None:
        return None
    accounts.enter(billed, f"{SOURCE}-{uuid4()}")
    return billed.call.cost_usd
