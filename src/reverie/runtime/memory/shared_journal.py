"""The journal of a project's memories in the database, of which the memory directory is a working copy."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...errors import SessionBusy, StorageError
from ...ports import Storage
from ...settings import Settings
from ..places.projects import project_slug
from ..places.storage import storage_of

JOURNAL_KEY: Final = "memory/.journal/journal.jsonl"
"""The place of a journal in the folder of its project, the same as in a home."""
_PATIENCE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.05


def shared_journal(project: str | os.PathLike[str], settings: Settings) -> StoredJournal | None:
    """Return the journal of a project's memories in the database; None if memories are files alone.

    A memory directory that the settings name belongs to this machine or to a team's folder, and stays files.
    """
    if settings.database is None or settings.memory_dir is not None:
        return None
    return StoredJournal(storage_of(settings), project_slug(Path(project)), settings.tenant or "", owns=True)


def shared_projects(storage: Storage) -> list[str]:
    """Return the slugs of the projects whose memories are in a storage."""
    keys = [key for key in storage.list("projects") if key.endswith(f"/{JOURNAL_KEY}")]
    return [key.split("/")[1] for key in keys]


class StoredJournal:
    """The shared journal of a project's memories in a storage; one that it ``owns`` is open only while it is used."""

    def __init__(self, storage: Storage, project: str, tenant: str, *, owns: bool = False) -> None:
        self._key = f"projects/{project}/{JOURNAL_KEY}"
        self.name = f"{self._key} of tenant {tenant}"
        self._owns = owns
        self._storage = storage
        self._is_held = False

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold the lease on the journal inside a ``with`` block; wait half a minute for another machine."""
        until = time.monotonic() + _PATIENCE_SECONDS
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        try:
            while True:
                try:
                    lease = self._storage.lease(self._key, holder=holder)
                    break
                except SessionBusy as error:
                    if time.monotonic() > until:
                        raise StorageError(f"the memories are being changed: {error}", path=self._key) from error
                time.sleep(_PAUSE_SECONDS)
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False
                lease.release()
        finally:
            self._close()

    def load(self, start: int = 0, size: int = -1) -> bytes | None:
        """Return the bytes from an offset on, all or at most ``size``; None if there is no journal yet."""
        try:
            return self._storage.load(self._key, start, size)
        finally:
            if not self._is_held:
                self._close()

    def append(self, line: bytes, *, expect: int) -> None:
        """Append a line durably, if the journal has the expected size and the lease was not taken over."""
        self._storage.append(self._key, line, expect=expect)

    def replace(self, lines: bytes) -> None:
        """Replace the whole journal."""
        self._storage.write(self._key, lines)

    def _close(self) -> None:
        if self._owns:
            self._storage.close()
