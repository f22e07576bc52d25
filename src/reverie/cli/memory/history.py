"""``reverie memory log|blame|undo|rewind``: commands on the journal of changes."""

from __future__ import annotations

import click

from ...values import picked
from ..options import number_option
from ..output import emit_json, listing, say, warn
from .project_store import as_change, opened, print_change


@click.command(short_help="Show the history of changes.")
@click.argument("name", required=False)
@number_option("--limit", "Maximum number of changes.", 1, default=50)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def log(name: str | None, limit: int, as_json: bool) -> None:
    """Show the changes of one memory or of all, newest first: time, author, action, files and reason."""
    memory = opened()
    entries = memory.log(name)[:limit]
    for problem in memory.journal_problems():
        warn(f"{problem.file} {problem.problem}")
    if as_json:
        emit_json([as_change(entry) for entry in entries])
        return
    if not entries:
        say("no changes yet; 'reverie memory add' makes one")
        return
    rows = [
        (entry.id, entry.time[:19].replace("T", " "), entry.who, entry.act, ", ".join(entry.files[:3]), entry.why)
        for entry in entries
    ]
    listing(["change", "time (UTC)", "author", "action", "files", "reason"], rows)


@click.command(short_help="Show the author of each line of a memory.")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def blame(name: str, as_json: bool) -> None:
    """Show the change, date and author of each line of a memory."""
    lines = opened().blame(name)
    if as_json:
        emit_json([picked(one, "number text id time who why") for one in lines])
        return
    width = max((len(one.who) for one in lines), default=0)
    for one in lines:
        say(f"{one.id:>5} {one.time[:10]} {one.who:<{width}} | {one.text}")


@click.command(short_help="Undo changes.")
@click.argument("target", metavar="[N|CHANGE]", default="1")
@click.option("--dry-run", is_flag=True, help="Show the effect and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def undo(target: str, dry_run: bool, as_json: bool) -> None:
    """Undo the last change, the last N changes, or the one CHANGE with an id such as c12.

    To redo, undo the undo by its id.
    """
    entry = opened().undo(int(target) if target.isdecimal() else target, dry_run=dry_run)
    print_change(entry, dry_run=dry_run, as_json=as_json)


@click.command(short_help="Restore all memories to an earlier time.")
@click.argument("when")
@click.option("--dry-run", is_flag=True, help="Show the effect and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def rewind(when: str, dry_run: bool, as_json: bool) -> None:
    """Restore all memories to their state at a time such as 2026-11-15T14:30, or after a change such as c12."""
    print_change(opened().rewind(when, dry_run=dry_run), dry_run=dry_run, as_json=as_json)
