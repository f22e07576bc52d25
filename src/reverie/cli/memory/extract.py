"""``reverie memory extract``: save memories from past sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ...errors import ReverieError
from ...runtime.memory.extract.extraction_vectors import settings_vectors
from ...runtime.memory.extract.report import Extraction, ExtractionOutcome
from ...runtime.places.projects import project_slug
from ...settings import load_settings
from ..output import counted, emit_json, say, table, tracked, warn
from ..sessions.recordings import listed_files, opened_library, recordings
from .project_store import opened
from .read import trust_cell


@click.command(short_help="Save memories from past sessions.")
@click.argument("names", nargs=-1, metavar="[SESSION|PATH]...")
@click.option("--mine", is_flag=True, help="The recordings are your own: trust your statements in them.")
@click.option("--dry-run", is_flag=True, help="List the memories and save nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def extract(names: tuple[str, ...], mine: bool, dry_run: bool, as_json: bool) -> int:
    """Save wishes that you repeated in several past sessions, without a model.

    Pass sessions in the library, recordings of other agents, or directories of recordings; without any, all sessions of
    this project are searched. The memories quote you and wait in 'reverie memory review' unless you pass --mine. A
    second run saves nothing twice, and deleted memories do not return.
    """
    failed: list[dict[str, str]] = []
    trust, embed = "user" if mine else "unconfirmed", settings_vectors(load_settings())
    extraction = Extraction(opened(), trust=trust, dry_run=dry_run, embed=embed)
    found: list[ExtractionOutcome] = []
    for name in tracked(listed(names, failed), "extracting"):
        try:
            for one in recordings(name):
                found.append(extraction.look(one.session_id, one.entries))
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
    """Return the named sessions and files, or this project's sessions; directories without any go to ``failed``."""
    if not names:
        project = project_slug(Path(click.get_current_context().obj or "."))
        with opened_library() as library:
            keys = [key.removeprefix("projects/").removesuffix(".jsonl") for key in sorted(library.keys())]
        return [key for key in keys if key.startswith(f"{project}/")]
    return [str(path) for path in listed_files(names, failed)]


def as_report(found: Sequence[ExtractionOutcome], failed: list[dict[str, str]], *, dry_run: bool) -> dict[str, Any]:
    """Return all outcomes and failures as a dict for JSON."""
    return {
        "dry_run": dry_run,
        "sessions": len(found),
        "messages": sum(one.messages for one in found),
        "memories": [memory for one in found for memory in one.memories],
        "refused": [refused for one in found for refused in one.refused],
        "failed": failed,
    }


def draw(found: Sequence[ExtractionOutcome], *, dry_run: bool) -> None:
    """Print one row per memory, then the refused memories, then the totals and the number waiting for approval."""
    memories = [memory for one in found for memory in one.memories]
    if memories:
        rows = [(one.status, one.type, trust_cell(one.trust), len(one.source), one.text) for one in memories]
        table(["", "type", "trust", "sessions", "memory"], rows, cut=4)
    for one in found:
        for refused in one.refused:
            say(f"not saved ({refused.source}): {refused.why.removeprefix('not saved: ')}")
    messages = sum(one.messages for one in found)
    source = f"{counted(messages, 'message')} of {counted(len(found), 'session')}"
    say(f"Found {counted(len(memories), 'memory')} in {source}.")
    waiting = sum(one.trust == "unconfirmed" and one.status == "saved" for one in memories)
    if waiting and not dry_run:
        say(f"{waiting} {'waits' if waiting == 1 else 'wait'} for your approval: 'reverie memory review'.")
