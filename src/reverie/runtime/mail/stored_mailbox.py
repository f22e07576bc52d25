"""Mailboxes in a database, for agents on several machines: the same letters under the same names as in a home.

A letter is committed when ``send`` returns; its reader finds it before its next step. There is no socket: agents on
different machines have only the database in common.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from typing import Final

from ...errors import StorageConflict, StorageError
from ...layers.l7_relay import KEY_BYTES, check_name
from ...ports import Storage
from ...settings import Settings
from ..places.storage import patient_lease, storage_of
from ..session.writer import holder_text
from .directory import MailboxOwner, mailbox_owners, stored_owner
from .files import AGENT, KEY, Folders, LetterPlace, archive_name, folders_of, moved_name, place_at
from .mailbox import Mailbox

_PATIENCE_SECONDS: Final = 10.0


def open_mailbox(
    settings: Settings, team: str, agent: str, *, session: str = "", clock: Callable[[], float] = time.time
) -> Mailbox:
    """Open the mailbox of an agent where the settings keep sessions: in the home or in a database."""
    if settings.database is None:
        return Mailbox(settings.home, team, agent, session=session, clock=clock)
    return StoredMailbox(storage_of(settings), team, agent, session=session, clock=clock)


def team_owners(settings: Settings, team: str) -> list[MailboxOwner]:
    """Return the owners of a team's mailboxes, in the home or in a database."""
    if settings.database is None:
        return mailbox_owners(settings.home, team)
    with closing(storage_of(settings)) as storage:
        return stored_owners(storage, team)


def stored_owners(storage: Storage, team: str) -> list[MailboxOwner]:
    """Return the owners of a team's mailboxes in a storage, also ended ones, sorted by name."""
    keys = storage.list(f"teams/{check_name(team, 'team')}")
    names = [key.split("/")[2] for key in keys if key.endswith(f"/{AGENT}") and key.count("/") == 3]
    return [one for one in (stored_owner(storage, team, name) for name in names) if one is not None]


class StoredMailbox(Mailbox):
    """The letters of one agent in a storage that several machines share; it closes the storage."""

    has_sockets = False

    def __init__(
        self, storage: Storage, team: str, agent: str, *, session: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        self.home = ""
        self._begin(storage, team, agent, session, clock)
        self._key = self._register()

    # -- the place of the letters

    def _names(self) -> list[str]:
        return [one.name for one in self._owners(self.team)]

    def _owners(self, team: str) -> list[MailboxOwner]:
        return stored_owners(self._storage, team)

    def _remove(self, owner: MailboxOwner) -> None:
        self._delete(self._storage.list(_key(folders_of(owner.team, owner.name))))

    def _is_whole(self) -> bool:
        return True

    def _has_sent(self) -> bool:
        return any(True for _ in self._storage.list(self._path_of("sent")))

    def _made(self) -> bytes:
        key = self._key_of(*self._me) or os.urandom(KEY_BYTES)
        with suppress(StorageConflict):  # it was there, or another machine made it just now
            self._storage.write(self._path_of(KEY), key.hex().encode(), create=True)
        found = self._key_of(*self._me)
        if found is None:
            raise StorageError(f"{self._path_of(KEY)} is not a key: delete it", path=self._path_of(KEY))
        return found

    def _tidy(self) -> None:
        """Do nothing: a storage leaves no unfinished files."""

    @contextmanager
    def _numbered(self, reader: Folders) -> Generator[int]:
        key = self._path_of("sent", *reader[1:])
        # A later letter must not appear before this one.
        lease = patient_lease(self._storage, key, holder_text(self._clock()), _PATIENCE_SECONDS)
        try:
            known = self._storage.read(key)
            last = int(known.data) if known is not None and known.data.strip().isdigit() else 0
            self._storage.write(key, b"%020d\n" % (last + 1))
            yield last + 1
        finally:
            lease.release()

    def _store(self, reader: Folders, place: LetterPlace, data: bytes) -> None:
        self._storage.write(_key(reader, "new", place.folder, place.bucket, place.file), data)

    def _read(self, *parts: str) -> bytes:
        data = self._storage.load(self._path_of(*parts))
        if data is None:
            raise FileNotFoundError(self._path_of(*parts))
        return data

    def _listed(self, name: str) -> list[str]:
        return [key.rsplit("/", 1)[1] for key in self._storage.list(self._path_of(name))]

    def _move(self, place: LetterPlace, to: str) -> bool:
        key = self._path_of("new", *(part for part in (place.folder, place.bucket, place.file) if part))
        data = self._storage.load(key)
        if data is None:
            return False
        self._storage.write(self._path_of(to, moved_name(place)), data)
        self._storage.delete(key)
        return True

    def _drop_oldest(self, name: str, keep: int) -> None:
        self._delete(list(self._storage.list(self._path_of(name)))[:-keep])

    def _waiting(self, limit: int) -> tuple[list[LetterPlace], list[LetterPlace]]:
        found = [key.split("/")[4:] for key in self._storage.list(self._path_of("new"))]
        places = [place_at(*parts) if len(parts) == 3 else LetterPlace("", "", "/".join(parts)) for parts in found]
        waiting = sorted((one for one in places if one.sequence), key=archive_name)
        return waiting[:limit], [one for one in places if not one.sequence]

    def _delete(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self._storage.delete(key)

    def _path_of(self, *parts: str) -> str:
        return _key(self._parts, *parts)

    def _explained(self, doing: str) -> AbstractContextManager[None]:
        return nullcontext()

    def _close(self) -> None:
        self._storage.close()


def _key(parts: Iterable[str], *names: str) -> str:
    return "/".join((*parts, *names))
