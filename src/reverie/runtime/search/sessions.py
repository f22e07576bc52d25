"""Search over past sessions: every message of every log of a home, found by its words with no model.

The index in ``<home>/search.sqlite`` follows the logs: logs only grow, so only what is new in one is read. It holds
nothing that the logs do not say; a damaged one is thrown away and made anew.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from ...conversation.entries import Entry, decode_entry
from ...errors import StorageError
from ...events import FellBack, Listener
from ...memories.recall.dialogue import SessionRanking, Weights, rank
from ...memories.recall.terms import snippet
from ...paths import explained, open_folder, open_plain, open_root
from ...values import record, replace
from .index import LogRow, Rows, connected
from .log_text import logs_in, mark_of, messages_in, speaker_of, stamp_of, text_of_entry, whole_lines

__all__ = ["FILE_NAME", "Found", "Refreshed", "SessionSearch"]

T = TypeVar("T")

FILE_NAME: Final = "search.sqlite"
_LOCK: Final = ".reverie-search.lock"
_TRIES: Final = 3


@record
class Found:
    """A message found: where it is, who said it when, and the part that has the words asked for."""

    session: str
    project: str
    handle: str
    """The message's uuid, by which ``reverie read`` opens it."""
    kind: str
    speaker: str
    time: str
    snippet: str
    score: float


@record
class Refreshed:
    """What following the logs took."""

    logs: int = 0
    """Logs of which something was read."""
    messages: int = 0
    bytes: int = 0
    removed: int = 0
    """Logs that are gone and whose rows were removed."""
    restarted: int = 0
    """Logs that were not what they had been, and were read from the start."""


class SessionSearch:
    """The searchable past of a home; one thread at a time, any number of processes."""

    def __init__(
        self,
        home: Path,
        *,
        listener: Listener | None = None,
        weights: Weights | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """``progress`` is told how many of how many changed logs are read; what it raises ends the reading there."""
        self.path = home / FILE_NAME
        self._home = str(home)
        self._listener = listener
        self._progress = progress
        self._weights = weights or Weights()
        self._opened: tuple[sqlite3.Connection, Rows, int] | None = None

    def __enter__(self) -> SessionSearch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(sqlite3.Error):
                opened[0].close()

    # -- the doors

    def search(self, query: str, *, project: str | None = None, limit: int = 10, refresh: bool = True) -> list[Found]:
        """Return the messages a question is most likely about, best first."""

        def searched(rows: Rows) -> list[Found]:
            follow = refresh
            for _ in range(_TRIES):
                if follow:
                    self._refreshed(rows)
                with self._transaction("BEGIN"):  # one state of the rows, whatever others add meanwhile
                    shown = self._shown(rows, self._ranked(rows, query, project, limit))
                if shown is not None:
                    return shown
                follow = True  # a log is not what it was: follow it and look again
            return []

        return self._sturdy(searched)

    def rank(self, query: str, *, project: str | None = None, limit: int = 10) -> SessionRanking:
        """Return what a question finds by the rows alone, sessions included, without reading the messages found."""

        def ranked(rows: Rows) -> SessionRanking:
            with self._transaction("BEGIN"):
                return self._ranked(rows, query, project, limit)

        return self._sturdy(ranked)

    def _ranked(self, rows: Rows, query: str, project: str | None, limit: int) -> SessionRanking:
        rows.look()
        within = None if project is None else list(rows.keys(project))
        return rank(query, rows, limit=limit, weights=self._weights, within=within)

    def keys(self, project: str | None = None) -> dict[int, str]:
        """Return the keys of the logs that are indexed, by the number that ``rank`` gives a session."""
        return self._sturdy(lambda rows: rows.keys(project))

    def refresh(self) -> Refreshed:
        """Follow the logs: read what is new in them, and remove the rows of those that are gone."""
        return self._sturdy(self._refreshed)

    def forget(self, key: str) -> bool:
        """Remove everything of one log, as a purge does; say whether there was anything."""
        if not self.path.exists():
            return False

        def forgotten(rows: Rows) -> bool:
            with self._transaction():
                row = rows.log(key)
                if row is not None:
                    rows.remove(row.id)
            if row is not None:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # nor is it left in the journal
            return row is not None

        return self._sturdy(forgotten)

    def rebuild(self) -> Refreshed:
        """Throw the index away and read every log again."""
        self._discard(_inode(self.path))
        return self.refresh()

    # -- following the logs

    def _refreshed(self, rows: Rows) -> Refreshed:
        total = Refreshed()
        known, there = rows.logs(), dict(logs_in(self._home))
        changed = [
            key
            for key, found in there.items()
            if (row := known.get(key)) is None or (row.inode, row.size, row.mtime) != stamp_of(found)
        ]
        for number, key in enumerate(changed):
            if self._progress is not None:
                self._progress(number, len(changed))
            total = _sum(total, self._follow(rows, key))
        gone = [row for key, row in known.items() if key not in there]
        for row in gone:
            with self._transaction():
                if not os.path.lexists(os.path.join(self._home, row.key)) and rows.log(row.key):
                    rows.remove(row.id)
                    total = replace(total, removed=total.removed + 1)
        return total

    def _follow(self, rows: Rows, key: str) -> Refreshed:
        """Read what is new in one log; from the start where it is not the log it was."""
        *folders, name = key.split("/")
        path = os.path.join(self._home, key)
        with explained("read", path), self._transaction():
            try:
                folder = open_folder(self._home, folders)
            except FileNotFoundError:
                return Refreshed()
            try:
                descriptor = open_plain(folder, name, os.O_RDONLY, path)
            except (OSError, StorageError) as error:
                self._tell(f"{path}: {error}; its messages cannot be found")
                return Refreshed()
            finally:
                os.close(folder)
            try:
                return self._read(rows, key, descriptor)
            finally:
                os.close(descriptor)

    def _read(self, rows: Rows, key: str, descriptor: int) -> Refreshed:
        found = os.fstat(descriptor)
        row, restarted = rows.log(key), 0
        if row is not None and (found.st_size < row.offset or row.mark != mark_of(descriptor, row.offset)):
            rows.remove(row.id)
            row, restarted = None, 1
        row = row or rows.begin(key)
        offset = start = row.offset
        messages = 0
        while offset < found.st_size:
            data = whole_lines(descriptor, offset, found.st_size)
            if not data:
                break  # a line that is still being written
            some = list(messages_in(data, offset))
            rows.add(row.id, some)
            messages += len(some)
            offset += len(data)
        inode, size, mtime = stamp_of(found)
        rows.reached(LogRow(row.id, key, offset, inode, size, mtime, mark_of(descriptor, offset)))
        return Refreshed(1, messages, offset - start, 0, restarted)

    # -- showing

    def _shown(self, rows: Rows, ranked: SessionRanking) -> list[Found] | None:
        """Return what was found with its text, read from the logs; None where a log is not what it was."""
        numbers: dict[int, list[int]] = {}
        for hit in ranked.messages:
            numbers.setdefault(hit.session, []).append(hit.number)
        entries = {log: self._entries(rows, log, some) for log, some in numbers.items()}
        shown: list[Found] = []
        for hit in ranked.messages:
            entry = entries[hit.session].get(hit.number)
            if entry is None:
                return None
            _, project, session = rows.key_of(hit.session).split("/", 2)
            shown.append(
                Found(
                    session.removesuffix(".jsonl"),
                    project,
                    entry.uuid,
                    entry.kind,
                    speaker_of(entry),
                    entry.time,
                    snippet(text_of_entry(entry), ranked.words),
                    round(hit.score, 4),
                )
            )
        return shown

    def _entries(self, rows: Rows, log: int, numbers: Sequence[int]) -> dict[int, Entry]:
        """Read messages from their log, those that are still where they were."""
        places = rows.places(log, numbers)
        *folders, name = rows.key_of(log).split("/")
        found: dict[int, Entry] = {}
        with suppress(OSError, StorageError):
            folder = open_folder(self._home, folders)
            try:
                descriptor = open_plain(folder, name, os.O_RDONLY, name)
            finally:
                os.close(folder)
            try:
                for number, (offset, length, uuid) in places.items():
                    with suppress(ValueError):
                        entry = decode_entry(os.pread(descriptor, length, offset))
                        if entry.uuid == uuid:
                            found[number] = entry
            finally:
                os.close(descriptor)
        return found

    # -- the file

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._opened is not None
        return self._opened[0]

    @contextmanager
    def _using(self) -> Generator[Rows]:
        """Open the file for a while, in which no process can throw it away."""
        with self._locked(fcntl.LOCK_SH):
            if self._opened is not None and self._opened[2] != _inode(self.path):
                self.close()  # another process has thrown it away
            if self._opened is None:
                connection = connected(self.path)
                self._opened = (connection, Rows(connection), _inode(self.path))
            yield self._opened[1]

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Generator[None]:
        connection = self._connection
        connection.execute(begin)
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _sturdy(self, act: Callable[[Rows], T]) -> T:
        """Do something with the rows; where they are damaged, make them anew and do it again."""
        for last in (False, True):
            try:
                with self._using() as rows:
                    if last:
                        self._refreshed(rows)
                    return act(rows)
            except (sqlite3.Error, ValueError, KeyError) as error:
                before = _inode(self.path)
                self.close()
                if last or not _is_damage(error):
                    raise StorageError(
                        f"the search index at {self.path} cannot be used: {error}; move it away and it is made anew",
                        path=str(self.path),
                    ) from error
                self._tell(f"{self.path} was damaged ({error}) and is made anew from the logs")
                self._discard(before)
        raise AssertionError("unreachable")

    def _discard(self, inode: int) -> None:
        """Remove the file and what belongs to it, while nobody uses it; not where it is another file already."""
        self.close()
        with self._locked(fcntl.LOCK_EX):
            if _inode(self.path) == inode:
                for ending in ("", "-wal", "-shm"):
                    with suppress(FileNotFoundError):
                        os.unlink(f"{self.path}{ending}")

    @contextmanager
    def _locked(self, how: int) -> Generator[None]:
        folder = open_root(self._home, create=True)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(_LOCK, flags, 0o600, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)

    def _tell(self, why: str) -> None:
        if self._listener is not None:
            with suppress(Exception):
                self._listener(FellBack("", "search", why))


def _is_damage(error: Exception) -> bool:
    """Say whether an error means that the file is not what we wrote, rather than busy, full or out of reach."""
    if not isinstance(error, sqlite3.OperationalError):
        return True
    return any(word in str(error) for word in ("no such table", "no such column", "malformed", "schema"))


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


def _sum(one: Refreshed, other: Refreshed) -> Refreshed:
    return Refreshed(
        one.logs + other.logs,
        one.messages + other.messages,
        one.bytes + other.bytes,
        one.removed + other.removed,
        one.restarted + other.restarted,
    )
