"""``reverie compact --undo``: undo the last compaction of a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import click

from ...conversation.view import View
from ...errors import SessionBusy, SessionError
from ...settings import Settings
from ...values import fields_of, object_of
from ..output import confirmed, emit_json, say, warn
from .target_session import opened_session, queue_command

OURS: Final = "a compaction by Reverie"
REFUSAL: Final = (
    "undid nothing: confirmation needs a terminal; --yes undoes it without asking, --dry-run shows the effect"
)


async def undo_and_print(name: str, settings: Settings, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Undo the last compaction of a session, or only show the effect; exit with 1 if the user declines.

    A compaction of another program is undone only after a question, or by ``yes``.
    """

    def check(whose: str) -> None:
        question = f"The last compaction is {whose}. Its messages return into view. Undo it?"
        if not yes and not confirmed(question, f"{REFUSAL}. It would be {whose}"):
            warn("nothing was changed")
            raise click.exceptions.Exit(1)

    result = await undo_last(name, settings, check, dry_run=dry_run)
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


async def undo_last(
    name: str, settings: Settings, check: Callable[[str], None], *, dry_run: bool = False
) -> dict[str, Any]:
    """Undo the last compaction of a session and return the effect, for JSON.

    ``check`` is called with the author of a compaction that is not Reverie's, and raises to leave it. If another
    process has the session open, queue the undo for it; the result then has the key ``queued``.
    """
    try:
        async with opened_session(name, settings, dry_run=dry_run) as session:
            whose, window = author_of_last(session.view), session.thresholds.window
            if not dry_run:
                _checked(session.view, check)
            price = await session.undo_price()
            undone = None if dry_run else str((await session.undo()).body["compaction"])
            figures = {name: getattr(price, name) for name in fields_of(type(price))} | {"text": price.text}
            return {"session": session.name, "undone": undone, **figures, "whose": whose, "window": window}
    except SessionBusy:
        body = partial(_checked, check=check)
        session, queued = queue_command(name, settings, "undo", body, sender="reverie compact --undo")
        return {"session": session, "undone": None, "queued": queued}


def _checked(view: View, check: Callable[[str], None]) -> dict[str, str]:
    """Return the compaction to undo, after a check of one that is not Reverie's."""
    if (whose := author_of_last(view)) != OURS:
        check(whose)
    return _last_compaction(view)


def author_of_last(view: View) -> str:
    """Return whose compaction the next undo concerns: one of Reverie, or of the program that recorded the session."""
    last = _last_compaction(view)["compaction"]
    entry = next((item.entry for item in view.items_in_view() if item.uuid == last), None)
    if entry is None or not entry.imported:
        return OURS
    recorder = object_of(view.facts.meta.get("source")).get("format") or "the program that recorded the session"
    return f"a compaction by {recorder}, before the import"


def _last_compaction(view: View) -> dict[str, str]:
    active = [one for one in view.facts.compactions if one not in view.facts.undone]
    if not active:
        raise SessionError("this session has no compaction to undo")
    return {"compaction": active[-1]}
