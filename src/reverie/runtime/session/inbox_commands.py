"""Taking in what other processes left in a session's inbox, at a round boundary, each command once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ...conversation.decisions import Cause, MessageQueued
from ...errors import CompactionError, InputError, SessionError
from ...events import FellBack, InboxDrained
from ...ports import Storage
from .inbox import Command, delivered, set_aside, waiting

if TYPE_CHECKING:
    from .session import Session

__all__ = ["drain"]

Run = Callable[[Callable[[], Any]], Awaitable[Any]]


async def drain(session: Session, storage: Storage, inbox: str, run: Run) -> None:
    """Take in what waits: commands are obeyed, messages are shown to the model."""
    found = await run(lambda: waiting(storage, inbox))
    for key, command in found:
        if command is None:
            kept = await run(lambda key=key: set_aside(storage, key))
            session.tell(FellBack(session.name, "inbox", f"a command cannot be read; it is kept at {kept}"))
            continue
        if command.id not in session.view.facts.queued:
            await _obey(session, command)
            text = command.body.get("text")
            shown = text if isinstance(text, str) else ""
            await session.decide(MessageQueued(Cause("relay", command.name), command.id, shown, command.sender))
        await run(lambda key=key: delivered(storage, key))
    if found:
        session.tell(InboxDrained(session.name, len(found)))


async def _obey(session: Session, command: Command) -> None:
    """Do what a command asks for. Doing it twice does no harm, so it is noted as done afterwards."""
    body = command.body
    try:
        if command.name == "compact":
            await session.compact(
                instructions=_text(body, "instructions") or "",
                from_message=_text(body, "from"),
                up_to=_text(body, "up_to"),
            )
        elif command.name == "undo":
            named = _text(body, "compaction")
            if named is None or named not in session.view.facts.undone:
                await session.undo(named)
    except (CompactionError, InputError, SessionError) as error:
        session.tell(FellBack(session.name, command.name, f"asked for from outside and not done: {error}"))


def _text(body: dict[str, Any], key: str) -> str | None:
    value = body.get(key)
    return value if isinstance(value, str) and value else None
