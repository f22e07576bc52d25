"""Carry messages to sessions on other machines through the database that they share."""

from __future__ import annotations

from contextlib import closing

from anyio import to_thread

from ...errors import InputError
from ...layers.l7_relay import Letter
from ...settings import Settings
from ..places.projects import inbox_key, log_key
from ..places.storage import storage_of
from ..session.inbox import post


class InboxBridge:
    """Leaves letters to ``bridge:SESSION`` in the inbox of a session of the same project and tenant."""

    def __init__(self, settings: Settings, project: str) -> None:
        self._settings, self._project = settings, project

    async def carry(self, id: str, letter: Letter) -> str:
        """Leave a letter for a session, which may run on another machine; raise ``InputError`` if there is none."""
        return await to_thread.run_sync(self._carry, id, letter)

    def _carry(self, id: str, letter: Letter) -> str:
        with closing(storage_of(self._settings)) as storage:
            if storage.load(log_key(self._project, id), 0, 1) is None:
                raise InputError(f"there is no session {id[:80]!a} of this project in the database")
            text = f"{letter.summary}\n\n{letter.text}" if letter.summary else letter.text
            post(storage, inbox_key(self._project, id), "note", {"text": text}, sender=letter.sender)
        return f"Left in the inbox of session {id}; it is read before its next request, on any machine."


def database_bridge(settings: Settings, project: str) -> InboxBridge | None:
    """Return the bridge of a database, None if none is configured."""
    return InboxBridge(settings, project) if settings.database is not None else None
