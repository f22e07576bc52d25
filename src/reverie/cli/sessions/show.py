"""``reverie show``: a session as a person reads it, or as the model sees it."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from ...conversation.entries import encode_entry
from ...conversation.view import View
from ...conversation.wire.request import build_request
from ..output import emit_json, paint, say, warn
from .recordings import Recording, recordings
from .transcript import of_entries, of_messages

__all__ = ["command"]


@click.command(short_help="Show a session as a person reads it.")
@click.argument("session", metavar="SESSION|FILE")
@click.option("--view", "as_view", is_flag=True, help="What the model is shown now, not all that was said.")
@click.option("--raw", is_flag=True, help="Every entry, or with --view every message, whole, a line of JSON each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, as_view: bool, raw: bool, as_json: bool) -> None:
    """Show a session as a person reads it.

    Tool inputs and results are shortened; decisions of the layers are single dim lines. SESSION|FILE is a session of
    the library or a recording of any format that can be imported.
    """
    found = recordings(session)
    if as_json:
        first, *others = [as_report(one, as_view) for one in found]
        emit_json({**first, "others": others} if others else first)
        return
    for one in found:
        if raw:
            print_raw(one, as_view)
            continue
        paint(heading(one))
        paint(of_messages(sent(one)) if as_view else of_entries(one.entries))
        for damage in one.damage:
            warn(f"{one.session}: line {damage.line} is left out: {damage.reason}")


def sent(recording: Recording) -> list[dict[str, Any]]:
    """Return the messages of the next request."""
    return build_request(View().fold_all(recording.entries))["messages"]


def heading(recording: Recording) -> list[tuple[str, str]]:
    """Return the lines that say which session this is."""
    about = " · ".join(part for part in (recording.session, recording.format, recording.model, recording.cwd) if part)
    return [(f"{recording.title or recording.session}\n", "bold"), (f"{about}\n", "dim")]


def print_raw(recording: Recording, as_view: bool) -> None:
    """Print a line of JSON an entry, or a message."""
    if as_view:
        for message in sent(recording):
            say(json.dumps(message, ensure_ascii=False, default=str))
        return
    for entry in recording.entries:
        say(encode_entry(entry).decode())


def as_report(recording: Recording, as_view: bool) -> dict[str, Any]:
    """Return a session as plain values."""
    report: dict[str, Any] = {
        "session": recording.session,
        "format": recording.format,
        "title": recording.title,
        "model": recording.model,
        "cwd": recording.cwd,
        "skipped": dict(recording.skipped),
        "damage": recording.damage,
    }
    if not as_view:
        return {**report, "entries": [msgspec.json.decode(encode_entry(entry)) for entry in recording.entries]}
    view = View().fold_all(recording.entries)
    return {**report, "count": view.counted.tokens, "request": build_request(view)}
