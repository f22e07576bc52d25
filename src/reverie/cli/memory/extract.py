"""``reverie memory extract``: what past sessions hold that is worth keeping."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ...errors import ReverieError
from ...importers import find_sessions, read_session
from ...runtime.memory.extract.report import Extraction, Outcome, is_imported
from ...runtime.places.projects import project_slug
from ..output import emit_json, say, table, tracked, warn
from ..sessions.recordings import Recording, opened_library, recordings
from .project_store import opened
from .read import whose

__all__ = ["extract"]


@click.command(short_help="Keep what past sessions hold that is worth keeping.")
@click.argument("names", nargs=-1, metavar="[SESSION|PATH]...")
@click.option("--mine", is_flag=True, help="The recordings are my own: what I said there counts as my word.")
@click.option("--dry-run", is_flag=True, help="Say what would be kept and keep nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def extract(names: tuple[str, ...], mine: bool, dry_run: bool, as_json: bool) -> int:
    """Keep what past sessions hold that is worth keeping, found without a model.

    Give sessions of the library, recordings of other agents, or directories of them; without any, all sessions of this
    project are looked through. What a recording says waits in 'reverie memory review', unless --mine is given. A second
    run finds nothing new, and what you have forgotten does not come back.
    """
    failed: list[dict[str, str]] = []
    extraction = Extraction(opened(), dry_run=dry_run)
    found: list[Outcome] = []
    for name in tracked(listed(names, failed), "looking"):
        try:
            for one, from_file in heard(name):
                imported = not mine and (from_file or one.format != "reverie" or is_imported(one.entries))
                found.append(extraction.look(one.session, one.entries, imported=imported))
        except ReverieError as error:
            failed.append({"path": name, "error": str(error)})
    if as_json:
        emit_json(as_report(found, failed, dry_run=dry_run))
    else:
        draw(found, dry_run=dry_run)
    for failure in failed:
        warn(failure["error"])
    return 2 if failed else 0


def listed(names: Sequence[str], failed: list[dict[str, str]]) -> list[str]:
    """Return what to look through: sessions and files by name; without any, this project's sessions."""
    if not names:
        project = project_slug(Path(click.get_current_context().obj or "."))
        with opened_library() as library:
            keys = [key.removeprefix("projects/").removesuffix(".jsonl") for key in sorted(library.keys())]
        return [key for key in keys if key.startswith(f"{project}/")]
    out: dict[str, None] = {}
    for name in names:
        if not os.path.isdir(name):
            out[name] = None
            continue
        below = [str(path) for path in find_sessions(name)]
        out.update(dict.fromkeys(below))
        if not below:
            failed.append({"path": name, "error": f"{name}: no recorded session lies below it"})
    return list(out)


def heard(name: str) -> list[tuple[Recording, bool]]:
    """Return the sessions under a name, and whether they were read from a file."""
    if os.path.isfile(name):
        return [
            (Recording(one.session_id, one.format, one.title, one.model, one.cwd, one.entries), True)
            for one in read_session(name)
        ]
    return [(one, False) for one in recordings(name)]


def as_report(found: Sequence[Outcome], failed: list[dict[str, str]], *, dry_run: bool) -> dict[str, Any]:
    """Return everything that was found as plain values."""
    return {
        "dry_run": dry_run,
        "sessions": len(found),
        "messages": sum(one.messages for one in found),
        "memories": [memory for one in found for memory in one.memories],
        "refused": [refused for one in found for refused in one.refused],
        "failed": failed,
    }


def draw(found: Sequence[Outcome], *, dry_run: bool) -> None:
    """Print a row a memory, then what was refused, then the sum."""
    memories = [memory for one in found for memory in one.memories]
    if memories:
        rows = [(one.status, one.type, whose(one.trust), one.by, one.source.split()[0], one.text) for one in memories]
        table(["", "type", "trust", "told by", "session", "memory"], rows, cut=5)
    for one in found:
        for refused in one.refused:
            say(f"not kept ({refused.source}): {refused.why.removeprefix('not saved: ')}")
    messages = sum(one.messages for one in found)
    sessions = f"{len(found)} {'session' if len(found) == 1 else 'sessions'}"
    say(f"{len(memories)} worth keeping in {messages} messages of {sessions}.")
    waiting = sum(one.trust == "unconfirmed" and one.status in ("saved", "updated") for one in memories)
    if waiting and not dry_run:
        say(f"{waiting} {'waits' if waiting == 1 else 'wait'} to be confirmed: 'reverie memory review'.")
