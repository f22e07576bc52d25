"""``reverie delete``: a session's log goes; what belongs to it stays until it is purged."""

from __future__ import annotations

import sys
from typing import Any

import click

from ...errors import InputError, StorageError
from ...runtime.library import Removed
from ...runtime.search.sessions import SessionSearch
from ...runtime.session.ledger import LedgerStore
from ...settings import load_settings
from ..output import emit_json, printable, say, warn
from .recordings import opened_library

__all__ = ["command", "remove"]


@click.command(short_help="Delete a session's log.")
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was removed as JSON.")
def command(session: str, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete a session's log.

    Stored results, notes and memories made from it stay; 'reverie purge' removes those as well.
    """
    return remove(session, purge=False, yes=yes, dry_run=dry_run, as_json=as_json)


def remove(session: str, *, purge: bool, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Remove a session once the person agrees, say what went, and return the exit code."""
    with opened_library() as library:
        key = library.find(session)
        removed = library.remove(key, purge=purge, dry_run=True)
        if not dry_run:
            if not yes and not agreed(removed, purge):
                warn("nothing was removed")
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
    """Take a purged session's calls out of the ledger; one that cannot be read is said and stops nothing."""
    try:
        with LedgerStore(load_settings().home) as ledger:
            ledger.forget(session)
    except StorageError as error:
        warn(f"its calls are still in the ledger: {error}")


def forget_lines(key: str) -> None:
    """Take a removed session out of the search; one that cannot be opened is said and stops nothing."""
    home = load_settings().home
    if not (home / "search.sqlite").exists():
        return
    try:
        with SessionSearch(home) as search:
            search.forget(key)
    except StorageError as error:
        warn(f"its messages are still in the search: {error}")


def agreed(removed: Removed, purge: bool) -> bool:
    """Ask whether to go on; where nobody can answer, refuse."""
    what = (
        f"{removed.session} and {len(removed.keys) - 1 + len(removed.memories)} files more"
        if purge
        else (f"the log of {removed.session}")
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(f"nothing was removed: nobody can be asked here; --yes removes {what}")
    return click.confirm(f"Remove {printable(what)} for good?", err=True)


def as_report(removed: Removed, key: str, *, purge: bool, dry_run: bool) -> dict[str, Any]:
    """Return what went as plain values."""
    return {
        "session": removed.session,
        "key": key,
        "purge": purge,
        "dry_run": dry_run,
        "removed": removed.keys,
        "memories": removed.memories,
    }
