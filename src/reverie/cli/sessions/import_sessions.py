"""``reverie import``: copy recorded sessions of other agents into the library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import click

from ...conversation.decisions import Cause, PrefixRendered, body_of
from ...conversation.entries import DECISION, META, Entry
from ...errors import InputError, ReverieError, SessionBusy, StorageConflict
from ...importers import ImportedSession, find_sessions, read_session
from ...runtime.library import Library
from ...runtime.places.projects import log_key, project_slug
from ...runtime.search.sessions import SessionSearch
from ...runtime.search.vectors import settings_embedder
from ...settings import load_settings
from ...values import record, replace
from ..output import console, counted, emit_json, progressing, say, table, tracked, warn
from .recordings import opened_library

IMPORTED, PLANNED, KNOWN = "imported", "would be imported", "already there"
NAMED = 5
WIDE = 110


@record
class ImportOutcome:
    """One recorded session, where it is stored, and whether it was imported, would be, or was there already."""

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
@click.option("--dry-run", is_flag=True, help="List the sessions and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(paths: tuple[str, ...], project: str, dry_run: bool, as_json: bool) -> int:
    """Import recorded sessions of other agents into the library.

    PATH is a recording of Claude Code, Codex, Gemini CLI, Qwen Code, opencode, pi, mini-swe-agent, SWE-agent or
    OpenHands, an exported Reverie log, or a directory that is searched for them. All are filed under this project, and
    count as recorded elsewhere: memories from them wait for your approval, and 'chat --continue' does not choose them.
    A session that is already in the library stays unchanged. Exits with 2 if a recording could not be imported; all
    others still are.
    """
    if not os.path.isdir(project):
        raise InputError(f"--project {project} is not a directory")
    outcomes: list[ImportOutcome] = []
    failed: list[dict[str, str]] = []
    with opened_library() as library:
        importer = SessionImporter(library, Path(project), dry_run)
        for path in tracked(listed(paths, failed), "importing"):
            try:
                for found in read_session(path):
                    outcomes.append(importer.store(found, path))
            except ReverieError as error:
                failed.append({"path": str(path), "error": str(error)})
    index_imported(sum(one.status == IMPORTED for one in outcomes))
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
    embedder = settings_embedder(settings)
    try:
        with (
            progressing("indexing for search", logs) as advance,
            SessionSearch(settings.home, progress=lambda done, total: advance(), embedder=embedder) as search,
        ):
            search.refresh()
    except ReverieError as error:
        warn(f"the sessions are indexed by the next search: {error}")


def listed(paths: tuple[str, ...], failed: list[dict[str, str]]) -> list[Path]:
    """Return the named files and all recordings below named directories; add empty directories to ``failed``."""
    files: dict[Path, None] = {}
    for name in paths:
        if not os.path.isdir(name):
            files[Path(name)] = None
            continue
        below = list(find_sessions(name))
        files.update(dict.fromkeys(below))
        if not below:
            readable = os.access(name, os.R_OK | os.X_OK)
            why = "it contains no recorded session" if readable else "no permission to read it"
            failed.append({"path": name, "error": f"{name}: {why}"})
    return list(files)


class SessionImporter:
    """Stores recorded sessions in the library, or in a dry run only reports the result."""

    def __init__(self, library: Library, project: Path, dry_run: bool) -> None:
        self._library = library
        self._project = project_slug(project)
        self._dry_run = dry_run
        self._keys = set(library.keys())

    def store(self, found: ImportedSession, path: Path) -> ImportOutcome:
        """Store one session under its project unless the library has it or in a dry run; return the outcome."""
        project = self._project
        session = storable(found.session_id)
        key = log_key(project, session)
        there = next((one for one in self._keys if one.rsplit("/", 1)[1] == key.rsplit("/", 1)[1]), None)
        if there is not None:
            key, project = there, there.split("/")[1]
        status = KNOWN if there is not None else PLANNED if self._dry_run else IMPORTED
        if status == IMPORTED:
            try:
                self._library.store(key, described(found, session))
            except (InputError, SessionBusy, StorageConflict):
                status = KNOWN  # another process is importing the same session
        self._keys.add(key)
        return ImportOutcome(
            status,
            session,
            project,
            key,
            str(path),
            found.format,
            found.title,
            found.model,
            len(found.messages),
            dict(found.skipped),
            [f"line {one.line}: {one.reason}" for one in found.damage],
        )


def storable(session: str) -> str:
    """Return a valid log name for a session id: 128 characters at most, without ``.jsonl`` and leading ``._-``."""
    return session.removesuffix(".jsonl").lstrip("._-")[:128] or "session"


def described(found: ImportedSession, session: str) -> list[Entry]:
    """Return the entries with the recorded system prompt, tools and cost added."""
    entries = list(found.entries)
    known: dict[str, Any] = {"system": found.system, "tools": found.tools, "cost_usd": found.cost_usd}
    recorded = {name: value for name, value in known.items() if value is not None}
    if recorded and entries and entries[0].kind == META and "recorded" not in entries[0].body:
        entries[0] = replace(entries[0], body={**entries[0].body, "recorded": recorded})
        if found.system is not None or found.tools is not None:
            cause = Cause("import", "as the recording has it")
            prefix = PrefixRendered(cause, found.model, found.system, found.tools or [])
            first = entries[0]
            uuid = str(uuid5(NAMESPACE_OID, f"{first.uuid}:prefix"))
            entries.insert(1, Entry(uuid, first.uuid, first.time, session, DECISION, body_of(prefix)))
    return entries


def as_report(outcomes: list[ImportOutcome], failed: list[dict[str, str]], dry_run: bool) -> dict[str, Any]:
    """Return all outcomes, their counts and the failures as a dict for JSON."""
    counts = {status: sum(one.status == status for one in outcomes) for status in (IMPORTED, PLANNED, KNOWN)}
    return {
        "dry_run": dry_run,
        "imported": counts[IMPORTED] + counts[PLANNED],
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
    if console().width < WIDE:
        short = [(one.status, one.session, one.title) for one in outcomes]
        table(["", "session", "title"], short, cut=2)
    else:
        rows = [(one.status, one.session, one.project, one.format, f"{one.messages:,}", one.title) for one in outcomes]
        table(["", "session", "project", "format", "messages", "title"], rows, right=(4,), cut=5)
    for one in outcomes:
        if one.status != KNOWN and (one.skipped or one.damage):
            say(f"{one.session}: {skipped_text(one)}")
    done = sum(one.status in (IMPORTED, PLANNED) for one in outcomes)
    known = sum(one.status == KNOWN for one in outcomes)
    verb = "would be imported" if any(one.status == PLANNED for one in outcomes) else "imported"
    say(f"{done} {verb}" + (f", {known} already there" if known else "") + ".")


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
