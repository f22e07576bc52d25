"""``reverie delete`` (also ``purge``): delete sessions and everything derived from them, with a receipt."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from ...conversation.log import parse_log
from ...errors import InputError, SessionBusy
from ...hosts.events import HOSTS
from ...hosts.queue import OWN, Queue
from ...hosts.word_cache import delete_word_caches
from ...ports import Storage
from ...runtime.deletion.remains import HomeSearched, sampled_texts, search_for_remains
from ...runtime.deletion.session import DeletionReceipt, SessionDeletion
from ...runtime.library import Library, agent_log
from ...runtime.places.projects import project_slug
from ...settings import Settings, load_settings
from ...values import fields_of
from ..output import confirmed, counted, emit_json, say, tracked, warn
from .recordings import opened_storage, slug_of

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
@click.option("--before", metavar="DATE", help="All sessions whose last entry is older, such as 2026-01-31.")
@click.option("--project", metavar="DIR", help="All sessions of the project that contains this directory.")
@click.option("--matching", metavar="TEXT", help="All sessions that contain this text, in any case of letters.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Count the files and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as JSON.")
def command(
    names: tuple[str, ...],
    before: str | None,
    project: str | None,
    matching: str | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Delete sessions and everything derived from them, and print a receipt without their content.

    This removes logs, also those of agents that a session started, stored results, notes, plans, inboxes, letters,
    queued jobs, ledger rows, search entries, typed lines, and the memories that came from them, with their history.
    SESSION may be an agent. Of several options, a session must fulfil all. The same command finishes a deletion that
    was interrupted. Open sessions stay, and the exit code is then 2. Afterwards all files of the home are searched for
    texts of the sessions. If a file contains one, the exit code is 1.
    """
    wanted = SessionFilter(before, project, matching)
    if bool(names) == wanted.is_set:
        raise InputError("name sessions, or select them by --before, --project or --matching, but not both")
    settings = load_settings()
    with opened_storage(settings) as storage:
        library = Library(storage, project=project_slug(os.getcwd()))
        keys = list(dict.fromkeys(library.find(name) for name in names)) if names else wanted.keys(library, storage)
        keys = list(dict.fromkeys(one for key in keys for one in (*library.recorded_agents(key), key)))
        deletion = SessionDeletion(settings, storage, [lambda all, dry: _forget_queued(settings, all, dry)])
        planned, busy = _run(deletion, keys, dry_run=True)
        if dry_run or not planned:
            return _report(planned, busy, None, dry_run=dry_run, as_json=as_json)
        if not yes and not _agreed(planned):
            warn("removed nothing")
            return 1
        texts = sampled_texts(storage, [one.key for one in planned])
        receipts, late = _run(deletion, [*texts], dry_run=False)
        searched = search_for_remains(settings.home, texts, receipts)
        return _report(receipts, [*busy, *late], searched, dry_run=False, as_json=as_json)


class SessionFilter:
    """The sessions that options select; a session must fulfil all that are given."""

    def __init__(self, before: str | None, project: str | None, matching: str | None) -> None:
        self._project = slug_of(project)
        self._before = None if before is None else _moment(before)
        forms = [matching, json.dumps(matching, ensure_ascii=False)[1:-1]] if matching else []
        self._texts = {form.casefold() for form in forms}
        self.is_set = before is not None or project is not None or bool(matching)

    def keys(self, library: Library, storage: Storage) -> list[str]:
        """Return the logs of the selected sessions, and of agents whose session is gone; this may block."""
        started = {key: [agent_log(agent) for agent in library.agents_of(key)] for key in library.all_keys()}
        inner = {log for logs in started.values() for log in logs}
        found: list[str] = []
        for key in [key for key in started if key not in inner]:
            logs = [key, *started[key]]
            if self._is_of_project(library, key) and self._is_old(storage, key) and self._contains(storage, logs):
                found.append(key)
        return found

    def _is_of_project(self, library: Library, key: str) -> bool:
        if self._project is None or key.startswith("projects/"):
            return self._project is None or key.split("/")[1] == self._project
        cwd = library.describe(key).cwd
        return bool(cwd) and project_slug(cwd) == self._project

    def _is_old(self, storage: Storage, key: str) -> bool:
        if self._before is None:
            return True
        times = [entry.at for entry in parse_log(storage.load(key) or b"").entries if entry.at]
        if not times:
            folder = key.removesuffix(".jsonl")
            stamps = storage.stamps(key.rpartition("/")[0])
            times = [one.changed_ns / 1e9 for one in stamps if one.key == key or one.key.startswith(f"{folder}/")]
        return bool(times) and max(times) < self._before

    def _contains(self, storage: Storage, logs: Sequence[str]) -> bool:
        if not self._texts:
            return True
        keys = [name for log in logs for name in (log, *storage.list(log.removesuffix(".jsonl")))]
        for key in keys:
            said = (storage.load(key) or b"").decode("utf-8", "replace").casefold()
            if any(text in said for text in self._texts):
                return True
        return False


def _moment(text: str) -> float:
    """Return an ISO date or time, in the local time zone if it names none, as seconds since 1970."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InputError(f"--before {text!r} is no date; give one such as 2026-01-31") from None


def _run(deletion: SessionDeletion, keys: Sequence[str], *, dry_run: bool) -> tuple[list[DeletionReceipt], list[str]]:
    """Delete these sessions, or count in a dry run; return the receipts, and the reasons of those that are open."""
    receipts: list[DeletionReceipt] = []
    busy: list[str] = []
    for key in tracked(keys, "counting" if dry_run else "deleting"):
        try:
            receipts.append(deletion.run(key, dry_run=dry_run))
        except SessionBusy as error:
            busy.append(str(error))
    return receipts, busy


def _forget_queued(settings: Settings, names: Sequence[str], dry_run: bool) -> int:
    if not dry_run:
        delete_word_caches(settings.home)
    return Queue(settings.home).forget(names, (*HOSTS, OWN), dry_run=dry_run)


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
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Print the receipt and the open sessions; return the exit code. Without ``searched`` nothing was removed."""
    if as_json:
        given = {"sessions": receipts, "total": _total(receipts), "open": busy, "searched": searched}
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
    """Return the counts that are not zero in words."""
    return ", ".join(counted(counts[name], noun) for name, noun in NOUNS.items() if counts[name]) or "nothing"
