"""The inbox of a session: other processes leave commands there for the one that may write its log."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...conversation.decisions import Cause, MessageQueued
from ...conversation.entries import new_uuid
from ...errors import CompactionError, InputError, SessionError, StorageConflict
from ...events import FellBack, InboxDrained
from ...ports import Storage
from ...storage.files import FileStorage
from ...values import record

if TYPE_CHECKING:
    from .compact.compactor import Compactor
    from .log import SessionLog
    from .notes.rules import RuleKeeper


STOP: Final = "stop"


@record
class Command:
    """A command that another process leaves for a session: a change, such as ``compact``, or any name with a text."""

    id: str
    name: str
    body: dict[str, Any]
    sender: str = ""


def post(storage: Storage, inbox: str, name: str, body: dict[str, Any], *, sender: str = "") -> Command:
    """Leave a command in a session's inbox and return it; the session runs it before its next request."""
    while True:
        command = Command(new_uuid(), name, body, sender)
        try:
            storage.write(f"{inbox}/{time.time_ns():020d}-{command.id}.json", msgspec.json.encode(command), create=True)
        except StorageConflict:
            continue
        return command


def waiting(storage: Storage, inbox: str) -> list[tuple[str, Command | None]]:
    """Return the keys and commands in an inbox, oldest first; None replaces a command that cannot be read."""
    found: list[tuple[str, Command | None]] = []
    for key in storage.list(inbox):
        document = storage.read(key)
        if document is not None:
            found.append((key, _command(document.data)))
    return found


def delivered(storage: Storage, key: str) -> None:
    """Delete a command from the inbox, after the session's log has it."""
    storage.delete(key)


def set_aside(storage: Storage, key: str) -> str:
    """Move an unreadable command out of the inbox into ``<inbox>-unread``, unchanged, and return its new key."""
    folder, name = key.rsplit("/", 1)
    kept = f"{folder}-unread/{name}"
    document = storage.read(key)
    if document is not None:
        storage.write(kept, document.data)
        storage.delete(key)
    return kept


def _command(data: bytes) -> Command | None:
    try:
        return msgspec.json.decode(data, type=Command)
    except (ValueError, RecursionError):  # bytes that are not UTF-8 raise no DecodeError
        return None


class Inbox:
    """Runs the commands that other processes left for a session, each once, before a request."""

    def __init__(self, storage: Storage, key: str, compact: Compactor, rules: RuleKeeper) -> None:
        self._storage = storage
        self._key = key
        self._compact = compact
        self._rules = rules

    async def drain(self, log: SessionLog) -> None:
        """Run waiting commands, log their texts for the model and delete them; do nothing in read-only mode."""
        found = await self._waiting(log)
        for key, command in found:
            if command is None:
                kept = await log.run_blocking(lambda key=key: set_aside(self._storage, key))
                log.emit(FellBack(log.name, "inbox", f"a command cannot be read; its bytes are at {kept}"))
                continue
            if command.id not in log.view.facts.queued:
                await self._obey(log, command)
            await self._settle(log, key, command)
        if found:
            # At the end, because a listener may cancel this task.
            log.emit(InboxDrained(log.name, len(found), stop=any(one and one.name == STOP for _, one in found)))

    async def take_stops(self, log: SessionLog) -> int:
        """Take the waiting commands that ask the session to stop, leave the others, and return how many there were."""
        stops = [(key, one) for key, one in await self._waiting(log) if one is not None and one.name == STOP]
        for key, command in stops:
            await self._settle(log, key, command)
        return len(stops)

    async def _waiting(self, log: SessionLog) -> list[tuple[str, Command | None]]:
        if log.mode != "write":
            return []
        storage = self._storage
        if isinstance(storage, FileStorage) and not os.path.lexists(f"{storage.root}/{self._key}"):
            return []  # the usual case, which needs no thread
        return await log.run_blocking(lambda: waiting(storage, self._key))

    async def _settle(self, log: SessionLog, key: str, command: Command) -> None:
        """Log that a command was run, and delete it."""
        if command.id not in log.view.facts.queued:
            text = command.body.get("text")
            shown = text if isinstance(text, str) else ""
            await log.decide(MessageQueued(Cause("relay", command.name), command.id, shown, command.sender))
        await log.run_blocking(lambda: delivered(self._storage, key))

    async def _obey(self, log: SessionLog, command: Command) -> None:
        """Run a command that changes the session, ignore others, and report a failure as an event.

        Running a command twice does no harm, so the caller logs it as done afterwards.
        """
        body = command.body
        try:
            if command.name == "compact":
                await self._compact.compact(
                    instructions=_text(body, "instructions") or "",
                    from_message=_text(body, "from"),
                    up_to=_text(body, "up_to"),
                )
            elif command.name == "undo":
                named = _text(body, "compaction")
                if named is None or named not in log.view.facts.undone:
                    await self._compact.undo(named)
            elif command.name == "add_rule":
                await self._rules.add(_text(body, "rule") or "")
            elif command.name == "drop_rule":
                await self._rules.drop(_text(body, "id") or "")
        except (CompactionError, InputError, SessionError) as error:
            log.emit(FellBack(log.name, command.name, f"a command from the inbox failed: {error}"))


def _text(body: dict[str, Any], key: str) -> str | None:
    value = body.get(key)
    return value if isinstance(value, str) and value else None
