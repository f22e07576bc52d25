"""Erase the letters of deleted sessions from all mailboxes of a home."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...errors import InputError
from ...layers.l7_relay import read
from ...ports import Storage
from ...values import field, record
from .directory import mailbox_owner, remove_mailbox, stored_owner

_PARTS: Final = ("new", "cur", "bad", "tmp")


@record
class SessionMail:
    """How the letters of some sessions are recognised: by owner of a mailbox, by id, and by the text that was sent.

    ``sessions`` has the folders of sessions. A text counts unless the mailbox of its sender is another session's.
    """

    sessions: set[str] = field(default_factory=lambda: set[str]())
    ids: set[str] = field(default_factory=lambda: set[str]())
    texts: set[str] = field(default_factory=lambda: set[str]())


def erase_letters(home: Path, mail: SessionMail, *, dry_run: bool = False) -> int:
    """Remove the mailboxes of sessions, and their letters in other mailboxes; return the number of letters."""
    count = 0
    mailboxes = sorted(home.glob("teams/*/*"))
    owners = {(one.parent.name, one.name): mailbox_owner(str(home), one.parent.name, one.name) for one in mailboxes}
    theirs = {place: owner.session in mail.sessions for place, owner in owners.items() if owner is not None}
    for mailbox in mailboxes:
        owner = owners[mailbox.parent.name, mailbox.name]
        if owner is not None and owner.session in mail.sessions:
            count += sum(1 for _ in _letters(mailbox))
            if not dry_run:
                remove_mailbox(str(home), owner)
            continue
        for path in _letters(mailbox):
            is_of = False
            with suppress(OSError):
                is_of = _is_of(path.read_bytes(), mail, theirs)
            if is_of:
                count += 1
                if not dry_run:
                    path.unlink(missing_ok=True)
    return count


def erase_stored_letters(storage: Storage, mail: SessionMail, *, dry_run: bool = False) -> int:
    """Do the same to the mailboxes in a storage that several machines share."""
    count, keys = 0, list(storage.list("teams"))
    owners = {
        place: stored_owner(storage, *place)
        for place in {(team, name) for _, team, name, *_ in (key.split("/") for key in keys)}
    }
    theirs = {place: owner.session in mail.sessions for place, owner in owners.items() if owner is not None}
    for key in keys:
        _, team, name, *rest = key.split("/")
        is_letter = rest[0] in _PARTS
        if theirs.get((team, name)) or (is_letter and _is_of(storage.load(key) or b"", mail, theirs)):
            count += is_letter
            if not dry_run:
                storage.delete(key)
    return count


def _letters(mailbox: Path) -> Iterator[Path]:
    for part in _PARTS:
        for folder, _, names in os.walk(mailbox / part):
            yield from (Path(folder, name) for name in sorted(names))


def _is_of(data: bytes, mail: SessionMail, theirs: Mapping[tuple[str, str], bool]) -> bool:
    with suppress(InputError):
        letter = read(data)
        sent = letter.text in mail.texts and theirs.get((letter.team, letter.sender), True)
        return sent or letter.id in mail.ids
    return False
