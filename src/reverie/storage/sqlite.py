"""Open a private SQLite file."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from ..paths import open_root

DATABASE_ENDINGS: Final = ("", "-wal", "-shm")
"""The endings of the files of a database: its own, and those of its write-ahead log."""
_PAUSE_SECONDS: Final = 0.02


def open_database(path: Path, *, busy_seconds: float, autocommit: bool = False) -> sqlite3.Connection:
    """Open a SQLite file in WAL mode, creating it readable by its owner only; a symbolic link is refused.

    The connection may move between threads and waits ``busy_seconds`` for the locks of others. With ``autocommit`` the
    caller begins and ends every transaction.
    """
    folder = open_root(str(path.parent), create=True)
    try:
        descriptor = os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            os.fchmod(descriptor, 0o600)  # the file may exist with a wider mode
        finally:
            os.close(descriptor)
    finally:
        os.close(folder)
    isolation = None if autocommit else "DEFERRED"
    connection = sqlite3.connect(path, timeout=busy_seconds, check_same_thread=False, isolation_level=isolation)
    try:
        _set_wal_mode(connection, busy_seconds)
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open an existing SQLite file that this user cannot write; rows still in a write-ahead log may be missing.

    Raise ``FileNotFoundError`` if there is none.
    """
    os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
    for option in ("mode=ro", "immutable=1"):  # without a writable folder, SQLite opens a WAL file only as immutable
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{option}", uri=True, check_same_thread=False)
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
            return connection
        except sqlite3.OperationalError:
            connection.close()
            if option == "immutable=1":
                raise
    raise AssertionError("unreachable")


def delete_database(path: Path) -> None:
    """Delete the files of a database, if there are any."""
    for ending in DATABASE_ENDINGS:
        Path(f"{path}{ending}").unlink(missing_ok=True)


def is_damage(error: Exception) -> bool:
    """Return whether an error means that a database's content is damaged, not busy, full or unreachable."""
    if not isinstance(error, sqlite3.OperationalError):
        return True
    return any(word in str(error) for word in ("no such table", "no such column", "malformed", "schema", "decode"))


def _set_wal_mode(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Set WAL mode; SQLite itself does not wait here for a process that is setting up the same new file."""
    until = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        time.sleep(_PAUSE_SECONDS)
