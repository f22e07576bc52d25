"""Opening a private SQLite file beside other processes."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from reverie.storage.sqlite import open_database


def _hold(path: Path) -> sqlite3.Connection:
    """Return a connection that holds the write lock of a new file, as a process in the middle of setting it up does."""
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("CREATE TABLE rows (row)")
    holder.execute("BEGIN IMMEDIATE")
    return holder


def test_opening_waits_for_a_process_that_sets_the_file_up(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    holder = _hold(path)
    release = threading.Timer(0.3, lambda: holder.execute("COMMIT"))
    release.start()
    connection = open_database(path, busy_seconds=60)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    release.join()
    connection.close()
    holder.close()


def test_opening_gives_up_after_the_time_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    holder = _hold(path)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        open_database(path, busy_seconds=0.05)
    holder.close()
