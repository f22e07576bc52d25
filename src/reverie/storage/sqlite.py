"""Open a private SQLite file."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from ..paths import open_root

__all__ = ["open_database"]

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
