"""The index of the archive: each file of the last pass, its status, and the logs that its sessions became."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import msgspec

from ...importers import FORMATS
from ...paths import open_no_follow, replace_file

NAME: Final = "archive.json"
UNREAD: Final = ""
"""The format of a file that no reader knew; it is read again when it changes or a new reader comes."""
_READERS: Final = " ".join(sorted(one.name for one in FORMATS))


class KeptFile(msgspec.Struct, array_like=True):
    """A file that was kept: its status, its agent, its sessions by log key, and the times of a database's sessions."""

    stamp: tuple[int, ...]
    format: str
    keys: list[str]
    changed: dict[str, int] = {}


class ArchiveIndex(msgspec.Struct):
    """All files that were ever kept, by path, and the formats that could be read then."""

    files: dict[str, KeptFile] = {}
    readers: str = _READERS


def load_index(home: str) -> ArchiveIndex:
    """Return the index of a home; an empty one if there is none or it is damaged, so that everything is read again."""
    with suppress(OSError, msgspec.DecodeError), open(os.path.join(home, NAME), "rb", opener=open_no_follow) as stream:
        index = msgspec.json.decode(stream.read(), type=ArchiveIndex)
        if index.readers != _READERS:
            index.files = {path: file for path, file in index.files.items() if file.format != UNREAD}
            index.readers = _READERS
        return index
    return ArchiveIndex()


def save_index(home: str, index: ArchiveIndex) -> None:
    """Replace the index of a home."""
    replace_file(home, NAME, msgspec.json.encode(index))


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
