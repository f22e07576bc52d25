"""``reverie memory review``: memories that wait for the user's word."""

from __future__ import annotations

import sys

import click

from ...runtime.memory import Memory
from ...runtime.memory_results import Pending
from ..output import emit_json, paint, printable, say
from .opened import opened

__all__ = ["review"]

COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command(short_help="Accept or reject memories nobody has confirmed.")
@click.option("--accept", multiple=True, metavar="NAME", help="Confirm this one; may be given again.")
@click.option("--reject", multiple=True, metavar="NAME", help="Take this one back; may be given again.")
@click.option("--dry-run", is_flag=True, help="Show what waits and ask nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def review(accept: tuple[str, ...], reject: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Accept or reject memories that came from text nobody vouches for, each shown as a diff.

    What is rejected goes back to what it was when it could be trusted. On a terminal, asks about each.
    """
    memory = opened()
    if not dry_run:
        for name in accept:
            memory.confirm(name)
        for name in reject:
            memory.reject(name)
    waiting = memory.review()
    if as_json:
        pending = [
            {"file": one.file, "name": one.name, "source": list(one.source), "diff": one.diff} for one in waiting
        ]
        emit_json({"accepted": list(accept), "rejected": list(reject), "pending": pending, "dry_run": dry_run})
        return
    if not waiting:
        say("nothing waits to be confirmed")
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not (accept or reject or dry_run)
    for one in waiting:
        show(one)
        if asks:
            decide(memory, one)


def show(one: Pending) -> None:
    """Print an unconfirmed memory as a diff."""
    origin = f", from {', '.join(one.source)}" if one.source else ""
    say(f"{one.file}{origin}")
    paint((f"{line}\n", COLOURS.get(line[:1], "")) for line in one.diff.splitlines())
    say()


def decide(memory: Memory, one: Pending) -> None:
    """Ask about one memory and do what is said."""
    question = f"Is {printable(one.name)} right? Accept, reject or skip"
    answer = click.prompt(question, type=click.Choice(["a", "r", "s"]), default="s", err=True)
    if answer == "a":
        memory.confirm(one.file)
    elif answer == "r":
        memory.reject(one.file)
