"""The index of the archive: each file of the last pass, its status, and the logs that its sessions became."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from typing import Final

import msgspec

from ...importers import FORMATS
from ...paths import open_no_follow, replace_file

NAME: Final = "archive.json"
UNREAD: Final = ""
"""The format of a file that no reader knew; it is read again when it changes or a new reader comes."""
_UNPACKER: Final = "zstandard"


class KeptFile(msgspec.Struct, array_like=True):
    """A file that was kept: its status, its agent, its sessions by log key, and the times of a database's sessions."""

    stamp: tuple[int, ...]
    format: str
    keys: list[str]
    changed: dict[str, int] = {}
    problem: str = ""
    """The reason why the file or a session of it could not be kept; only the first pass reports it as a failure."""


class ArchiveIndex(msgspec.Struct):
    """All files that were ever kept, by path, the formats that could be read then, and deleted sessions by log name."""

    files: dict[str, KeptFile] = {}
    readers: str = ""
    deleted: set[str] = set()


def load_index(home: str) -> ArchiveIndex:
    """Return the index of a home; an empty one if there is none or it is damaged, so that everything is read again."""
    with suppress(OSError, msgspec.DecodeError), open(os.path.join(home, NAME), "rb", opener=open_no_follow) as stream:
        index = msgspec.json.decode(stream.read(), type=ArchiveIndex)
        if index.readers != _readers():
            index.files = {path: file for path, file in index.files.items() if file.format != UNREAD}
            index.readers = _readers()
        return index
    return ArchiveIndex(readers=_readers())


def _readers() -> str:
    names = [one.name for one in FORMATS]
    return " ".join(sorted([*names, _UNPACKER] if find_spec(_UNPACKER) else names))


def save_index(home: str, index: ArchiveIndex) -> None:
    """Replace the index of a home; a session that was deleted in the meantime stays deleted."""
    index.deleted |= load_index(home).deleted
    replace_file(home, NAME, msgspec.json.encode(index))


def note_deleted(home: str, names: Iterable[str]) -> None:
    """Note that the user deleted the sessions with these log names, so that no pass and no hook files them again."""
    index = load_index(home)
    index.deleted |= set(names)
    save_index(home, index)


def stored_logs(home: str) -> set[str]:
    """Return the keys of all logs in a home, from the names in its folders alone."""
    found: set[str] = set()
    with suppress(OSError):
        for project in os.listdir(os.path.join(home, "projects")):
            with suppress(OSError):
                names = os.listdir(os.path.join(home, "projects", project))
                found.update(f"projects/{project}/{name}" for name in names if name.endswith(".jsonl"))
    return found


def stamp_of(path: str, found: os.stat_result) -> tuple[int, ...]:
    """Return the status of a file by which a change shows; of a database also that of its journal."""
    stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    if path.endswith(".db"):
        with suppress(OSError):
            journal = os.stat(f"{path}-wal")
            return (*stamp, journal.st_size, journal.st_mtime_ns)
    return stamp
