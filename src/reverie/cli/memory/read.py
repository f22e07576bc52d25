"""``reverie memory list|show|search|lint|path``: commands that only read."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from ...errors import InputError
from ...memories.rules.taxonomy import TYPES, MemoryType
from ...memories.store.records import MemoryRecord
from ...memories.store.trust import LABELS, Trust
from ...values import picked
from ..options import number_option, query_of
from ..output import StyledCell, emit_json, listing, say, warn
from .project_store import as_head, opened

if TYPE_CHECKING:
    from ...runtime.memory.memory import Memory


@click.command("list", short_help="List the memories, newest first.")
@click.option("--type", "type_name", type=click.Choice(list(TYPES)), help="Only memories of this type.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_memories(type_name: MemoryType | None, as_json: bool) -> None:
    """List the memories, newest first."""
    memory = opened()
    heads = memory.list(type=type_name)
    if as_json:
        emit_json([as_head(head) for head in heads])
        return
    if not heads:
        say("no memories yet; 'reverie memory add' saves one")
        return
    rows = [
        (head.modified[:10], head.type, trust_cell(head.trust), head.file, _described(memory, head)) for head in heads
    ]
    listing(["modified", "type", "trust", "file", "description"], rows)


def _described(memory: Memory, one: MemoryRecord) -> str:
    by, expired = one.superseded_by, f"(expired on {one.expires[:10]}) " if memory.has_expired(one) else ""
    return f"(superseded by {by}) {one.description}" if by else f"{expired}{one.description}"


def trust_cell(trust: Trust) -> StyledCell:
    """Return a trust level as a table cell, red if unconfirmed."""
    return StyledCell(trust, "red" if trust == "unconfirmed" else "")


@click.command(short_help="Show a memory.")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show(name: str, as_json: bool) -> None:
    """Show a memory, by its file or its name, or by the start of one if no other starts so."""
    memories = opened()
    memory = _found(memories, name)
    if as_json:
        emit_json({**as_head(memory), "version": memory.version, "extra": dict(memory.extra), "body": memory.body})
        return
    say(f"{memory.name} ({memory.type or 'no type'}, {memory.file})")
    if memory.description:
        say(memory.description)
    if memory.superseded_by:
        say(f"superseded by {memory.superseded_by} since {memory.extra.get('ended', 'an unknown day')}; not recalled")
    elif memories.has_expired(memory):
        say(f"expired on {memory.expires[:10]}; not recalled")
    origin = f", from {', '.join(memory.source)}" if memory.source else ""
    say(f"{LABELS[memory.trust]}; changed {memory.modified[:10]}{origin}")
    say()
    say(memory.body.strip("\n"))


def _found(memory: Memory, name: str) -> MemoryRecord:
    """Return the memory of this file or name, or the only one that starts so; the error names near ones."""
    try:
        return memory.get(name)
    except InputError as error:
        wanted = name.strip().casefold()
        if not wanted:
            raise
        starts: dict[str, dict[str, None]] = {}
        for head in memory.list():
            for key in (head.file, head.name):
                starts.setdefault(key.casefold()[: len(wanted)], {})[head.file] = None
        files = list(starts.get(wanted, ()))
        if len(files) == 1:
            return memory.get(files[0])
        if files:
            listed = ", ".join(files[:5])
            raise InputError(
                f"{name[:100]!r} matches {len(files)} memories: {listed}; use one of these files"
            ) from None
        near = dict.fromkeys(file for start in get_close_matches(wanted, starts, n=3) for file in starts[start])
        if near:
            raise InputError(f"{error}; did you mean {', '.join(list(near)[:3])}?") from None
        raise


@click.command(short_help="Find memories by their text.")
@click.argument("query", nargs=-1, required=True)
@number_option("--limit", "Maximum number of memories.", 1, 100, default=10)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array, best match first.")
def search(query: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find memories by their words and, with an embedder, by their meaning, best match first."""
    wanted = query_of(query)
    memory = opened()
    found = memory.recall(wanted, limit=limit, everything=True)
    if memory.recall_problem:
        warn(memory.recall_problem)
    if as_json:
        emit_json([as_head(one) for one in found])
    elif found:
        rows = [(one.type, trust_cell(one.trust), one.file, _described(memory, one)) for one in found]
        listing(["type", "trust", "file", "description"], rows)
    elif memory.recalls_meaning and not memory.recall_problem:
        say("no matches; 'reverie memory list' lists all memories")
    else:
        say("no matches: without an embedder (setting embedder), a memory must contain a word of the query;")
        say("'reverie memory list' lists all memories")


@click.command(short_help="Check memories for problems.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def lint(as_json: bool) -> int:
    """Check memories and the index for problems; exit with 1 if there are any."""
    found = opened().lint()
    if as_json:
        emit_json([picked(one, "file problem") for one in found])
    else:
        for one in found:
            say(f"{one.file} {one.problem}")
        if not found:
            say("no problems")
    return 1 if found else 0


@click.command(short_help="Print the directory of the memories.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def path(as_json: bool) -> None:
    """Print the directory of the memories."""
    memory = opened()
    if as_json:
        emit_json({"path": str(memory.path)})
    else:
        say(str(memory.path))
