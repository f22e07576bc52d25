"""``reverie purge``: a session goes with all that came from it."""

from __future__ import annotations

import click

from .delete import remove

__all__ = ["command"]


@click.command(short_help="Delete a session and all that came from it.")
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was removed as JSON.")
def command(session: str, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete a session and all that came from it.

    That is its log, stored results, notes, inbox, and the memories that name it as their source.
    """
    return remove(session, purge=True, yes=yes, dry_run=dry_run, as_json=as_json)
