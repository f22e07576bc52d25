"""The directory of mailboxes, by which the agents of a team find each other across all processes of this user."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from ...errors import InputError, StorageError
from ...layers.l7_relay import check_name
from ...paths import opened_folder
from ...ports import Storage
from ...storage.files import FileStorage
from ...values import record, replace
from .files import AGENT, folders_of, stored_key

RETIRED_SECONDS: Final = 30 * 86_400.0
"""How long the mailbox of an ended agent is kept; its key verifies letters that are still unread."""


@record
class MailboxOwner:
    """An agent that has a mailbox."""

    name: str
    team: str
    session: str = ""
    """The key of its session's folder; an older version wrote only its name."""
    pid: int = 0
    """The last process that read this mailbox."""
    started: str = ""
    """The time that process started to read."""
    created: str = ""
    ended: str = ""
    """The time the agent stopped to read for good; empty while it accepts letters."""


def mailbox_names(home: str | Path, team: str) -> list[str]:
    """Return the names in a team's folder of mailboxes, sorted; an empty list if there is no such team."""
    try:
        with opened_folder(os.path.abspath(home), ("teams", check_name(team, "team"))) as folder:
            return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def mailbox_owners(home: str | Path, team: str) -> list[MailboxOwner]:
    """Return a list of the owners of a team's valid mailboxes, also ended ones, sorted by name."""
    found = [mailbox_owner(os.path.abspath(home), team, name) for name in mailbox_names(home, team)]
    return [one for one in found if one is not None]


def mailbox_owner(home: str, team: str, name: str) -> MailboxOwner | None:
    """Return the owner of a mailbox of a home; None if there is no valid mailbox of that name."""
    return stored_owner(FileStorage(home), team, name)


def stored_owner(storage: Storage, team: str, name: str) -> MailboxOwner | None:
    """Return the owner of a mailbox; None if there is no valid mailbox of that name.

    An owner whose record is damaged or lost is still there while the key of the mailbox is.
    """
    try:
        data = storage.load(owner_key(team, name))
        known = msgspec.json.decode(data or b"", type=MailboxOwner)
    except (InputError, ValueError, RecursionError, StorageError) as error:
        if isinstance(error, InputError) or stored_key(storage, team, name) is None:
            return None
        known = MailboxOwner(name, team)
    return replace(known, name=name, team=team)


def owner_key(team: str, name: str) -> str:
    """Return the storage key of the owner of a mailbox; raise ``InputError`` for an invalid name."""
    return "/".join((*folders_of(team, name), AGENT))


def remove_mailbox(home: str, known: MailboxOwner) -> None:
    """Remove a mailbox with all its letters; a failure is ignored."""
    with suppress(OSError), opened_folder(home, folders_of(known.team, known.name)[:-1]) as folder:
        shutil.rmtree(known.name, dir_fd=folder)
