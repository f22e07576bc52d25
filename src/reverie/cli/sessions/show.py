"""``reverie show``: print a session as readable text, or as the model sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from ...conversation.entries import encode_entry
from ...conversation.reads import cleared_results
from ...conversation.view import View
from ...conversation.wire.request import CONTINUE, build_request
from ...importers import ImportedSession
from ...values import picked
from ..output import counted, emit_json, paint, say, warn
from .recordings import recordings, session_argument
from .transcript import of_entries, of_messages


@click.command()
@session_argument("SESSION|FILE")
@click.option("--view", "as_view", is_flag=True, help="Show the messages the model sees now, not the whole log.")
@click.option("--raw", is_flag=True, help="Print every entry, or with --view every message, as one line of JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, as_view: bool, raw: bool, as_json: bool) -> None:
    """Show a session as readable text.

    Tool inputs and results are shortened; each decision of a layer is one dim line, except those that only
    record a reply or a result (--raw has them). SESSION|FILE is a session in the library or a recording in any format
    that 'reverie import' reads.
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
        paint(view_pieces(one) if as_view else of_entries(one.entries))
        for damage in one.damage:
            warn(f"{one.session_id}: skipped line {damage.line}: {damage.reason}")


def view_pieces(recording: ImportedSession) -> Iterator[tuple[str, str]]:
    """Yield (text, style) pieces of the view, with a line in place of each result that the provider left out."""
    view = View().fold_all(recording.entries)
    cleared = cleared_results(view)
    messages = build_request(view)["messages"]
    yield from of_messages(messages, cleared)
    if view.final is not None and view.final.role == "assistant" and messages[-1]["content"] == CONTINUE:
        yield f"\nReverie adds the last message, {CONTINUE!r}: a request ends with a message of the user.\n", "dim"
    if cleared:
        results = counted(len(cleared), "result")
        yield f"\nThe provider cleared {results}: {view.token_count.cleared_tokens:,} tokens, not billed.\n", "dim"


def heading(recording: ImportedSession) -> list[tuple[str, str]]:
    """Return (text, style) pieces: a line with the title, and one with the name, format, model and directory."""
    about = " · ".join(filter(None, (recording.session_id, recording.format, recording.model, recording.cwd)))
    return [(f"{recording.title or recording.session_id}\n", "bold"), (f"{about}\n", "dim")]


def print_raw(recording: ImportedSession, as_view: bool) -> None:
    """Print one line of JSON per entry, or with ``as_view`` per message that the next request would contain."""
    if as_view:
        for message in build_request(View().fold_all(recording.entries))["messages"]:
            say(json.dumps(message, ensure_ascii=False, default=str))
        return
    for entry in recording.entries:
        say(encode_entry(entry).decode())


def as_report(recording: ImportedSession, as_view: bool) -> dict[str, Any]:
    """Return a session as a dict for JSON: its entries, or with ``as_view`` its token count and next request."""
    report: dict[str, Any] = {
        "session": recording.session_id,
        **picked(recording, "format title model cwd skipped damage"),
    }
    if not as_view:
        return {**report, "entries": [msgspec.json.decode(encode_entry(entry)) for entry in recording.entries]}
    view = View().fold_all(recording.entries)
    cleared = {"tokens": view.token_count.cleared_tokens, "handles": sorted(cleared_results(view))}
    return {
        **report,
        "count": view.token_count.tokens,
        "cleared_by_provider": cleared,
        "request": build_request(view),
    }
