"""The files beside the memories of a directory: daily logs, the list of shown memories, reports of dreams."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import datetime
from typing import Final, Protocol

from ...keys import check_key
from ...paths import (
    append_line,
    explain,
    explained,
    open_file,
    opened_folder,
    refuse_unless_plain,
    replace_file,
    sync_folder,
)
from ...values import record
from .head_files import READ_FLAGS, refuse_large
from .trust import Trust, claimed, worst

_LINE: Final = re.compile(r"- (\d\d:\d\d) \((user|agent|unconfirmed)(?:, ([^()\s][^()]{0,199}))?\) (\S.*)")
_FILE: Final = re.compile(r"logs/(\d{4})/(\d\d)/(\1-\2-\d\d)\.md")
_BULLET: Final = re.compile(r"\s*(?:[-*+]\s+)?(\S.*)")


def read_plain(root: str, file: str, *, is_memory: bool = False) -> bytes | None:
    """Return the bytes of a plain file beneath the root; None if it does not exist.

    Raise ``StorageError`` if it cannot be read or is not a plain file, or too large for a memory if ``is_memory``.
    """
    *folders, name = check_key(file)
    path = f"{root}/{file}"
    try:
        if not folders:
            return _read_whole(os.open(path, READ_FLAGS), path, is_memory)
        with opened_folder(root, folders) as folder:
            return _read_whole(os.open(name, READ_FLAGS, dir_fd=folder), path, is_memory)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise explain(error, "read", path) from error


def _read_whole(descriptor: int, path: str, is_memory: bool) -> bytes:
    try:
        found = os.fstat(descriptor)
        refuse_unless_plain(found, path)
        if is_memory:
            refuse_large(found.st_size, path)
        data = os.read(descriptor, found.st_size + 1)
        while len(data) != found.st_size and (more := os.read(descriptor, 1 << 20)):
            data += more
        return data
    finally:
        os.close(descriptor)


class SideFiles(Protocol):
    """Files named by their paths relative to a memory directory, on this machine or in a storage of several."""

    def path(self, file: str) -> str:
        """Return the place of a file, for messages."""
        ...

    def read(self, file: str) -> bytes | None:
        """Return the bytes of a file; None if it does not exist."""
        ...

    def append(self, file: str, line: bytes) -> None:
        """Append a line durably, and create the file if needed."""
        ...

    def replace(self, file: str, data: bytes) -> None:
        """Create or replace a file atomically and durably."""
        ...

    def delete(self, file: str) -> None:
        """Delete a file, if it exists."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the files below a folder, sorted."""
        ...


class DirectoryFiles:
    """The files of one directory on this machine."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)

    def path(self, file: str) -> str:
        """Return the absolute path of a file."""
        return os.path.join(self._root, file)

    def read(self, file: str) -> bytes | None:
        """Return the bytes of a plain file; None if it does not exist; raise ``StorageError`` for any other."""
        return read_plain(self._root, file)

    def append(self, file: str, line: bytes) -> None:
        """Append a line durably, and create the file if needed."""
        check_key(file)
        with explained("append to", self.path(file)):
            descriptor = open_file(self._root, file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            append_line(descriptor, line, path=self.path(file))
        finally:
            os.close(descriptor)

    def replace(self, file: str, data: bytes) -> None:
        """Create or replace a file atomically and durably."""
        replace_file(self._root, file, data)

    def delete(self, file: str) -> None:
        """Delete a file, if it exists."""
        *folders, name = check_key(file)
        gone = suppress(FileNotFoundError, NotADirectoryError)
        with explained("delete", self.path(file)), gone, opened_folder(self._root, folders) as folder:
            os.unlink(name, dir_fd=folder)
            sync_folder(folder)

    def names(self, folder: str) -> list[str]:
        """Return the files below a folder, sorted, without following links."""
        found: list[str] = []
        for at, _, names in os.walk(self.path(folder), followlinks=False):
            found += [os.path.relpath(os.path.join(at, name), self._root).replace(os.sep, "/") for name in names]
        return sorted(found)


@record
class LogLine:
    """One note of a daily log, with its day, session (``source``) and trust."""

    day: str
    time: str
    """Local hour and minute of the note; empty if the line has none."""
    text: str
    source: str
    trust: Trust
    file: str
    number: int
    """The line number in the file, from 1."""


def log_line(moment: datetime, text: str, *, source: str = "", trust: Trust = "agent") -> str:
    """Return a note as one line of a daily log, with time, trust and source."""
    origin = re.sub(r"[()\s]+", " ", source).strip()[:200]
    return f"- {moment:%H:%M} ({trust}{f', {origin}' if origin else ''}) {' '.join(text.split())}"


def day_of(file: str) -> str:
    """Return the ISO day of a log file from its path; empty if that is not the path of a log."""
    found = _FILE.fullmatch(file)
    return found[3] if found else ""


def read_log(file: str, text: str) -> list[LogLine]:
    """Return the notes in a daily log; lines in another form count too, headings and rules do not."""
    found: list[LogLine] = []
    for number, line in enumerate(text.splitlines(), 1):
        noted = _LINE.fullmatch(line.rstrip())
        if noted:
            trust = worst((claimed(noted[2]), "agent"))
            found.append(LogLine(day_of(file), noted[1], noted[4], noted[3] or "", trust, file, number))
        elif (own := _BULLET.fullmatch(line.rstrip())) and not re.match(r"#|[-=*_]{3,}$", own[1]):
            found.append(LogLine(day_of(file), "", own[1], "", "agent", file, number))
    return found
