"""Mailboxes in a database, for agents on several machines: the same letters under the same names as in a home.

A letter is committed when ``send`` returns; its reader finds it before its next step. There is no socket: agents on
different machines have only the database in common.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any

import msgspec

from ...conversation.entries import iso, seconds
from ...errors import InputError, NewerVersion, SessionBusy, StorageConflict, StorageError
from ...layers.l7_relay import KEY_BYTES, Letter, check_name, sealed
from ...ports import Lease, Storage
from ...settings import Settings
from ...values import replace
from ..places.storage import storage_of
from ..session.writer import holder_text
from .directory import RETIRED_SECONDS, MailboxOwner, mailbox_owners
from .files import AGENT, BUCKET, KEY, LetterPlace, archive_name, folders_of, place_at, place_of
from .mailbox import KEPT_LETTERS, Carrier, Mailbox, RefusedLetter


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
    storage = storage_of(settings)
    try:
        return stored_owners(storage, team)
    finally:
        storage.close()


def stored_owners(storage: Storage, team: str) -> list[MailboxOwner]:
    """Return the owners of a team's mailboxes in a storage, also ended ones, sorted by name."""
    keys = storage.list(f"teams/{check_name(team, 'team')}")
    names = [key.split("/")[2] for key in keys if key.endswith(f"/{AGENT}") and key.count("/") == 3]
    return [one for one in (stored_owner(storage, team, name) for name in names) if one is not None]


def stored_owner(storage: Storage, team: str, name: str) -> MailboxOwner | None:
    """Return the owner of a mailbox in a storage; None if there is no valid one."""
    with suppress(InputError, ValueError, RecursionError):
        data = storage.load(_key(folders_of(team, name), AGENT))
        return None if data is None else replace(msgspec.json.decode(data, type=MailboxOwner), name=name, team=team)
    return None


class StoredMailbox(Mailbox):
    """The letters of one agent in a storage that several machines share; it closes the storage."""

    def __init__(
        self, storage: Storage, team: str, agent: str, *, session: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        self.team, self.agent = check_name(team, "team"), check_name(agent)
        self.session = session
        self.refused: list[RefusedLetter] = []
        self._storage = storage
        self._parts = folders_of(team, agent)
        self._clock = clock
        self._held: Lease | None = None
        self._keys: dict[tuple[str, str], bytes] = {}
        self._read_count = 0
        self._polling, self._sending = Lock(), Lock()
        self._key = self._register()

    # -- ownership

    def _register(self) -> bytes:
        key, known = self._key_of(self.team, self.agent), self._owner(self.team, self.agent)
        if key is not None and known is not None and not known.ended:
            return key
        for one in self._owners(self.team):
            if one.name != self.agent and one.name.casefold() == self.agent.casefold():
                raise InputError(f"an agent named {one.name} is in team {self.team} already; choose another name")
            if one.name != self.agent and one.ended and self._clock() - seconds(one.ended) > RETIRED_SECONDS:
                _remove(self._storage, self._storage.list(_key(folders_of(one.team, one.name))))
        if key is None:
            key = os.urandom(KEY_BYTES)
            try:
                self._storage.write(self._at(KEY), key.hex().encode(), create=True)
            except StorageConflict:  # another machine made it just now
                return self._register()
        created = known.created if known is not None else iso(self._clock())
        self._write_owner(MailboxOwner(self.agent, self.team, self.session, 0, "", created))
        return key

    def acquire(self) -> None:
        """Take the lease to read and record this process; raise ``SessionBusy`` if another process has it."""
        if self._held is not None:
            return
        try:
            self._held = self._storage.lease(_key(self._parts), holder=holder_text(self._clock()))
        except SessionBusy as error:
            raise SessionBusy(
                f"an agent named {self.agent} runs in team {self.team} already ({error.holder}); give this one "
                "another name, or end that one",
                holder=error.holder,
            ) from None
        known, now = self._owner(self.team, self.agent), iso(self._clock())
        created = known.created if known is not None else now
        self._write_owner(MailboxOwner(self.agent, self.team, self.session, os.getpid(), now, created))

    def reader(self) -> str | None:
        """Return a description of the process that holds the lease to read, or None."""
        return self._storage.holder(_key(self._parts))

    def retire(self) -> None:
        """Record that the agent will not read again, and close; delete a mailbox without letters or keys in use."""
        known = self._owner(self.team, self.agent)
        if known is not None:
            self._write_owner(replace(known, ended=iso(self._clock())))
            keys = list(self._storage.list(_key(self._parts)))
            if not any(key.startswith((self._at("sent/"), self._at("new/"))) for key in keys):
                _remove(self._storage, keys)
        self.close()

    def close(self) -> None:
        """Release the lease to read and close the storage; calling this twice does no harm."""
        held, self._held = self._held, None
        if held is not None:
            held.release()
        self._storage.close()

    # -- sending

    def send(
        self,
        to: str,
        text: str,
        *,
        summary: str = "",
        control: Mapping[str, Any] | None = None,
        id: str | None = None,
        team: str | None = None,
        carry: Carrier | None = None,
    ) -> Letter:
        """Send a letter and return it; it is committed in its reader's mailbox when this returns."""
        reader = self._reader(to, team or self.team)
        with self._sending:
            number = self._next_number(reader)
            letter = self._stamped(reader, number, text, id, summary, control)
            self._storage.write(_letter_key(reader, place_of(letter)), sealed(letter, self._key), create=True)
        return letter

    def _next_number(self, reader: tuple[str, str, str]) -> int:
        """Use up the next number of the route to a reader; an undelivered letter leaves a gap."""
        key = self._at(f"sent/{reader[1]}/{reader[2]}")
        while True:
            known = self._storage.read(key)
            last = int(known.data) if known is not None and known.data.strip().isdigit() else 0
            expect = None if known is None else known.version
            with suppress(StorageConflict):
                self._storage.write(key, b"%020d\n" % (last + 1), expect=expect, create=known is None)
                return last + 1

    # -- reading

    def poll(self, limit: int = 50) -> list[Letter]:
        """Return the oldest waiting letters in each sender's order, without removing them; this takes the lease.

        An invalid letter is moved to ``bad`` and added to ``refused``.
        """
        with self._polling:
            self.acquire()
            letters: list[Letter] = []
            for place in self._places():
                letter = self._letter(place)
                letters += [letter] if letter is not None else []
                if len(letters) == limit:
                    break
            return letters

    def _places(self) -> list[LetterPlace]:
        found = [key.split("/")[4:] for key in self._storage.list(self._at("new"))]
        return sorted((place_at(*parts) for parts in found if len(parts) == 3), key=archive_name)

    def _letter(self, place: LetterPlace) -> Letter | None:
        key = _letter_key(self._parts, place)
        data = self._storage.load(key)
        try:
            return None if data is None else self._verified(data, place)
        except NewerVersion as error:
            self.refused.append(RefusedLetter(key, str(error)))
        except InputError as error:
            self._move(place, "bad")
            self.refused.append(RefusedLetter(self._at("bad"), str(error)))
        return None

    def mark_read(self, letter: Letter) -> None:
        """Move a letter to ``cur``, only after it is in its reader's log; calling this twice does no harm."""
        with self._polling:
            self._move(place_of(letter), "cur")
            self._read_count += 1
            if self._read_count % BUCKET == 0:
                _remove(self._storage, list(self._storage.list(self._at("cur")))[:-KEPT_LETTERS])

    def look(self, limit: int = 100, *, kept: bool = False) -> list[Letter]:
        """Return waiting letters, or with ``kept`` those that were read, oldest first, without marking them."""
        keys = (
            list(self._storage.list(self._at("cur")))[-limit:]
            if kept
            else [_letter_key(self._parts, place) for place in self._places()[:limit]]
        )
        letters: list[Letter] = []
        for key in keys:
            with suppress(InputError, StorageError):
                letters.append(self._verified(self._storage.load(key) or b""))
        return letters

    # -- the storage

    def _owners(self, team: str) -> list[MailboxOwner]:
        return stored_owners(self._storage, team)

    def _owner(self, team: str, name: str) -> MailboxOwner | None:
        return stored_owner(self._storage, team, name)

    def _key_of(self, team: str, name: str) -> bytes | None:
        with suppress(ValueError):
            data = self._storage.load(_key(folders_of(team, name), KEY))
            key = bytes.fromhex((data or b"").decode("ascii").strip())
            return key if len(key) == KEY_BYTES else None
        return None

    def _write_owner(self, owner: MailboxOwner) -> None:
        self._storage.write(self._at(AGENT), msgspec.json.encode(owner))

    def _move(self, place: LetterPlace, to: str) -> None:
        key = _letter_key(self._parts, place)
        data = self._storage.load(key)
        if data is not None:
            self._storage.write(self._at(f"{to}/{archive_name(place)}"), data)
            self._storage.delete(key)

    def _at(self, name: str) -> str:
        return _key(self._parts, name)


def _key(parts: Iterable[str], *names: str) -> str:
    return "/".join((*parts, *names))


def _letter_key(reader: Iterable[str], place: LetterPlace) -> str:
    return _key(reader, "new", place.folder, place.bucket, place.file)


def _remove(storage: Storage, keys: Iterable[str]) -> None:
    for key in list(keys):
        storage.delete(key)
