"""A file in the Reverie directory that names directories, each bound to its inode and birth time.

Another directory that takes the same path is not the one that was entered. Only the user may be able to write the file.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from ...conversation.entries import seconds
from ...errors import InputError, StorageError
from ...paths import explained, open_file, read_all, replace_file
from ...storage.lock_files import locked
from ...values import record

_AT_FDCWD: Final = -100
_NO_FOLLOW: Final = 0x100
_BTIME: Final = 0x800
_BYTES: Final = 256  # of struct statx
_BTIME_AT: Final = 80


@record
class DirectoryEntry:
    """A directory with its device, inode and birth time when it was entered (``since``), and a rule kept for it."""

    path: str
    device: int
    inode: int
    since: str
    born_ns: int | None = None
    """Its birth time; 0 if its file system has none, None in an entry of an older version."""
    rule: str = ""
    settings: str = ""
    """The digest of the rules and hooks that the user trusts in it; empty if none."""

    def is_same_directory(self) -> bool:
        """Return whether the path is still the directory that was entered, by device, inode and birth time."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
            born = birth_ns(self.path)
        except OSError:
            return False
        if not stat.S_ISDIR(found.st_mode) or (found.st_dev, found.st_ino) != (self.device, self.inode):
            return False
        if self.born_ns is None:  # a directory that is younger than the entry is another one
            return born // 1_000_000_000 <= seconds(self.since)
        return born == self.born_ns


class DirectoryFile:
    """The file ``NAME.toml`` of a Reverie directory, a list of directories; each method reads it anew."""

    def __init__(self, home: Path, name: str, key: str, comment: str) -> None:
        """Name the file, the key of its tables, and the comment that it begins with."""
        self._home = home
        self._file = f"{name}.toml"
        self._key = key
        self._comment = comment

    def entries(self) -> list[DirectoryEntry]:
        """Return all entries, oldest first; raise if the file is damaged or other users could have written it."""
        path = str(self._home / self._file)
        try:
            with explained("read", path):
                descriptor = open_file(str(self._home), self._file, os.O_RDONLY)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return []
            raise
        found = os.fstat(descriptor)
        content = read_all(descriptor)
        if found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o022:
            raise StorageError(f"{path} could have been written by others; look at it, then chmod 600 it", path=path)
        try:
            tables = cast("list[dict[str, Any]]", tomllib.loads(content.decode()).get(self._key, []))
            return [_entry_of(table) for table in tables]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StorageError(f"{path} is damaged ({error}); repair or remove it", path=path) from error

    def change(self, changed: Callable[[list[DirectoryEntry]], list[DirectoryEntry]]) -> bool:
        """Replace the entries by those that a function makes of them; return whether that changed anything."""
        with explained("lock", str(self._home)), locked(str(self._home)):
            before = self.entries()
            after = changed(before)
            if after != before:
                tables = [_table(self._key, each) for each in after]
                replace_file(str(self._home), self._file, "\n".join([f"# {self._comment}\n", *tables]).encode())
        return after != before


def entry_for(directory: Path, doing: str, rule: str = "", settings: str = "") -> DirectoryEntry:
    """Return an entry for a directory as it is now; raise ``InputError`` if it cannot be ``doing`` (trusted)."""
    try:
        str(directory).encode()
        found = os.stat(directory)
        born = birth_ns(str(directory))
    except UnicodeEncodeError as error:
        raise InputError(f"{os.fsencode(directory)!r} cannot be {doing}: its name is not UTF-8; rename it") from error
    except OSError as error:
        raise InputError(f"{directory} cannot be {doing}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise InputError(f"{directory} cannot be {doing}: it is not a directory; name one")
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return DirectoryEntry(str(directory), found.st_dev, found.st_ino, since, born, rule, settings)


def _table(key: str, entry: DirectoryEntry) -> str:
    """Return an entry as a table of the file."""
    rows = [f"path = {_quoted(entry.path)}", f"device = {entry.device}", f"inode = {entry.inode}"]
    rows += [] if entry.born_ns is None else [f"born_ns = {entry.born_ns}"]
    rows += [f"rule = {_quoted(entry.rule)}"] if entry.rule else []
    rows += [f"settings = {_quoted(entry.settings)}"] if entry.settings else []
    return "\n".join([f"[[{key}]]", *rows, f"since = {_quoted(entry.since)}", ""])


def _entry_of(table: dict[str, Any]) -> DirectoryEntry:
    return DirectoryEntry(
        str(table["path"]),
        int(table["device"]),
        int(table["inode"]),
        str(table.get("since", "")),
        int(table["born_ns"]) if "born_ns" in table else None,
        str(table.get("rule", "")),
        str(table.get("settings", "")),
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def birth_ns(path: str) -> int:
    """Return the birth time of a path itself in nanoseconds; 0 if its file system or this system has none.

    ext4, xfs, btrfs, APFS and tmpfs (Linux 5.18) have one; overlayfs has that of the file system above it.
    """
    found: Any = os.stat(path, follow_symlinks=False)
    if hasattr(found, "st_birthtime"):  # macOS and BSD
        return int(found.st_birthtime * 1_000_000_000)
    try:
        import ctypes

        statx = ctypes.CDLL(None, use_errno=True).statx
    except (ImportError, OSError, AttributeError):
        return 0
    buffer = ctypes.create_string_buffer(_BYTES)
    if statx(_AT_FDCWD, os.fsencode(path), _NO_FOLLOW, _BTIME, buffer) != 0:
        return 0
    (mask,) = struct.unpack_from("=I", buffer, 0)
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, _BTIME_AT)
    return seconds * 1_000_000_000 + nanoseconds if mask & _BTIME else 0
