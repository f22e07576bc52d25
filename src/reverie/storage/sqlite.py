"""Open a private SQLite file."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..paths import closed_after, open_root

DATABASE_ENDINGS: Final = ("", "-wal", "-shm")
"""The endings of the files of a database: its own, and those of its write-ahead log."""
_PAUSE_SECONDS: Final = 0.02


def open_database(path: Path, *, busy_seconds: float, autocommit: bool = False) -> sqlite3.Connection:
    """Open a SQLite file in WAL mode, creating it readable by its owner only; a symbolic link is refused.

    The connection may move between threads and waits ``busy_seconds`` for the locks of others. With ``autocommit`` the
    caller begins and ends every transaction.
    """
    _make_private(path)
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
    """Open a SQLite file that this user cannot write, without unmerged rows; raise if there is none."""
    _refuse_other_kinds(path, path.lstat().st_mode)
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


def _make_private(path: Path) -> None:
    """Create a file that only its owner can read; raise OSError for a link, or if this user cannot write the file.

    An existing file is not opened: closing it would end the locks that other connections of this process hold on it,
    and another process could then remove the write-ahead log that they use.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with closed_after(open_root(str(path.parent), create=True)) as folder:
        with suppress(FileExistsError):
            with closed_after(os.open(path.name, flags, 0o600, dir_fd=folder)) as descriptor:
                os.fchmod(descriptor, 0o600)  # the umask may take rights of the owner
            return
        mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
        _refuse_other_kinds(path, mode)
        if not os.access(path.name, os.R_OK | os.W_OK, dir_fd=folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        if stat.S_IMODE(mode) != 0o600:
            os.chmod(path.name, 0o600, dir_fd=folder)


def _refuse_other_kinds(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        number = errno.ELOOP if stat.S_ISLNK(mode) else errno.EISDIR
        raise OSError(number, os.strerror(number), str(path))


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
