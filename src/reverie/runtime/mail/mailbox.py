"""The mailbox of an agent: letters from other agents of this user in any process, none lost and none shown twice.

A letter is durable when ``send`` returns. A reader logs a letter before it marks it as read (``delivery.py`` does so
for a session); if it is killed in between, it polls the letter again and finds its id in the log.
"""

from __future__ import annotations

import difflib
import errno
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from heapq import merge
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final

import msgspec

from ...conversation.entries import iso, new_uuid, seconds
from ...errors import InputError, NewerVersion, SessionBusy, StorageError, UnsafePath
from ...layers.l7_relay import KEY_BYTES, Letter, check_name, read, sealed, signed, stamped_letter
from ...paths import explained, open_folder, replace_file
from ...ports import Lease, Storage
from ...storage.files import FileStorage
from ...storage.lock_files import locked
from ...values import record, replace
from ..session.writer import holder_text
from .directory import (
    RETIRED_SECONDS,
    MailboxOwner,
    mailbox_names,
    mailbox_owners,
    owner_key,
    remove_mailbox,
    stored_owner,
)
from .files import (
    BUCKET,
    KEY,
    Folders,
    LetterPlace,
    archive_name,
    archived_place,
    drop_oldest,
    drop_orphans,
    folders_of,
    listed,
    move_out,
    oldest_places,
    place_of,
    read_letter,
    remove_empty_folders,
    reserved_number,
    senders_waiting,
    store_letter,
    stored_key,
)

KEPT_LETTERS: Final = 1_000
KEPT_REFUSED: Final = 1_000
_MAX_SENDERS: Final = 32
"""The number of senders that one poll reads; the next poll continues with the others."""
_ROUNDS: Final = 64
_FOLDERS: Final = ("tmp", "new", "cur", "bad")

Carrier = Callable[[Letter, bytes], bool]
"""Try to deliver a letter another way; return whether it is durable there."""


@record
class RefusedLetter:
    """A file in a mailbox that is not a valid letter from the agent it names; it was moved to ``bad``."""

    path: str
    why: str


class Mailbox:
    """The letters of one agent, signed with the key of their sender.

    A new mailbox creates its folder, by which other agents find it. The first ``poll`` takes the lease to read, which
    only one process can hold. ``StoredMailbox`` replaces the methods under "the place of the letters" below.
    """

    has_sockets = True
    """Whether agents of the same home may deliver letters at once, through a socket."""

    def __init__(
        self, home: str | Path, team: str, agent: str, *, session: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        self.home = os.path.abspath(Path(home).expanduser())
        self._begin(FileStorage(self.home), team, agent, session, clock)
        self.path = Path(self.home, *self._parts)
        self._shown = str(self.path)
        self._settled: set[str] = set()
        self._last_numbers: dict[str, int] = {}
        self._last_sender = ""
        self._key = self._register()
        with explained("open", self._shown):
            self._folder = open_folder(self.home, self._parts)
        self._close_folder = weakref.finalize(self, os.close, self._folder)

    def _begin(self, storage: Storage, team: str, agent: str, session: str, clock: Callable[[], float]) -> None:
        """Set the fields of every mailbox."""
        self._storage = storage
        self.team = check_name(team, "team")
        self.agent = check_name(agent)
        self.session = session
        self.refused: list[RefusedLetter] = []
        """The letters refused since the last look; the caller empties this list."""
        self._parts = folders_of(team, agent)
        self._clock = clock
        self._lease: Lease | None = None
        self._keys: dict[tuple[str, str], bytes] = {}
        self._newer: set[LetterPlace] = set()
        self._read_count = 0
        self._polling = Lock()

    # -- ownership

    def _register(self) -> bytes:
        """Create the mailbox if it does not exist or was retired, and return its key."""
        key, known = self._key_of(*self._me), self._owner(*self._me)
        if key is not None and known is not None and not known.ended and self._is_whole():
            return key
        for name in self._names():
            if name != self.agent and name.casefold() == self.agent.casefold():
                raise InputError(f"an agent named {name} is in team {self.team} already; choose another name")
        for one in self._owners(self.team):
            if one.ended and self._clock() - seconds(one.ended) > RETIRED_SECONDS and one.name != self.agent:
                self._remove(one)
        key = self._made()
        self._write_owner(pid=0, started="")
        return key

    def _write_owner(self, *, pid: int, started: str, ended: str = "") -> None:
        """Write the owner of the mailbox, with the time at which it was first made."""
        known = self._owner(*self._me)
        created = known.created if known is not None else iso(self._clock())
        self._store_owner(MailboxOwner(self.agent, self.team, self.session, pid, started, created, ended))

    def acquire(self) -> None:
        """Take the lease to read and record this process; raise ``SessionBusy`` if another process has it."""
        if self._lease is not None and getattr(self._lease, "held", True):
            return
        try:
            self._lease = self._storage.lease("/".join(self._parts), holder=holder_text(self._clock()))
        except SessionBusy as error:
            raise SessionBusy(
                f"an agent named {self.agent} runs in team {self.team} already ({error.holder}); give this one "
                "another name, or end that one",
                holder=error.holder,
            ) from None
        self._tidy()
        self._write_owner(pid=os.getpid(), started=iso(self._clock()))

    def reader(self) -> str | None:
        """Return a description of the process that holds the lease to read, or None."""
        return self._storage.holder("/".join(self._parts))

    def others(self) -> list[str]:
        """Return the names of the other agents of the team that accept letters."""
        return [one.name for one in self._owners(self.team) if one.name != self.agent and not one.ended]

    def retire(self) -> None:
        """Record that the agent will not read again, and close the mailbox.

        The mailbox stays while letters that it sent may need its key, or letters wait in it; else it is deleted.
        """
        known = self._owner(*self._me)
        if known is not None:
            self._store_owner(replace(known, ended=iso(self._clock())))
            if not self._has_sent() and not self.look(1):
                self._remove(known)
        self.close()

    def close(self) -> None:
        """Release the lease to read and close the mailbox; calling this twice does no harm."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
        self._close()

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

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
        """Send a letter and return it; it is durable in its reader's mailbox when this returns.

        To send again after a crash, pass the same ``id``: the reader shows it once. ``carry`` may deliver the
        letter another way. Raise ``InputError`` if no such agent accepts letters.
        """
        reader = self._reader(to, team or self.team)
        with self._numbered(reader) as number:
            letter = stamped_letter(
                id or new_uuid(),
                text,
                sender=self._me,
                to=reader[1:],
                sequence=number,
                time_ns=int(self._clock() * 1e9),
                summary=summary,
                control=control,
            )
            data = sealed(letter, self._key)
            if carry is None or not self.has_sockets or not carry(letter, data):
                self._store(reader, place_of(letter), data)
        return letter

    def _reader(self, to: str, team: str) -> Folders:
        """Return the folders of a mailbox that accepts letters; raise ``InputError`` if there is none."""
        if (team, to) == (self.team, self.agent):
            raise InputError(f"{to} is you: name another agent")
        known = self._owner(team, to)
        if known is None or known.ended:
            there = [one.name for one in self._owners(team) if not one.ended and (team, one.name) != self._me]
            near = difflib.get_close_matches(to, there, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            named = ", ".join(there) or "none"
            raise InputError(f"no agent named {to[:80]!a} is in team {team}; there are: {named}{hint}")
        return folders_of(team, to)

    @property
    def _me(self) -> tuple[str, str]:
        return (self.team, self.agent)

    # -- reading

    def poll(self, limit: int = 50) -> list[Letter]:
        """Return the oldest waiting letters in each sender's order, without removing them.

        This takes the lease, and reads at most ``limit`` letters and a few folders, however many letters wait. A
        file that is not a valid letter is moved to ``bad`` and added to ``refused``.
        """
        with self._polling, self._explained("read"):
            self.acquire()
            for _ in range(_ROUNDS):
                places, strays = self._waiting(limit)
                before = len(self.refused)
                for stray in strays:
                    self._refuse(stray, "it is not in its sender's folder or has no letter number")
                letters = [letter for place in places if (letter := self._letter(place)) is not None]
                if letters or len(self.refused) == before:
                    return letters
            return []

    def _letter(self, place: LetterPlace) -> Letter | None:
        """Return the letter at a place; None if it is gone, or if it is not valid and was moved to ``bad``."""
        parts = ("new", place.folder, place.bucket, place.file)
        try:
            return self._verified(self._read(*parts), place)
        except FileNotFoundError:
            return None
        except NewerVersion as error:
            if place not in self._newer:
                self._newer.add(place)
                self.refused.append(RefusedLetter(self._path_of(*parts), str(error)))
        except (InputError, UnsafePath) as error:
            self._refuse(place, str(error))
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):  # other errors do not mean that the letter is invalid
                raise
            self._refuse(place, "it is not a regular file")
        return None

    def _verified(self, data: bytes, place: LetterPlace | None = None) -> Letter:
        """Return the letter in these bytes; raise unless its sender signed it for this reader and place."""
        letter = read(data)
        who = (letter.team, letter.sender)
        if not signed(data, self._keys.get(who)):
            key = self._key_of(*who)  # the key is unknown or was replaced
            if key is None or not signed(data, key):
                raise InputError(f"it claims to be from {letter.sender} of team {letter.team} without their signature")
            self._keys[who] = key
        if (letter.to_team, letter.to) != self._me:
            raise InputError(f"it is addressed to {letter.to} of team {letter.to_team}")
        if place is not None and place_of(letter) != place:
            raise InputError(f"it is from {letter.sender}, but its file has another name, number or time")
        return letter

    def accept(self, data: bytes) -> Letter:
        """Verify and durably store a letter that came another way, and return it; raise if it is invalid."""
        letter = self._verified(data)
        self._store(self._parts, place_of(letter), data)
        return letter

    def _refuse(self, place: LetterPlace, why: str) -> None:
        with suppress(OSError):
            if self._move(place, "bad"):
                self.refused.append(RefusedLetter(self._path_of("bad"), why))
                if len(self.refused) % BUCKET == 1:
                    self._drop_oldest("bad", KEPT_REFUSED)

    def mark_read(self, letter: Letter) -> None:
        """Move a letter to ``cur``, only after it is in its reader's log; calling this twice does no harm."""
        with self._polling, self._explained("put away"):
            self._move(place_of(letter), "cur")
            self._read_count += 1
            if self._read_count % BUCKET == 0:
                self._drop_oldest("cur", KEPT_LETTERS)

    def look(self, limit: int = 100, *, kept: bool = False) -> list[Letter]:
        """Return waiting letters, or with ``kept`` those that were read, oldest first, without marking them."""
        with self._polling, self._explained("read"):
            if kept:
                names = sorted(self._listed("cur"), reverse=True)[:limit]
                places = [(("cur", name), place) for name in reversed(names) if (place := archived_place(name))]
            else:
                found, _ = self._waiting(limit)
                places = [(("new", one.folder, one.bucket, one.file), one) for one in found]
            letters: list[Letter] = []
            for parts, place in places:
                with suppress(OSError, InputError, StorageError):
                    letters.append(self._verified(self._read(*parts), place))
            return letters

    def _key_of(self, team: str, name: str) -> bytes | None:
        return stored_key(self._storage, team, name)

    def _owner(self, team: str, name: str) -> MailboxOwner | None:
        return stored_owner(self._storage, team, name)

    def _store_owner(self, owner: MailboxOwner) -> None:
        self._storage.write(owner_key(owner.team, owner.name), msgspec.json.encode(owner))

    # -- the place of the letters

    def _names(self) -> list[str]:
        return mailbox_names(self.home, self.team)

    def _owners(self, team: str) -> list[MailboxOwner]:
        return mailbox_owners(self.home, team)

    def _remove(self, owner: MailboxOwner) -> None:
        remove_mailbox(self.home, owner)

    def _is_whole(self) -> bool:
        return all(os.path.isdir(f"{self._shown}/{name}") for name in _FOLDERS)  # a copy has no empty folders

    def _has_sent(self) -> bool:
        return (self.path / "sent").exists()

    def _made(self) -> bytes:
        """Make the mailbox, or the parts that it lacks, and return its key."""
        with explained("make", self._shown):
            for name in _FOLDERS:
                os.close(open_folder(self.home, (*self._parts, name), create=True))
            with locked(self._shown):
                key = self._key_of(*self._me)
                if key is None:
                    key = os.urandom(KEY_BYTES)
                    replace_file(self.home, "/".join((*self._parts, KEY)), key.hex().encode())
        return key

    def _tidy(self) -> None:
        drop_orphans(self._folder, self._clock())

    def _numbered(self, reader: Folders) -> AbstractContextManager[int]:
        return reserved_number(self.home, self._parts, reader)

    def _store(self, reader: Folders, place: LetterPlace, data: bytes) -> None:
        store_letter(self.home, reader, place, data, self._settled)

    def _read(self, *parts: str) -> bytes:
        """Return a letter's bytes; raise ``FileNotFoundError`` if it is gone, other errors if it cannot be one."""
        return read_letter(self._folder, parts, self._path_of(*parts))

    def _listed(self, name: str) -> list[str]:
        return listed(self._folder, name)

    def _move(self, place: LetterPlace, to: str) -> bool:
        return move_out(self._folder, place, to)

    def _drop_oldest(self, name: str, keep: int) -> None:
        drop_oldest(self._folder, name, keep)
        for sender in senders_waiting(self._folder)[0]:
            remove_empty_folders(self._folder, sender, self._clock())

    def _waiting(self, limit: int) -> tuple[list[LetterPlace], list[LetterPlace]]:
        """Return the places of the oldest letters, and of files that are not letters; remove empty folders."""
        folders, strays = senders_waiting(self._folder)
        folders.sort(key=lambda name: (name <= self._last_sender, name))
        found: list[list[LetterPlace]] = []
        for sender in folders:
            places = self._in_order(sender, limit)
            if not places:
                remove_empty_folders(self._folder, sender, self._clock())
                continue
            strays += [one for one in places if not one.sequence]
            found.append([one for one in places if one.sequence])
            if len(found) == _MAX_SENDERS:
                self._last_sender = sender
                break
        return list(islice(merge(*found, key=archive_name), limit)), strays

    def _in_order(self, sender: str, limit: int) -> list[LetterPlace]:
        """Return the places of a sender's oldest letters, without skipping an earlier one.

        Listing a folder is not atomic: a letter may be listed and an earlier one missed. A second listing
        certainly contains all letters that were there before the last one; a number that is still missing was
        never delivered.
        """
        places = oldest_places(self._folder, sender, limit)
        before = self._last_numbers.get(sender, 0)
        if _has_gap(before, places):
            last = max((one for one in places if one.sequence), key=lambda one: (one.bucket, one.file))
            strays = [one for one in places if not one.sequence]
            places = strays + [one for one in oldest_places(self._folder, sender, limit, upto=last) if one.sequence]
        self._last_numbers[sender] = max([before, *(one.sequence for one in places)])
        return places

    def _path_of(self, *parts: str) -> str:
        return f"{self._shown}/{'/'.join(parts)}"

    def _explained(self, doing: str) -> AbstractContextManager[None]:
        return explained(doing, self._shown)

    def _close(self) -> None:
        self._close_folder()


def _has_gap(before: int, places: Sequence[LetterPlace]) -> bool:
    """Return whether a number is missing between the last letter seen and the letters found now."""
    for place in places:
        if place.sequence > before + 1:
            return True
        before = max(before, place.sequence)
    return False
