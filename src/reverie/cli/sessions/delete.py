"""``reverie delete``: delete a session's log; its stored results, notes and memories stay until a purge."""

from __future__ import annotations

from typing import Any

import click

from ...errors import StorageError
from ...runtime.library import RemovedSession
from ...runtime.search.sessions import SessionSearch
from ...runtime.session.ledger import LedgerStore
from ...settings import load_settings
from ..output import confirmed, counted, emit_json, say, warn
from .recordings import opened_library

__all__ = ["command", "remove"]


@click.command(short_help="Delete a session's log.")
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="List the files and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(session: str, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete a session's log.

    Its stored results, notes and memories stay; 'reverie purge' removes those as well.
    """
    return remove(session, purge=False, yes=yes, dry_run=dry_run, as_json=as_json)


def remove(session: str, *, purge: bool, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Ask for confirmation unless ``yes``, remove a session and its search entries, and print the removed files.

    Return the exit code: 0, or 1 if the user refused. ``purge`` removes derived files and ledger rows as well.
    """
    with opened_library() as library:
        key = library.find(session)
        removed = library.remove(key, purge=purge, dry_run=True)
        if not dry_run:
            if not yes and not agreed(removed, purge):
                warn("removed nothing")
                return 1
            removed = library.remove(key, purge=purge)
            forget_lines(key)
            if purge:
                forget_calls(removed.session)
    if as_json:
        emit_json(as_report(removed, key, purge=purge, dry_run=dry_run))
        return 0
    verb = "would remove" if dry_run else "removed"
    for name in [*removed.keys, *removed.memories]:
        say(f"{verb} {name}")
    return 0


def forget_calls(session: str) -> None:
    """Remove a session's calls from the ledger, and only warn if the ledger cannot be opened."""
    try:
        with LedgerStore(load_settings().home) as ledger:
            ledger.forget(session)
    except StorageError as error:
        warn(f"the session's calls are still in the ledger: {error}")


def forget_lines(key: str) -> None:
    """Remove a session's messages from the search index, and only warn if the index cannot be opened."""
    home = load_settings().home
    if not (home / "search.sqlite").exists():
        return
    try:
        with SessionSearch(home) as search:
            search.forget(key)
    except StorageError as error:
        warn(f"the session's messages are still in the search index: {error}")


def agreed(removed: RemovedSession, purge: bool) -> bool:
    """Ask the user to confirm the removal and return the answer; without a terminal raise InputError."""
    others = counted(len(removed.keys) - 1 + len(removed.memories), "more file")
    target = f"{removed.session} and {others}" if purge else f"the log of {removed.session}"
    refusal = f"removed nothing: confirmation needs a terminal; --yes removes {target}"
    return confirmed(f"Remove {target} permanently?", refusal)


def as_report(removed: RemovedSession, key: str, *, purge: bool, dry_run: bool) -> dict[str, Any]:
    """Return the removed files as a dict for JSON."""
    return {
        "session": removed.session,
        "key": key,
        "purge": purge,
        "dry_run": dry_run,
        "removed": removed.keys,
        "memories": removed.memories,
    }
