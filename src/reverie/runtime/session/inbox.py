"""The inbox of a session: how another process speaks to a log it may not write."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ...conversation.entries import new_uuid
from ...errors import StorageConflict
from ...ports import Storage
from ...values import record

__all__ = ["Command", "delivered", "post", "set_aside", "waiting"]


@record
class Command:
    """Something another process asks of a session."""

    id: str
    name: str
    body: dict[str, Any]
    sender: str = ""


def post(storage: Storage, inbox: str, name: str, body: dict[str, Any], *, sender: str = "") -> Command:
    """Leave a command; the session takes it in at its next round boundary."""
    while True:
        command = Command(new_uuid(), name, body, sender)
        try:
            storage.write(f"{inbox}/{time.time_ns():020d}-{command.id}.json", msgspec.json.encode(command), create=True)
        except StorageConflict:
            continue
        return command


def waiting(storage: Storage, inbox: str) -> list[tuple[str, Command | None]]:
    """Return what waits, oldest first, each with its key; None where it cannot be read."""
    found: list[tuple[str, Command | None]] = []
    for key in storage.list(inbox):
        document = storage.read(key)
        if document is not None:
            found.append((key, _command(document.data)))
    return found


def delivered(storage: Storage, key: str) -> None:
    """Take a command out of the inbox; only after it is in the session's log."""
    storage.delete(key)


def set_aside(storage: Storage, key: str) -> str:
    """Move a command that cannot be read out of the way, keeping its bytes, and return where it went."""
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
    except (ValueError, RecursionError):  # what is not UTF-8 is no DecodeError
        return None
