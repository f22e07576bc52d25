"""``reverie import``: copy recorded sessions of other agents into the library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ...errors import InputError, ReverieError, SessionBusy, StorageConflict
from ...importers import ImportedSession, read_session
from ...runtime.archive.recordings import Recordings
from ...runtime.library import ADDED, GROWN
from ...runtime.places.projects import project_slug, session_of
from ...runtime.search.sessions import SessionSearch
from ...runtime.search.shared_words import index_logs, words_of
from ...runtime.search.vectors import settings_embedder
from ...settings import load_settings
from ...values import record
from ..options import subject_option
from ..output import counted, emit_json, fitted, progressing, say, table, tracked, warn
from .recordings import listed_files, opened_library, opened_storage

IMPORTED, EXTENDED, PLANNED, KNOWN = "imported", "extended", "would be imported", "already there"
NAMED = 5


@record
class ImportOutcome:
    """One recorded session, where it is stored, and whether it was imported or extended, would be, or was there."""

    status: str
    session: str
    project: str
    key: str
    path: str
    format: str
    title: str
    model: str
    messages: int
    skipped: Mapping[str, int]
    damage: list[str]


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--project", metavar="DIR", default=".", help="Project to file the sessions under; default: this one.")
@subject_option("Your id of the person the sessions are about, for export and erasure.")
@click.option("--dry-run", is_flag=True, help="List the sessions and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(paths: tuple[str, ...], project: str, subject: str | None, dry_run: bool, as_json: bool) -> int:
    """Import recorded sessions of other agents into the library.

    PATH is a recording of Claude Code, Codex, Gemini CLI, Qwen Code, opencode, Copilot CLI, Kimi Code, pi,
    mini-swe-agent, SWE-agent or OpenHands, an exported Reverie log, or a directory that is searched for them. All are
    filed under this project, and count as recorded elsewhere: memories from them wait for your approval, and 'chat
    --continue' does not choose them. A session that is already in the library gets only the messages that are new,
    and the --subject by which 'export' and 'delete' find it. Exits with 2 if a recording could not be imported; all
    others still are.
    """
    if not os.path.isdir(project):
        raise InputError(f"--project {project} is not a directory")
    outcomes: list[ImportOutcome] = []
    failed: list[dict[str, str]] = []
    with opened_library() as library:
        recordings, slug = Recordings(library, dry_run=dry_run, subject=subject or ""), project_slug(Path(project))
        for path in tracked(listed_files(paths, failed), "importing"):
            try:
                for found in read_session(path):
                    outcomes.append(outcome_of(recordings, found, slug, path, dry_run))
            except ReverieError as error:
                failed.append({"path": str(path), "error": str(error)})
    index_imported(sum(one.status in (IMPORTED, EXTENDED) for one in outcomes))
    if as_json:
        emit_json(as_report(outcomes, failed, dry_run))
    else:
        draw(outcomes)
    for failure in failed:
        warn(failure["error"])
    return 2 if failed else 0


def index_imported(logs: int) -> None:
    """Add imported sessions to the search index now, with progress, so that the first search need not read them."""
    settings = load_settings()
    if not logs or not settings.switches.memory:
        return
    if settings.database is not None:
        with opened_storage(settings) as storage:
            if (words := words_of(storage)) is not None:
                index_logs(storage, words)
        return
    embedder = settings_embedder(settings)
    try:
        with (
            progressing("indexing for search", logs) as advance,
            SessionSearch(settings.home, progress=lambda done, total: advance(), embedder=embedder) as search,
        ):
            search.refresh()
    except ReverieError as error:
        warn(f"the sessions are indexed by the next search: {error}")


def outcome_of(
    recordings: Recordings, found: ImportedSession, project: str, path: Path, dry_run: bool
) -> ImportOutcome:
    """File one session under its project, or in a dry run only look; return the outcome."""
    there = recordings.named(found.session_id)
    try:
        key, result = recordings.file(found, project, path)
    except (SessionBusy, StorageConflict):
        if there is None:
            raise
        key, result = there, ""  # another process is importing the same session, or it is open
    status = PLANNED if dry_run and result in (ADDED, GROWN) else {ADDED: IMPORTED, GROWN: EXTENDED}.get(result, KNOWN)
    return ImportOutcome(
        status,
        session_of(key),
        key.split("/")[1],
        key,
        str(path),
        found.format,
        found.title,
        found.model,
        len(found.messages),
        dict(found.skipped),
        [f"line {one.line}: {one.reason}" for one in found.damage],
    )


def as_report(outcomes: list[ImportOutcome], failed: list[dict[str, str]], dry_run: bool) -> dict[str, Any]:
    """Return all outcomes, their counts and the failures as a dict for JSON."""
    counts = {status: sum(one.status == status for one in outcomes) for status in (IMPORTED, EXTENDED, PLANNED, KNOWN)}
    return {
        "dry_run": dry_run,
        "imported": counts[IMPORTED] + counts[PLANNED],
        "extended": counts[EXTENDED],
        "already_there": counts[KNOWN],
        "skipped_records": sum(sum(one.skipped.values()) for one in outcomes),
        "damaged_lines": sum(len(one.damage) for one in outcomes),
        "sessions": outcomes,
        "failed": failed,
    }


def draw(outcomes: list[ImportOutcome]) -> None:
    """Print one row per session, the records that were skipped, and the number of imported sessions."""
    if not outcomes:
        return
    columns = {
        "": [one.status for one in outcomes],
        "session": [one.session for one in outcomes],
        "project": [one.project for one in outcomes],
        "format": [one.format for one in outcomes],
        "messages": [f"{one.messages:,}" for one in outcomes],
        "title": [one.title for one in outcomes],
    }
    shown = fitted(columns, ("project", "format", "messages"), cut="title")
    headings = list(shown)
    right = [at for at, name in enumerate(headings) if name == "messages"]
    table(headings, list(zip(*shown.values(), strict=True)), right=right, cut=len(headings) - 1)
    for one in outcomes:
        if one.damage or (one.status != KNOWN and one.skipped):
            say(f"{one.session}: {skipped_text(one)}")
    done = sum(one.status in (IMPORTED, PLANNED) for one in outcomes)
    known, grown = (sum(one.status == status for one in outcomes) for status in (KNOWN, EXTENDED))
    verb = "would be imported" if any(one.status == PLANNED for one in outcomes) else "imported"
    rest = "".join(f", {count} {status}" for count, status in ((grown, EXTENDED), (known, KNOWN)) if count)
    say(f"{done} {verb}{rest}.")


def skipped_text(one: ImportOutcome) -> str:
    """Return one line: the skipped records counted by kind, the first damaged lines, and the number of others."""
    kinds: dict[str, int] = {}
    for reason, count in one.skipped.items():
        kind = reason.partition(":")[0]
        kinds[kind] = kinds.get(kind, 0) + count
    parts = [f"{count} x {kind}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1])]
    parts += one.damage[:NAMED]
    if len(one.damage) > NAMED:
        parts.append(counted(len(one.damage) - NAMED, "more damaged line"))
    return "skipped " + ", ".join(parts)
