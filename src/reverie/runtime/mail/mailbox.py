"""The mailbox of an agent: letters from agents of this user, in this process or any other, none lost, none shown twice.

Whoever sends has its letter on the disk when ``send`` returns. Whoever reads logs a letter first and takes it then
(``runtime/mail/delivery.py`` does so for a session); killed in between, it meets the letter again and knows its id.
"""

from __future__ import annotations

import difflib
import errno
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Final

from ...conversation.entries import iso, new_uuid
from ...errors import InputError, SessionBusy, StorageError, UnsafePath
from ...layers.l7_relay import KEY_BYTES, Letter, check_name, read, sealed, signed, stamped_letter
from ...paths import explained, open_folder, replace_file
from ...storage.lock_files import FileLease, find_holder, locked, take_lease
from ...values import record, replace
from ..session.writer import holder_text
from .directory import Resident, names_in, remove_resident, remove_retired, resident, residents, write_resident
from .files import (
    BUCKET,
    KEY,
    SOCKET,
    Place,
    drop_oldest,
    drop_orphans,
    folders_of,
    kept_as,
    kept_places,
    key_of,
    moved,
    numbered,
    oldest,
    placed,
    read_letter,
    senders_waiting,
    stored,
    tidied,
)

__all__ = ["Mailbox", "Refused"]

KEPT_LETTERS: Final = 1_000
KEPT_REFUSED: Final = 1_000
_LOOKED_AT: Final = 32
"""Senders whose letters one poll looks at; the others' turn comes with the next."""
_ROUNDS: Final = 64

Carrier = Callable[[Letter, bytes], bool]
"""Try to bring a letter to its reader by another way; say whether it is safe there."""


@record
class Refused:
    """Something in a mailbox that is no letter of the agent it names; it was set aside and shown to nobody."""

    path: str
    why: str


class Mailbox:
    """One agent's letters: what it sends is signed with its key, what it reads was signed with the sender's.

    Making one makes its folder, which is how others find the agent. The first ``poll`` takes the right to read, which
    one process has at a time.
    """

    def __init__(
        self, home: str | Path, team: str, agent: str, *, session: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        self.home = os.path.abspath(Path(home).expanduser())
        self.team = check_name(team, "team")
        self.agent = check_name(agent)
        self.session = session
        self.refused: list[Refused] = []
        """What was set aside since somebody last looked; whoever looks empties it."""
        self._parts = folders_of(team, agent)
        self.path = Path(self.home, *self._parts)
        self._shown = str(self.path)
        self._clock = clock
        self._lease: FileLease | None = None
        self._settled: set[str] = set()
        self._keys: dict[tuple[str, str], bytes] = {}
        self._seen: dict[str, int] = {}
        self._after = ""
        self._took = 0
        self._polling = Lock()
        self._key = self._register()
        with explained("open", self._shown):
            self._folder = open_folder(self.home, self._parts)
        self._close_folder = weakref.finalize(self, os.close, self._folder)

    # -- living here

    def _register(self) -> bytes:
        """Make the mailbox where there is none yet, and return the key it signs with."""
        key, known = key_of(self.home, self.team, self.agent), resident(self.home, self.team, self.agent)
        if key is not None and known is not None and not known.ended:
            return key
        for name in names_in(self.home, self.team):
            if name != self.agent and name.casefold() == self.agent.casefold():
                raise InputError(f"an agent called {name} is in team {self.team} already; choose another name")
        remove_retired(self.home, self.team, self._clock())
        with explained("make", self._shown):
            for name in ("tmp", "new", "cur", "bad"):
                os.close(open_folder(self.home, (*self._parts, name), create=True))
            with locked(self._shown):
                key = key_of(self.home, self.team, self.agent)
                if key is None:
                    key = os.urandom(KEY_BYTES)
                    replace_file(self.home, "/".join((*self._parts, KEY)), key.hex().encode())
                created = known.created if known is not None else iso(self._clock())
                write_resident(self.home, Resident(self.agent, self.team, self.session, 0, "", created))
        return key

    def attend(self) -> None:
        """Take the right to read; ``SessionBusy`` where another process has it."""
        if self._lease is not None and self._lease.held:
            return
        try:
            self._lease = take_lease(self.home, "/".join(self._parts), holder_text(self._clock()))
        except SessionBusy as error:
            raise SessionBusy(
                f"an agent called {self.agent} runs in team {self.team} already ({error.holder}); give this one "
                "another name, or end that one",
                holder=error.holder,
            ) from None
        known = resident(self.home, self.team, self.agent)
        now = iso(self._clock())
        created = known.created if known is not None else now
        write_resident(self.home, Resident(self.agent, self.team, self.session, os.getpid(), now, created))
        drop_orphans(self._folder, self._clock())

    def reader(self) -> str | None:
        """Say who reads here just now, or None."""
        return find_holder(self.home, "/".join(self._parts))

    def others(self) -> list[str]:
        """Return who else of the team can be written to."""
        return [one.name for one in residents(self.home, self.team) if one.name != self.agent and not one.ended]

    def retire(self) -> None:
        """Say that nobody will read here any more.

        Letters it has sent can still be read by others, and those that wait here can be looked at; where there are
        neither, the mailbox goes.
        """
        known = resident(self.home, self.team, self.agent)
        if known is not None:
            write_resident(self.home, replace(known, ended=iso(self._clock())))
            if not (self.path / "sent").exists() and not self.look(1):
                remove_resident(self.home, known)
        self.close()

    def close(self) -> None:
        """Give the right to read back; doing it twice is harmless."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
        self._close_folder()

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Send a letter; when this returns it is safe in its reader's mailbox.

        Whoever may have to send it again after a crash gives the same ``id`` again: it is shown once. ``carry`` may
        bring it another way.
        """
        reader = self._reader(to, team or self.team)
        with numbered(self.home, self._parts, reader) as number:
            letter = stamped_letter(
                id or new_uuid(),
                text,
                sender=self._me,
                to=(reader[1], to),
                sequence=number,
                time_ns=int(self._clock() * 1e9),
                summary=summary,
                control=control,
            )
            data = sealed(letter, self._key)
            if carry is None or not carry(letter, data):
                stored(self.home, reader, placed(letter), data, self._settled)
        return letter

    def _reader(self, to: str, team: str) -> tuple[str, str, str]:
        """Return the folders of a mailbox that can be written to."""
        if (team, to) == (self.team, self.agent):
            raise InputError(f"{to} is you: name somebody else")
        known = resident(self.home, team, to)
        if known is None or known.ended:
            there = [one.name for one in residents(self.home, team) if not one.ended and (team, one.name) != self._me]
            near = difflib.get_close_matches(to, there, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            named = ", ".join(there) or "none"
            raise InputError(f"nobody called {to[:80]!a} is in team {team}; there are: {named}{hint}")
        return folders_of(team, to)

    @property
    def _me(self) -> tuple[str, str]:
        return (self.team, self.agent)

    def socket_of(self, to: str, team: str | None = None) -> Path:
        """Return where the socket of an agent is, whether or not there is one."""
        return Path(self.home, *folders_of(team or self.team, to), SOCKET)

    # -- reading

    def poll(self, limit: int = 50) -> list[Letter]:
        """Return the oldest letters that wait, in each sender's order, without taking them.

        However many wait, only a few names and ``limit`` files are looked at. What is no letter of the agent it names
        goes to ``bad`` and into ``refused``.
        """
        with self._polling, explained("read", self._shown):
            self.attend()
            for _ in range(_ROUNDS):
                places, strays = self._waiting(limit)
                before = len(self.refused)
                for stray in strays:
                    self._refuse(stray, "a letter has a folder of its sender and a number, and this has not")
                letters = [letter for place in places if (letter := self._letter(place)) is not None]
                if letters or len(self.refused) == before:
                    return letters
            return []

    def _waiting(self, limit: int) -> tuple[list[Place], list[Place]]:
        """Return where the oldest letters are, and what lies there and is none."""
        folders, strays = senders_waiting(self._folder)
        folders.sort(key=lambda name: (name <= self._after, name))
        found: list[list[Place]] = []
        for sender in folders:
            places = self._in_order(sender, limit)
            if not places:
                tidied(self._folder, sender, self._clock())
                continue
            strays += [one for one in places if not one.sequence]
            found.append([one for one in places if one.sequence])
            if len(found) == _LOOKED_AT:
                self._after = sender
                break
        return list(islice(merge(*found, key=kept_as), limit)), strays

    def _in_order(self, sender: str, limit: int) -> list[Place]:
        """Return the oldest letters of a sender, none of them before one that was sent earlier.

        A folder is not read in one instant: a letter may be seen and the one before it missed. Whatever was there
        before the last letter seen is seen for certain by looking again; what is still missing then was never sent.
        """
        places = oldest(self._folder, sender, limit)
        before = self._seen.get(sender, 0)
        if _has_gap(before, places):
            last = max((one for one in places if one.sequence), key=lambda one: (one.bucket, one.file))
            strays = [one for one in places if not one.sequence]
            places = strays + [one for one in oldest(self._folder, sender, limit, upto=last) if one.sequence]
        self._seen[sender] = max([before, *(one.sequence for one in places)])
        return places

    def _letter(self, place: Place) -> Letter | None:
        """Return the letter that waits there; what is none is set aside."""
        parts = ("new", place.folder, place.bucket, place.file)
        try:
            return self.verified(read_letter(self._folder, parts, f"{self._shown}/{'/'.join(parts)}"), place)
        except FileNotFoundError:
            return None
        except (InputError, UnsafePath) as error:
            self._refuse(place, str(error))
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):  # neither a link nor a socket: the letter may be sound
                raise
            self._refuse(place, "it is no plain file")
        return None

    def verified(self, data: bytes, place: Place | None = None) -> Letter:
        """Return the letter in these bytes if its sender signed it, to this reader, for this place."""
        letter = read(data)
        who = (letter.team, letter.sender)
        if not signed(data, self._keys.get(who)):
            key = key_of(self.home, *who)  # not known yet, or made anew
            if key is None or not signed(data, key):
                raise InputError(f"it says it is from {letter.sender} of team {letter.team}, who did not sign it")
            self._keys[who] = key
        if (letter.to_team, letter.to) != self._me:
            raise InputError(f"it was written to {letter.to} of team {letter.to_team}")
        if place is not None and placed(letter) != place:
            raise InputError(f"it is from {letter.sender} and lies under another name, number or time")
        return letter

    def accept(self, data: bytes) -> Letter:
        """Put a letter that came another way into this mailbox; when this returns it is safe."""
        letter = self.verified(data)
        stored(self.home, self._parts, placed(letter), data, self._settled)
        return letter

    def _refuse(self, place: Place, why: str) -> None:
        with suppress(OSError):
            if moved(self._folder, place, "bad"):
                self.refused.append(Refused(str(self.path / "bad"), why))
                if len(self.refused) % BUCKET == 1:
                    drop_oldest(self._folder, "bad", KEPT_REFUSED)

    def taken(self, letter: Letter) -> None:
        """Put a letter away; only after it is in its reader's log. Doing it twice is harmless."""
        with self._polling, explained("put away", self._shown):
            moved(self._folder, placed(letter), "cur")
            self._took += 1
            if self._took % BUCKET == 0:
                drop_oldest(self._folder, "cur", KEPT_LETTERS)
                tidied(self._folder, placed(letter).folder, self._clock())

    def look(self, limit: int = 100, *, kept: bool = False) -> list[Letter]:
        """Return letters that wait, or with ``kept`` those that were read, oldest first; nothing is changed by it."""
        with self._polling, explained("read", self._shown):
            if kept:
                places = [(("cur", name), place) for name, place in kept_places(self._folder, limit)]
            else:
                found, _ = self._waiting(limit)
                places = [(("new", one.folder, one.bucket, one.file), one) for one in found]
            letters: list[Letter] = []
            for parts, place in places:
                with suppress(OSError, InputError, StorageError):
                    data = read_letter(self._folder, parts, f"{self._shown}/{'/'.join(parts)}")
                    letters.append(self.verified(data, place))
            return letters


def _has_gap(before: int, places: Sequence[Place]) -> bool:
    """Say whether a number is missing between the last letter that was seen and the ones found now."""
    for place in places:
        if place.sequence > before + 1:
            return True
        before = max(before, place.sequence)
    return False
