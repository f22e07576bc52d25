"""The files of a memory directory and their heads, which a process keeps to read only files that changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from ...errors import StorageError
from ...paths import closed_after, open_folder, refuse_unless_plain
from .names import FOLDERS, is_memory
from .records import MemoryRecord
from .trust import Trust

JOURNAL: Final = ".journal"
JOURNAL_FILE: Final = f"{JOURNAL}/journal.jsonl"
READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # never block on a pipe
LOCK: Final = "lock"
_MAX_DEPTH: Final = 3
_HEAD_BYTES: Final = 2_048
MAX_MEMORY_BYTES: Final = 2**22
"""A larger file is not a memory: it is reported, and only its size is looked at."""
_MAX_HEAD_BYTES: Final = 70_000
_GRAIN_NS: Final = 250_000_000
"""The age in nanoseconds from which a file has settled, more than one clock tick."""
_COARSE_GRAIN_NS: Final = 2_500_000_000
_KIND: Final = 0o170000
_REGULAR: Final = 0o100000


def memory_files(root: str) -> Iterator[tuple[str, int, str]]:
    """Yield path, open folder descriptor and name of each memory file; use the descriptor before the next step."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        try:
            folder = open_folder(root, parts)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            with os.scandir(folder) as found:
                entries = [(one.name, one.is_dir(follow_symlinks=False)) for one in found if one.name[0] != "."]
            folders = [name for name, is_folder in entries if is_folder and (parts or name not in FOLDERS)]
            waiting += [(*parts, name) for name in sorted(folders) if len(parts) < _MAX_DEPTH]
            prefix = "/".join([*parts, ""]) if parts else ""
            for name in sorted([name for name, is_folder in entries if not is_folder and name.endswith(".md")]):
                if is_memory(prefix + name):
                    yield prefix + name, folder, name
        finally:
            os.close(folder)


def refuse_large(size: int, file: str) -> None:
    """Raise ``StorageError`` for the size of a file that is too large to be a memory."""
    if size > MAX_MEMORY_BYTES:
        most = MAX_MEMORY_BYTES // 2**20
        raise StorageError(
            f"{file} has {size:,} bytes, and a memory at most {most} MB; shorten it or move it away", path=file
        )


def read_head(folder: int, name: str, file: str) -> tuple[bytes, os.stat_result]:
    """Return the first bytes of a file, as far as its front matter can reach, and its status; raise if special."""
    with closed_after(os.open(name, READ_FLAGS, dir_fd=folder)) as descriptor:
        found = os.fstat(descriptor)
        if found.st_mode & _KIND != _REGULAR or found.st_nlink > 1:
            refuse_unless_plain(found, file)
        refuse_large(found.st_size, file)
        head = os.read(descriptor, _HEAD_BYTES)
        if len(head) == _HEAD_BYTES and b"\n---" not in head[3:]:
            head += os.read(descriptor, _MAX_HEAD_BYTES)
        return head, found


def print_of(found: os.stat_result) -> int:
    """Return a fingerprint of a file's status that differs whenever the file may have changed."""
    return hash((found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_nlink))


def has_settled(found: os.stat_result, now_ns: int) -> bool:
    """Say whether a file's last change is so old that another change will alter its times."""
    changed = found.st_ctime_ns
    return changed < now_ns - (_GRAIN_NS if changed % 1_000_000_000 else _COARSE_GRAIN_NS)


class Head(NamedTuple):
    """The cached head of one memory file: its fields without the body."""

    print: int
    """The fingerprint of the file's status, see ``print_of``."""
    version: str
    """The hash of the file's bytes; empty if it was not needed yet."""
    claim: Trust
    """The trust that the file itself claims."""
    memory: MemoryRecord
    """The memory without its body, with its trust at the last scan."""
