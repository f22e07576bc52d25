"""``reverie sessions``: what is in the library, newest first."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import click

from ...conversation.entries import seconds
from ...errors import InputError, ReverieError
from ...runtime.library import Shelved
from ...runtime.places.projects import project_slug
from ..output import console, emit_json, say, size, table, tracked, warn
from .recordings import opened_library

__all__ = ["command"]

WIDE: Final = 110
RANDOM_NAME: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-")


@click.command(short_help="List the sessions of the library.")
@click.option("--project", metavar="DIR", help="Only the sessions of the project this directory belongs to.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(project: str | None, as_json: bool) -> int:
    """List the sessions of the library, the one last touched first."""
    if project is not None and not os.path.isdir(project):
        raise InputError(f"--project {project} is not a directory")
    wanted = None if project is None else project_slug(Path(project))
    found: list[Shelved] = []
    unreadable: list[dict[str, str]] = []
    with opened_library() as library:
        keys = [key for key in list(library.keys()) if wanted is None or key.split("/")[1] == wanted]
        for key in tracked(keys, "reading"):
            try:
                found.append(library.shelved(key))
            except ReverieError as error:
                unreadable.append({"key": key, "error": str(error)})
    found.sort(key=lambda one: (-seconds(one.touched), one.key))
    if as_json:
        emit_json({"sessions": found, "unreadable": unreadable})
    elif found:
        draw(found)
    elif not unreadable:
        where = "" if project is None else " in this project"
        say(f"No sessions{where} yet. 'reverie import PATH' brings in recordings of other agents.")
    for one in unreadable:
        warn(one["error"])
    return 2 if unreadable else 0


def draw(found: list[Shelved]) -> None:
    """Print a row a session; on a narrow screen only what tells sessions apart."""
    screen = console()
    short = screen.is_terminal
    narrow = short and screen.width < WIDE
    columns = {
        "session": [shown_name(one.session, found) if short else one.session for one in found],
        "title": [one.title for one in found],
        "project": [one.project for one in found],
        "model": [one.model.split("/")[-1] if short else one.model for one in found],
        "messages": [f"{one.messages:,}" for one in found],
        "size": [size(one.bytes) for one in found],
        "touched": [one.touched[: 10 if narrow else 16].replace("T", " ") for one in found],
        "damage": [f"{one.damaged} lines" if one.damaged else "" for one in found],
    }
    dropped = {"project", "model", "size"} if narrow else set[str]()
    if not any(columns["damage"]):
        dropped.add("damage")
    headings = [name for name in columns if name not in dropped]
    rows = list(zip(*(columns[name] for name in headings), strict=True))
    table(headings, rows, right=[at for at, name in enumerate(headings) if name in ("messages", "size")], cut=1)


def shown_name(name: str, found: list[Shelved]) -> str:
    """Return the start of a long random name if that is enough to find the session by."""
    start = name[:8]
    return start if RANDOM_NAME.match(name) and sum(one.session.startswith(start) for one in found) == 1 else name
