"""``reverie sessions``: list the sessions in the library, last changed first."""

from __future__ import annotations

import re
from typing import Final

import click

from ...conversation.entries import seconds
from ...errors import ReverieError
from ...runtime.library import SessionListing
from ..output import console, counted, emit_json, fitted, is_fitted, say, size, table, tracked, warn
from .recordings import opened_library, slug_of

WIDE: Final = 110
RANDOM_NAME: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-")


@click.command()
@click.option("--project", metavar="DIR", help="Only sessions of the project that contains this directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(project: str | None, as_json: bool) -> int:
    """List the sessions in the library, last changed first."""
    wanted = slug_of(project)
    found: list[SessionListing] = []
    unreadable: list[dict[str, str]] = []
    with opened_library() as library:
        keys = [key for key in list(library.keys()) if wanted is None or key.split("/")[1] == wanted]
        for key in tracked(keys, "reading"):
            try:
                found.append(library.describe(key))
            except ReverieError as error:
                unreadable.append({"key": key, "error": str(error)})
    found.sort(key=lambda one: (-seconds(one.touched), one.key))
    if as_json:
        emit_json({"sessions": found, "unreadable": unreadable})
    elif found:
        draw(found)
    elif not unreadable:
        where = "" if project is None else " in this project"
        say(f"No sessions{where} yet. 'reverie import PATH' adds recordings of other agents.")
    for one in unreadable:
        warn(one["error"])
    return 2 if unreadable else 0


def draw(found: list[SessionListing]) -> None:
    """Print one row per session, with fewer columns on a narrow screen."""
    short = is_fitted()
    narrow = console().width < WIDE
    columns = {
        "session": [shown_name(one.session, found) if short else one.session for one in found],
        "title": [one.title for one in found],
        "project": [one.project for one in found],
        "model": [one.model.split("/")[-1] if short else one.model for one in found],
        "messages": [f"{one.messages:,}" for one in found],
        "size": [size(one.bytes) for one in found],
        "changed": [one.touched[: 10 if narrow else 16].replace("T", " ") for one in found],
        "damage": [counted(one.damaged, "line") if one.damaged else "" for one in found],
    }
    dropped = {"project", "model", "size"} if narrow else set[str]()
    if not any(columns["damage"]):
        dropped.add("damage")
    kept = {name: cells for name, cells in columns.items() if name not in dropped}
    shown = fitted(kept, ("project", "model", "size"), cut="title")
    right = [at for at, name in enumerate(shown) if name in ("messages", "size")]
    table(list(shown), list(zip(*shown.values(), strict=True)), right=right, cut=1)


def shown_name(name: str, found: list[SessionListing]) -> str:
    """Return the first 8 characters of a random name if they are unique, else the full name."""
    start = name[:8]
    return start if RANDOM_NAME.match(name) and sum(one.session.startswith(start) for one in found) == 1 else name
