"""``reverie search``: messages in all past sessions, found by their words."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ...errors import InputError
from ...events import Event, FellBack
from ...runtime.places.projects import project_slug
from ...runtime.search.sessions import Found, SessionSearch
from ...settings import load_settings
from ..output import emit_json, paint, say, warn

__all__ = ["command"]


@click.command(short_help="Find messages in past sessions.")
@click.argument("query")
@click.option("--project", metavar="DIR", help="Only the sessions of the project this directory belongs to.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=10, show_default=True, help="How many messages.")
@click.option("--json", "as_json", is_flag=True, help="Print what is found as JSON.")
def command(query: str, project: str | None, limit: int, as_json: bool) -> None:
    """Find messages in past sessions, the likeliest first, with no model.

    'reverie read SESSION HANDLE' opens a message that was found.
    """
    if not query.strip():
        raise InputError("say what to search for, in a few words")
    if project is not None and not os.path.isdir(project):
        raise InputError(f"--project {project} is not a directory")
    settings = load_settings()
    if not settings.switches.memory:
        raise InputError("search over past sessions is switched off; turn on switches.memory to use it")
    slug = None if project is None else project_slug(Path(project))
    with SessionSearch(settings.home, listener=told) as search:
        found = search.search(query, project=slug, limit=limit)
    if as_json:
        emit_json({"query": query, "messages": found})
    elif found:
        draw(found)
    else:
        say("Nothing found. Other words may do: names, identifiers, parts of a path.")


def told(event: Event) -> None:
    """Warn where the index had to be made anew or a log could not be read."""
    if isinstance(event, FellBack):
        warn(event.why)


def draw(found: list[Found]) -> None:
    """Print a message a paragraph: where it is and what it says."""
    for number, one in enumerate(found):
        when = one.time[:16].replace("T", " ")
        who = one.speaker or one.kind
        gap = "\n" if number else ""
        paint(
            [
                (f"{gap}{one.project}/{one.session}", "bold"),
                (f"  {when}  {who}  {one.handle}\n", "dim"),
                (f"  {one.snippet}\n", ""),
            ]
        )
