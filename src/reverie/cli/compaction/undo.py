"""``reverie compact --undo``: undo the last compaction of a session."""

from __future__ import annotations

from typing import Any

from ...conversation.view import View
from ...errors import SessionBusy, SessionError
from ...settings import Settings
from ...values import fields_of, object_of
from ..output import emit_json, say, warn
from .target_session import opened_session, queue_command


async def undo_and_print(name: str, settings: Settings, dry_run: bool, as_json: bool) -> int:
    """Undo the last compaction of a session, or only show the effect; return 0."""
    result = await undo_last(name, settings, dry_run=dry_run)
    if as_json:
        emit_json(result)
    elif "queued" in result:
        say(f"{result['session']} is open in another process, which undoes the compaction at its next turn")
    else:
        say(f"{'would undo' if dry_run else 'undone'}: {result['whose']}; {result['text']}")
        if result["tokens_after"] > result["window"]:
            size = f"{result['tokens_after']:,} tokens, more than the window of {result['window']:,}"
            verb = "would have" if dry_run else "now has"
            warn(f"the view {verb} {size}; 'reverie compact {result['session']}' compacts it again")
    return 0


async def undo_last(name: str, settings: Settings, *, dry_run: bool = False) -> dict[str, Any]:
    """Undo the last compaction of a session and return the effect, for JSON.

    If another process has the session open, queue the undo for it; the result then has the key ``queued``.
    """
    try:
        async with opened_session(name, settings, dry_run=dry_run) as session:
            price, whose, window = await session.undo_price(), _whose(session.view), session.thresholds.window
            undone = None if dry_run else str((await session.undo()).body["compaction"])
            figures = {name: getattr(price, name) for name in fields_of(type(price))} | {"text": price.text}
            return {"session": session.name, "undone": undone, **figures, "whose": whose, "window": window}
    except SessionBusy:
        session, queued = queue_command(name, settings, "undo", _last_compaction, sender="reverie compact --undo")
        return {"session": session, "undone": None, "queued": queued}


def _whose(view: View) -> str:
    """Return whose compaction the next undo concerns: one of Reverie, or of the program that recorded the session."""
    last = _last_compaction(view)["compaction"]
    entry = next((item.entry for item in view.items_in_view() if item.uuid == last), None)
    if entry is None or not entry.imported:
        return "a compaction by Reverie"
    recorder = object_of(view.facts.meta.get("source")).get("format") or "the program that recorded the session"
    return f"a compaction by {recorder}, before the import"


def _last_compaction(view: View) -> dict[str, str]:
    active = [one for one in view.facts.compactions if one not in view.facts.undone]
    if not active:
        raise SessionError("this session has no compaction to undo")
    return {"compaction": active[-1]}
