"""``reverie memory log|blame|undo|rewind``."""

from __future__ import annotations

import click

from ..output import emit_json, say, table
from .project_store import as_change, opened, tell_change

__all__ = ["blame", "log", "rewind", "undo"]


@click.command(short_help="Show what was changed, by whom and why.")
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many changes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def log(name: str | None, limit: int, as_json: bool) -> None:
    """Show what was changed, by whom and why, newest first; of one memory or of all."""
    entries = opened().log(name)[:limit]
    if as_json:
        emit_json([as_change(entry) for entry in entries])
        return
    rows = [
        (entry.id, entry.time[:19].replace("T", " "), entry.who, entry.act, ", ".join(entry.files[:3]), entry.why)
        for entry in entries
    ]
    table(["change", "time (UTC)", "who", "what", "files", "why"], rows, cut=5)


@click.command(short_help="Show who brought each line of a memory.")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def blame(name: str, as_json: bool) -> None:
    """Show who brought each line of a memory, when and why."""
    lines = opened().blame(name)
    if as_json:
        keys = ("number", "text", "id", "time", "who", "why")
        emit_json([{key: getattr(one, key) for key in keys} for one in lines])
        return
    width = max((len(one.who) for one in lines), default=0)
    for one in lines:
        say(f"{one.id:>5} {one.time[:10]} {one.who:<{width}} | {one.text}")


@click.command(short_help="Take changes back.")
@click.argument("what", default="1")
@click.option("--dry-run", is_flag=True, help="Say what would change and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def undo(what: str, dry_run: bool, as_json: bool) -> None:
    """Take back the last change, the last so many, or the one with an id such as c12.

    Undoing an undo by its id brings back what it took.
    """
    entry = opened().undo(int(what) if what.isdecimal() else what, dry_run=dry_run)
    tell_change(entry, dry_run=dry_run, as_json=as_json)


@click.command(short_help="Bring all memories to what they were at a time.")
@click.argument("when")
@click.option("--dry-run", is_flag=True, help="Say what would change and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def rewind(when: str, dry_run: bool, as_json: bool) -> None:
    """Bring all memories to what they were at a time such as 2026-11-15T14:30, or after a change such as c12."""
    tell_change(opened().rewind(when, dry_run=dry_run), dry_run=dry_run, as_json=as_json)
