"""Opening a private SQLite file beside other processes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from reverie.storage.sqlite import open_database, open_read_only


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


OTHER = (
    "import sqlite3, sys; other = sqlite3.connect(sys.argv[1]); print(other.execute('SELECT * FROM rows').fetchall())"
)


def _opened_by_hand(path: Path) -> None:
    """Open and close the file itself: the known-bad twin."""
    os.close(os.open(path, os.O_RDWR))


@pytest.mark.requirement("D4")
@pytest.mark.parametrize("act", [open_database, open_read_only, _opened_by_hand])
def test_opening_a_file_again_leaves_the_locks_of_this_process_alone(tmp_path: Path, act: Any) -> None:
    path = tmp_path / "x.sqlite"
    connection = open_database(path, busy_seconds=60)
    with connection:
        connection.execute("CREATE TABLE rows (row)")
        connection.execute("INSERT INTO rows VALUES (1)")
    other = act(path, busy_seconds=60) if act is open_database else act(path)
    # A process that closes the file as the last one removes the write-ahead log; this one is not the last.
    subprocess.run([sys.executable, "-c", OTHER, str(path)], check=True, timeout=60, capture_output=True)
    assert Path(f"{path}-wal").exists() == (act is not _opened_by_hand)
    for one in filter(None, (other, connection)):
        one.close()


def test_a_file_stays_private_and_a_link_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    open_database(path, busy_seconds=1).close()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    open_database(path, busy_seconds=1).close()
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link.sqlite").symlink_to(path)
    for act in (lambda one: open_database(one, busy_seconds=1), open_read_only):
        with pytest.raises(OSError, match="symbolic links"):
            act(tmp_path / "link.sqlite")
