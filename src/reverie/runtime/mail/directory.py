"""Who has a mailbox: how agents of a team find each other, over all processes of this user."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from ...conversation.entries import seconds
from ...errors import InputError, StorageError
from ...layers.l7_relay import check_name
from ...paths import open_plain, opened_folder, read_all, replace_file
from ...values import record, replace
from .files import AGENT, folders_of

__all__ = [
    "Resident",
    "names_in",
    "remove_resident",
    "remove_retired",
    "resident",
    "residents",
    "write_resident",
]

RETIRED_SECONDS: Final = 30 * 86_400.0
"""How long the mailbox of an agent that ended is kept: its key is needed while letters of it are unread."""


@record
class Resident:
    """An agent that has a mailbox."""

    name: str
    team: str
    session: str = ""
    pid: int = 0
    """The process that read here last."""
    started: str = ""
    """When that process began to read."""
    created: str = ""
    ended: str = ""
    """When it said that it reads no more; empty while letters are welcome."""


def names_in(home: str | Path, team: str) -> list[str]:
    """Return the names of a team's mailboxes, sorted, whoever lives there."""
    try:
        with opened_folder(os.path.abspath(home), ("teams", check_name(team, "team"))) as folder:
            return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def residents(home: str | Path, team: str) -> list[Resident]:
    """Return the agents of a team that have a mailbox, by name."""
    found = [resident(os.path.abspath(home), team, name) for name in names_in(home, team)]
    return [one for one in found if one is not None]


def resident(home: str, team: str, name: str) -> Resident | None:
    """Return what is known of an agent; None where no mailbox has that name."""
    try:
        with opened_folder(home, folders_of(team, name)) as folder:
            data = read_all(open_plain(folder, AGENT, os.O_RDONLY, AGENT))
        known = msgspec.json.decode(data, type=Resident)
    except (OSError, InputError, StorageError, ValueError, RecursionError):
        return None
    return replace(known, name=name, team=team)


def remove_retired(home: str, team: str, now: float) -> None:
    """Remove the mailboxes of agents that ended long ago."""
    for one in residents(home, team):
        if one.ended and now - seconds(one.ended) > RETIRED_SECONDS:
            remove_resident(home, one)


def remove_resident(home: str, known: Resident) -> None:
    """Remove a mailbox and all that is in it."""
    with suppress(OSError), opened_folder(home, folders_of(known.team, known.name)[:-1]) as folder:
        shutil.rmtree(known.name, dir_fd=folder)


def write_resident(home: str, known: Resident) -> None:
    """Make known who lives in a mailbox."""
    replace_file(home, "/".join((*folders_of(known.team, known.name), AGENT)), msgspec.json.encode(known))
