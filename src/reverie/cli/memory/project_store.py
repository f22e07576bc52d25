"""Shared by the commands of ``reverie memory``: open the project's memories and print changes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click

from ...memories.store.journal import JournalEntry
from ...memories.store.records import MemoryRecord
from ...runtime.memory.memory import Memory
from ...values import picked
from ..output import confirmed, emit_json, say


def opened() -> Memory:
    """Open the memories of the project given by --project."""
    return Memory.open(click.get_current_context().obj or ".")


def as_head(memory: MemoryRecord) -> dict[str, Any]:
    """Return a memory without its text as a dict for JSON."""
    head = picked(memory, "file name type description modified trust scope created source expires")
    more = {"problem": memory.problem, "superseded_by": memory.superseded_by}
    return {**head, **{key: value for key, value in more.items() if value}}


def as_change(entry: JournalEntry) -> dict[str, Any]:
    """Return a journal entry as a dict for JSON, with each file's hashes before and after but no contents."""
    changes = [picked(one, "file before after") for one in entry.changes]
    return {**picked(entry, "id time who why act files"), "changes": changes, **picked(entry, "source undoes")}


def print_change(entry: JournalEntry | None, *, dry_run: bool, as_json: bool) -> None:
    """Print the files that a change modified, or in a dry run would modify, and its id; None means no change."""
    if as_json:
        emit_json({"dry_run": dry_run, "change": as_change(entry) if entry is not None else None})
        return
    if entry is None:
        say("nothing to change")
        return
    for change in entry.changes:
        verb = "remove" if change.after is None else "restore" if change.before is None else "change"
        say(f"would {verb} {change.file}" if dry_run else f"{verb.removesuffix('e')}ed {change.file}")
    if not dry_run:
        say(f"recorded as {entry.id}; 'reverie memory undo {entry.id}' undoes this")


def given_text(words: Iterable[str]) -> str:
    """Return the words joined by spaces, or the text on stdin if the only word is '-'."""
    text = " ".join(words)
    return sys.stdin.read() if text == "-" else text


def agreed(question: str, instead: str) -> bool:
    """Ask a yes/no question and return the answer; without a terminal, raise InputError ending in ``instead``."""
    return confirmed(question, f"changed nothing: confirmation needs a terminal; {instead}")
