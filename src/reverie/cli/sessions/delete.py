"""``reverie delete``: delete sessions and everything derived from them, with a receipt."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

import click

from ...errors import InputError, SessionBusy
from ...hosts.events import HOSTS
from ...hosts.queue import OWN, Queue
from ...hosts.word_cache import delete_word_caches
from ...runtime.deletion.remains import HomeSearched, sampled_texts, search_for_remains
from ...runtime.deletion.selection import SessionFilter, sessions_by_rewind
from ...runtime.deletion.session import DeletionReceipt, SessionDeletion, retained_since
from ...runtime.library import Library
from ...runtime.places.projects import project_slug, session_of
from ...settings import Settings, load_settings
from ...values import fields_of
from ..options import date_option, subject_option
from ..output import confirmed, counted, emit_json, say, tracked, warn
from .recordings import opened_storage, slug_of

_WORKER_SECONDS = 10.0
"""How long a deletion waits for a background worker that uses the session."""
NOUNS = {
    "files": "file",
    "memories": "memory",
    "calls": "ledger row",
    "typed": "typed line",
    "letters": "letter",
    "others": "queued file",
}


@click.command()
@click.argument("names", nargs=-1, metavar="[SESSION]...")
@date_option("--before", "All sessions whose last entry is older, such as 2026-01-31.")
@click.option("--project", metavar="DIR", help="All sessions of the project that contains this directory.")
@click.option("--matching", metavar="TEXT", help="All sessions that contain this text, in any case of letters.")
@subject_option("All sessions about a person, named by chat --subject, import --subject or Session.open.")
@click.option("--expired", is_flag=True, help="All sessions older than the setting retention_days.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Count the files and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as JSON.")
def command(
    names: tuple[str, ...],
    before: datetime | None,
    project: str | None,
    matching: str | None,
    subject: str | None,
    expired: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Delete sessions and everything derived from them, and print a receipt without their content.

    This removes logs, also those of agents that a session started, stored results, notes, plans, inboxes, letters,
    queued jobs, ledger rows, search entries, typed lines, and the memories that came from them, with their history.
    SESSION may be an agent. Of several options, a session must fulfil all. The same command finishes a deletion that
    was interrupted. Open sessions stay, and the exit code is then 2. Afterwards all files of the home, and the database
    if there is one, are searched for texts of the sessions. If one is found, the exit code is 1. A database also gets
    an audit row before each deletion. A session that shares messages by a rewind stays, and is named.
    """
    settings = load_settings()
    with opened_storage(settings) as storage:
        until = before.timestamp() if before is not None else retained_since(settings, storage) if expired else None
        wanted = SessionFilter(until, slug_of(project), matching or "", subject or "")
        if bool(names) == wanted.is_set:
            raise InputError(
                "name sessions, or select them by --before, --project, --matching, --subject or --expired, but not both"
            )
        library = Library(storage, project=project_slug(os.getcwd()))
        keys = list(dict.fromkeys(library.find(name) for name in names)) if names else wanted.keys(library, storage)
        keys = list(dict.fromkeys(one for key in keys for one in (*library.recorded_agents(key), key)))
        why = "subject" if subject else "expired" if expired else "command"
        deletion = SessionDeletion(settings, storage, [lambda all, dry: _forget_queued(settings, all, dry)], why=why)
        planned, busy = _run(deletion, keys, settings, dry_run=True)
        copies = sessions_by_rewind(library, storage, keys)
        if dry_run or not planned:
            return _report(planned, busy, None, copies, dry_run=dry_run, as_json=as_json)
        if not yes and not _agreed(planned):
            warn("removed nothing")
            return 1
        texts = sampled_texts(storage, [one.key for one in planned])
        with deletion:
            receipts, late = _run(deletion, [*texts], settings, dry_run=False)
        searched = search_for_remains(settings.home, storage, texts, receipts)
        return _report(receipts, [*busy, *late], searched, copies, dry_run=False, as_json=as_json)


def _run(
    deletion: SessionDeletion, keys: Sequence[str], settings: Settings, *, dry_run: bool
) -> tuple[list[DeletionReceipt], list[str]]:
    """Delete these sessions, or count in a dry run; return the receipts, and the reasons of those that are in use."""
    receipts: list[DeletionReceipt] = []
    busy: list[str] = []
    for key in tracked(keys, "counting" if dry_run else "deleting"):
        session = session_of(key)
        if not dry_run and not _worker_is_done(settings, key):
            busy.append(f"{session} stays: a background worker saves memories from it now; try again in a minute")
            continue
        try:
            receipts.append(deletion.run(key, dry_run=dry_run))
        except SessionBusy as error:
            busy.append(str(error))
    return receipts, busy


def _worker_is_done(settings: Settings, key: str) -> bool:
    """Wait a few seconds for a worker that runs a job of a session; return whether none does."""
    until = time.monotonic() + _WORKER_SECONDS
    while Queue(settings.home).is_at(key, (*HOSTS, OWN)):
        if time.monotonic() >= until:
            return False
        time.sleep(0.1)
    return True


def _forget_queued(settings: Settings, logs: Sequence[str], dry_run: bool) -> int:
    if not dry_run:
        delete_word_caches(settings.home)
    queued = Queue(settings.home).forget(logs, (*HOSTS, OWN), dry_run=dry_run)
    if settings.database is not None:
        from ...runtime.jobs.queue import JobQueue

        with closing(JobQueue(settings.database, settings.tenant or "")) as jobs:
            queued += jobs.forget(logs, dry_run=dry_run)
    return queued


def _agreed(planned: Sequence[DeletionReceipt]) -> bool:
    """Ask the user to confirm the removal and return the answer; without a terminal raise InputError."""
    what = planned[0].session if len(planned) == 1 else counted(len(planned), "session")
    target = f"{what} ({_counts(_total(planned))})"
    refusal = f"removed nothing: confirmation needs a terminal; --yes removes {target}"
    return confirmed(f"Remove {target} permanently?", refusal)


def _report(
    receipts: Sequence[DeletionReceipt],
    busy: Sequence[str],
    searched: HomeSearched | None,
    copies: Sequence[str],
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Print the receipt and the open sessions; return the exit code. Without ``searched`` nothing was removed."""
    if as_json:
        given = {"sessions": receipts, "total": _total(receipts), "open": busy, "searched": searched, "copies": copies}
        emit_json({"dry_run": dry_run, **given})
    elif not receipts and not busy:
        say("removed nothing: no session matches")
    else:
        verb = "would remove" if dry_run else "removed"
        for one in receipts:
            agents = f", {counted(len(one.agents), 'agent')}" if one.agents else ""
            say(f"{verb} {one.session}: {_counts({name: getattr(one, name) for name in NOUNS})}{agents}")
        if len(receipts) != 1:
            say(f"{verb} {counted(len(receipts), 'session')}.")
        if searched is not None:
            say(_proof(searched))
    for name in searched.left if searched is not None else ():
        warn(f"still holds text of it: {name}")
    if copies:
        warn(f"a rewind copied messages, and these sessions stay with them: {', '.join(copies)}")
    for why in busy:
        warn(why)
    return 1 if searched is not None and searched.left else 2 if busy else 0


def _proof(searched: HomeSearched) -> str:
    """Return the result of the search over the home in words."""
    result = f"{counted(len(searched.left), 'file')} left with text of it" if searched.left else "nothing of it is left"
    if not searched.texts:
        result = "it had no long text of its own to look for"
    return f"searched {counted(searched.files, 'file')} for {counted(searched.texts, 'text')}: {result}"


def _total(receipts: Sequence[DeletionReceipt]) -> dict[str, Any]:
    return {name: sum(getattr(one, name) for one in receipts) for name in fields_of(DeletionReceipt) if name in NOUNS}


def _counts(counts: dict[str, Any]) -> str:
    return ", ".join(counted(counts[name], noun) for name, noun in NOUNS.items() if counts[name]) or "nothing"
