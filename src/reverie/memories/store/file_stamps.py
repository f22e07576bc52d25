"""The memory files of a directory with their stamps, to find changed files without reading any.

A hook runs this in milliseconds, so it imports nothing that the rest of the store needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from .names import FOLDERS, is_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_MAX_DEPTH: Final = 4
FileStamp = tuple[int, int, int, int, int]
"""Modification time, change time, size, inode and link count of a file: equal stamps mean an unchanged file."""


def stamped_files(root: str, prefix: str = "", depth: int = 1) -> Iterator[tuple[str, FileStamp]]:
    """Yield the relative path and stamp of each memory file beneath ``root``; symbolic links are not followed.

    ``prefix`` and ``depth`` are set only by the function itself, for subfolders.
    """
    with suppress(OSError), os.scandir(os.path.join(root, prefix) if prefix else root) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            name = f"{prefix}{entry.name}"
            if entry.name.startswith("."):
                continue
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    if depth < _MAX_DEPTH and (prefix or entry.name not in FOLDERS):
                        yield from stamped_files(root, f"{name}/", depth + 1)
                elif entry.name.endswith(".md") and is_memory(name):
                    found = entry.stat(follow_symlinks=False)
                    yield name, (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_nlink)
