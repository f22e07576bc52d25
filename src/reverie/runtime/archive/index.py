"""The index of the archive: each file of the last pass, its status, and the logs that its sessions became."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import msgspec

from ...paths import open_no_follow, replace_file

NAME: Final = "archive.json"


class KeptFile(msgspec.Struct, array_like=True):
    """A file that was kept: its status, its agent, its sessions by log key, and the times of a database's sessions."""

    stamp: tuple[int, ...]
    format: str
    keys: list[str]
    changed: dict[str, int] = {}


class ArchiveIndex(msgspec.Struct):
    """All files that were ever kept, by path."""

    files: dict[str, KeptFile] = {}


def load_index(home: str) -> ArchiveIndex:
    """Return the index of a home; an empty one if there is none or it is damaged, so that everything is read again."""
    with suppress(OSError, msgspec.DecodeError), open(os.path.join(home, NAME), "rb", opener=open_no_follow) as stream:
        return msgspec.json.decode(stream.read(), type=ArchiveIndex)
    return ArchiveIndex()


def save_index(home: str, index: ArchiveIndex) -> None:
    """Replace the index of a home."""
    replace_file(home, NAME, msgspec.json.encode(index))


def stamp_of(path: str, found: os.stat_result) -> tuple[int, ...]:
    """Return the status of a file by which a change shows; of a database also that of its journal."""
    stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
    if path.endswith(".db"):
        with suppress(OSError):
            journal = os.stat(f"{path}-wal")
            return (*stamp, journal.st_size, journal.st_mtime_ns)
    return stamp
