"""What all commands of ``reverie memory`` share: the store of the project that was named, and how changes are told."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click

from ...errors import InputError
from ...memories.store.journal import JournalEntry
from ...memories.store.records import MemoryRecord
from ...runtime.memory.memory import Memory
from ..output import emit_json, printable, say

__all__ = ["agreed", "as_change", "as_head", "given_text", "opened", "tell_change"]


def opened() -> Memory:
    """Open the memories of the project that was named."""
    return Memory.open(click.get_current_context().obj or ".")


def as_head(memory: MemoryRecord) -> dict[str, Any]:
    """Return a memory but for its text as plain values."""
    head = {
        "file": memory.file,
        "name": memory.name,
        "type": memory.type,
        "description": memory.description,
        "modified": memory.modified,
        "trust": memory.trust,
        "scope": memory.scope,
        "created": memory.created,
        "source": list(memory.source),
        "expires": memory.expires,
    }
    return {**head, "problem": memory.problem} if memory.problem else head


def as_change(entry: JournalEntry) -> dict[str, Any]:
    """Return a change but for the contents as plain values."""
    return {
        "id": entry.id,
        "time": entry.time,
        "who": entry.who,
        "why": entry.why,
        "act": entry.act,
        "files": entry.files,
        "changes": [{"file": one.file, "before": one.before, "after": one.after} for one in entry.changes],
        "source": entry.source,
        "undoes": entry.undoes,
    }


def tell_change(entry: JournalEntry | None, *, dry_run: bool, as_json: bool) -> None:
    """Say what a change did or would do."""
    if as_json:
        emit_json({"dry_run": dry_run, "change": as_change(entry) if entry is not None else None})
        return
    if entry is None:
        say("nothing to change")
        return
    for change in entry.changes:
        what = "remove" if change.after is None else "bring back" if change.before is None else "change"
        done = {"remove": "removed", "bring back": "brought back", "change": "changed"}[what]
        say(f"would {what} {change.file}" if dry_run else f"{done} {change.file}")
    if not dry_run:
        say(f"this was {entry.id}; 'reverie memory undo {entry.id}' takes it back")


def given_text(words: Iterable[str]) -> str:
    """Return a text given as words, or what stands on stdin where the one word is '-'."""
    text = " ".join(words)
    return sys.stdin.read() if text == "-" else text


def agreed(question: str, instead: str) -> bool:
    """Ask whether to go on; where nobody can answer, refuse."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(f"nothing was changed: nobody can be asked here; {instead}")
    return click.confirm(printable(question), err=True)
