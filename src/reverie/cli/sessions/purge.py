"""``reverie purge``: delete a session and everything derived from it."""

from __future__ import annotations

import click

from .delete import remove

__all__ = ["command"]


@click.command(short_help="Delete a session and everything derived from it.")
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="List the files and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(session: str, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete a session and everything derived from it.

    This removes its log, stored results, notes and inbox, and the memories that name it as their source.
    """
    return remove(session, purge=True, yes=yes, dry_run=dry_run, as_json=as_json)
