"""The journal of a project's memories in the database, of which the memory directory is a working copy."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from ...memories.store.head_files import JOURNAL, LOCK
from ...memories.store.journal_files import DREAMS, LOGS, SHARED_NAME, SURFACED, JournalFiles
from ...ports import Lease, Storage
from ...settings import Settings
from ..places.projects import project_slug
from ..places.storage import patient_lease, storage_of

T = TypeVar("T")

_JOURNAL: Final = ".journal/journal.jsonl"
"""The place of a journal in its memory directory."""
_PATIENCE_SECONDS: Final = 30.0
_TOPS: Final = ("projects", "agent-memory")


def project_folder(project: str | os.PathLike[str]) -> str:
    """Return the place of a project's memory directory in a storage, the same as in a home."""
    return f"projects/{project_slug(Path(project))}/memory"


def shared_journal(folder: str, settings: Settings) -> StoredJournal | None:
    """Return the journal of a memory directory of a home in the database; None if memories are files alone."""
    if settings.database is None:
        return None
    return StoredJournal(storage_of(settings), folder, settings.tenant or "", owns=True)


def shared_folders(storage: Storage, *tops: str) -> list[str]:
    """Return the memory directories whose journals are in a storage, of projects and of agent types by default."""
    keys = [key for top in tops or _TOPS for key in storage.list(top)]
    return [key.removesuffix(f"/{_JOURNAL}") for key in keys if key.endswith(f"/{_JOURNAL}")]


def working_copies(files: Storage) -> list[str]:
    """Return the memory directories of a home that are working copies of memories in a database."""
    mark = f"/{JOURNAL}/{SHARED_NAME}"
    keys = [key for top in _TOPS for key in files.list(top)]
    return [key.removesuffix(mark) for key in keys if key.endswith(mark)]


def bring_home(database: Storage, tenant: str, files: Storage, home: Path, *, dry_run: bool = False) -> list[str]:
    """Complete this home's working copies of memories, add those that were made in the database, and release all.

    Return their directories. Memories of the home that are no working copy stay as they are.
    """
    brought: list[str] = []
    for folder in shared_folders(database):
        shared = StoredJournal(database, folder, tenant)
        copy = JournalFiles(str(home / folder), shared)
        is_new = not any(one.load(f"{folder}/{JOURNAL}/{LOCK}", 0, 1) is not None for one in (files, database))
        if copy.copy_of() == shared.name or is_new:
            if not dry_run:
                with copy.locked():
                    pass  # on entry every line of the shared journal is read and applied
                copy.release()
            brought.append(folder)
    return brought


def is_in_copy(key: str, folders: Sequence[str]) -> bool:
    """Say whether the journal of one of these memory directories gives the content of a file of theirs."""
    beside = (f"{LOGS}/", f"{JOURNAL}/{SURFACED}", f"{JOURNAL}/{DREAMS}/")
    names = [key.removeprefix(f"{folder}/") for folder in folders if key.startswith(f"{folder}/")]
    return any(not name.startswith(beside) for name in names)


class StoredFiles:
    """The files beside the memories of a directory, in a storage that several machines share."""

    def __init__(self, storage: Storage, folder: str, done: Callable[[], None]) -> None:
        self._storage, self._folder, self._done = storage, folder, done

    def path(self, file: str) -> str:
        """Return the key of a file."""
        return f"{self._folder}/{file}"

    def read(self, file: str) -> bytes | None:
        """Return the bytes of a file; None if it does not exist."""
        return self._used(lambda: self._storage.load(self.path(file)))

    def append(self, file: str, line: bytes) -> None:
        """Append a line durably, and create the file if needed."""
        self._used(lambda: self._storage.append(self.path(file), line))

    def replace(self, file: str, data: bytes) -> None:
        """Create or replace a file."""
        self._used(lambda: self._storage.write(self.path(file), data))

    def delete(self, file: str) -> None:
        """Delete a file, if it exists."""
        self._used(lambda: self._storage.delete(self.path(file)))

    def names(self, folder: str) -> list[str]:
        """Return the files below a folder, sorted."""
        keys = self._used(lambda: list(self._storage.list(self.path(folder))))
        return [key.removeprefix(f"{self._folder}/") for key in keys]

    def _used(self, act: Callable[[], T]) -> T:
        try:
            return act()
        finally:
            self._done()


class StoredJournal:
    """The shared journal of a memory directory in a storage; one that it ``owns`` is open only while it is used."""

    def __init__(self, storage: Storage, folder: str, tenant: str, *, owns: bool = False) -> None:
        self._key = f"{folder}/{_JOURNAL}"
        self.name = f"{self._key} of tenant {tenant}"
        self._owns = owns
        self._storage = storage
        self._uses = 0
        """How many ``with`` blocks need the storage to stay open."""
        self._folder = folder
        self.files = StoredFiles(storage, folder, self._finish)

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold the lease on the journal inside a ``with`` block; wait half a minute for another machine."""
        with self._leased(lambda: patient_lease(self._storage, self._key, _this_process(), _PATIENCE_SECONDS)):
            yield

    @contextmanager
    def dreaming(self) -> Generator[None]:
        """Hold the lease on dreams inside a ``with`` block; raise ``SessionBusy`` if another machine has it."""
        with self._leased(lambda: self._storage.lease(f"{self._folder}/.journal/dream-lock", holder=_this_process())):
            yield

    @contextmanager
    def _leased(self, take: Callable[[], Lease]) -> Generator[None]:
        """Take a lease, and keep the storage open, inside a ``with`` block."""
        self._uses += 1
        try:
            with ExitStack() as stack:
                stack.callback(take().release)
                yield
        finally:
            self._uses -= 1
            self._finish()

    def load(self, start: int = 0, size: int = -1) -> bytes | None:
        """Return the bytes from an offset on, all or at most ``size``; None if there is no journal yet."""
        try:
            return self._storage.load(self._key, start, size)
        finally:
            self._finish()

    def append(self, line: bytes, *, expect: int) -> None:
        """Append a line durably, if the journal has the expected size and the lease was not taken over."""
        self._storage.append(self._key, line, expect=expect)

    def replace(self, lines: bytes) -> None:
        """Replace the whole journal, because of an erasure; copies of the files that a move brought here go first."""
        for key in [key for key in self._storage.list(self._folder) if key != self._key]:
            if is_in_copy(key, [self._folder]):
                self._storage.delete(key)
        self._storage.write(self._key, lines)

    def _finish(self) -> None:
        if self._owns and not self._uses:
            self._storage.close()


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"
