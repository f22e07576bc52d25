"""Full-text search over the messages of all session logs of a home, without a model.

The index in ``<home>/search.sqlite`` follows the logs: logs only grow, so only new lines are read. It can be rebuilt
from the logs, so a damaged index is deleted and built again.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from ...conversation.authorship import own_words
from ...conversation.entries import Entry, decode_entry
from ...errors import ModelError, StorageError
from ...events import FellBack, Listener
from ...memories.recall.terms import pieces_of
from ...paths import explain, is_read_only, open_file
from ...ports import Embedder, Stamp, Storage
from ...settings import Settings
from ...storage.files import FileStorage
from ...storage.sqlite import delete_database, is_damage
from ...values import record, replace
from ..places.storage import storage_of
from .hits import CANDIDATES, PHRASE_CANDIDATES, SearchHit, phrases_in, shown_hits, with_phrases_first
from .index import LogRow, SearchRows, index_in_memory, open_index
from .log_text import logs_in, mark_of, messages_in, whole_lines
from .message_scores import SessionRanking, Weights, rank
from .shared_words import found_logs, words_of
from .vectors import likeness, vector_of

T = TypeVar("T")

FILE_NAME: Final = "search.sqlite"
_LOCK: Final = ".reverie-search.lock"
_TRIES: Final = 3
_MAX_VECTORS: Final = 8
"""The most vectors of one message: a pasted file says little about the question that it comes with."""


@record
class IndexRefresh:
    """The work that one refresh of the index did."""

    logs: int = 0
    """Logs with new lines."""
    messages: int = 0
    bytes: int = 0
    removed: int = 0
    """Deleted logs whose rows were removed."""
    restarted: int = 0
    """Logs that were replaced and therefore read from the start."""


class SessionSearch:
    """The search index of a home, for one thread at a time and any number of processes."""

    def __init__(
        self,
        home: Path,
        *,
        listener: Listener | None = None,
        weights: Weights | None = None,
        progress: Callable[[int, int], None] | None = None,
        embedder: Embedder | None = None,
        storage: Storage | None = None,
    ) -> None:
        """Prepare a search; the logs are in ``storage``, else in the home.

        ``progress`` gets the number of logs read and in total, and may raise to stop. With an ``embedder``, people's
        messages are found by their meaning too.
        """
        self.path = home / FILE_NAME
        self._home = str(home)
        self._storage = storage or FileStorage(home)
        self._listener = listener
        self._progress = progress
        self._weights = weights or Weights()
        self._embedder = embedder
        self._opened: tuple[sqlite3.Connection, SearchRows, int] | None = None
        self._copies = True

    def __enter__(self) -> SessionSearch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index, if it is open; the next call opens it again."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        with self._locked(fcntl.LOCK_SH):
            if _inode(self.path) == opened[2]:
                with suppress(sqlite3.Error):
                    opened[0].close()
            else:
                _abandon(opened[0])

    # -- search

    def search(
        self, query: str, *, project: str | None = None, limit: int = 10, refresh: bool = True
    ) -> list[SearchHit]:
        """Return the messages most relevant to a query, best first; ``refresh`` reads new log lines first.

        Messages with a quoted phrase of the query come before others.
        """
        phrases = phrases_in(query)
        most = max(CANDIDATES * limit, PHRASE_CANDIDATES if phrases else 0)

        def searched(rows: SearchRows) -> list[SearchHit]:
            def read(log: int, some: Sequence[int]) -> dict[int, Entry]:
                return self._entries(rows, log, some)

            follow, within = refresh, None
            for _ in range(_TRIES):
                if follow:
                    within = self._follow_found(rows, query, project)
                with self._transaction("BEGIN"):  # a consistent state of the rows, while others may write
                    ranked = self._ranked(rows, query, project, most, within)
                    if phrases:
                        ranked = with_phrases_first(ranked, phrases, read)
                    shown = shown_hits(ranked, limit, rows.key_of, read)
                    if not shown:
                        rows.check()
                if shown is not None:
                    return shown
                follow = True  # a log was replaced: refresh the index and search again
            raise ValueError("messages are not at their places")

        return self._with_rows(searched)

    def rank(self, query: str, *, project: str | None = None, limit: int = 10) -> SessionRanking:
        """Return the ranked messages and sessions for a query by the index alone, without reading the logs."""

        def ranked(rows: SearchRows) -> SessionRanking:
            with self._transaction("BEGIN"):
                return self._ranked(rows, query, project, limit)

        return self._with_rows(ranked)

    def _follow_found(self, rows: SearchRows, query: str, project: str | None) -> list[int] | None:
        """Read the new lines of all logs and return None; in a database of the logs found by it, and return those."""
        words = words_of(self._storage)
        if words is None:
            self._refresh_rows(rows)
            return None
        known = rows.logs()
        found = found_logs(self._storage, words, query, project)
        there = words.existing(list(known))
        for row in (row for key, row in known.items() if key not in there):
            with self._transaction():
                rows.remove(row.id)
        for one in (one for one in found if _has_changed(known.get(one.key), one)):
            self._follow(rows, one)
        if self._embedder is not None:
            self._embed(rows, self._embedder)
        return [row.id for one in found if (row := rows.log(one.key)) is not None]

    def _ranked(
        self, rows: SearchRows, query: str, project: str | None, limit: int, within: Sequence[int] | None = None
    ) -> SessionRanking:
        rows.reload()
        if within is None and project is not None:
            within = list(rows.keys(project))
        likenesses = self._likenesses(rows, query, within)
        words = words_of(self._storage)
        counts = None if words is None else words.counts
        return rank(
            query, rows, limit=limit, weights=self._weights, within=within, likenesses=likenesses, counts=counts
        )

    def _likenesses(
        self, rows: SearchRows, query: str, within: Sequence[int] | None
    ) -> dict[tuple[int, int], float] | None:
        """Return the likeness of each message with a vector to the query; None without an embedder or if it fails."""
        if self._embedder is None:
            return None
        try:
            (asked,) = self._embedder.vectors([query])
        except ModelError as error:
            self._emit(f"messages are found by their words alone: {error}")
            return None
        allowed, found = None if within is None else set(within), dict[tuple[int, int], float]()
        for log, number, data in rows.vectors():
            if allowed is None or log in allowed:
                value = likeness(asked, vector_of(data))
                found[log, number] = max(value, found.get((log, number), 0.0))
        return found

    def keys(self, project: str | None = None) -> dict[int, str]:
        """Return the keys of the indexed logs, by the session number that ``rank`` uses."""
        return self._with_rows(lambda rows: rows.keys(project))

    def refresh(self) -> IndexRefresh:
        """Read the new lines of all logs, remove the rows of deleted logs, and return the work done."""
        return self._with_rows(self._refresh_rows)

    def refresh_log(self, key: str) -> IndexRefresh:
        """Read the new lines of one log, whose session has ended, and return the work done."""

        def followed(rows: SearchRows) -> IndexRefresh:
            found = [one for one in logs_in(self._storage) if one.key == key]
            done = self._follow(rows, found[0]) if found else IndexRefresh()
            if self._embedder is not None:
                self._embed(rows, self._embedder, only=key)
            return done

        return self._with_rows(followed)

    def forget(self, key: str) -> bool:
        """Remove all rows of one deleted log; return whether there were any."""
        if not self.path.exists():
            return False

        def forgotten(rows: SearchRows) -> bool:
            with self._transaction():
                row = rows.log(key)
                if row is not None:
                    rows.remove(row.id)
            if row is not None:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # a deletion must clear the WAL file too
            return row is not None

        return self._with_rows(forgotten)

    # -- refresh

    def _refresh_rows(self, rows: SearchRows) -> IndexRefresh:
        total = IndexRefresh()
        known, there = rows.logs(), {one.key: one for one in logs_in(self._storage)}
        changed = [key for key, found in there.items() if _has_changed(known.get(key), found)]
        for number, key in enumerate(changed):
            if self._progress is not None:
                self._progress(number, len(changed))
            total = _sum(total, self._follow(rows, there[key]))
        gone = [row for key, row in known.items() if key not in there]
        for row in gone:
            with self._transaction():
                if self._is_gone(row.key) and rows.log(row.key):
                    rows.remove(row.id)
                    total = replace(total, removed=total.removed + 1)
        if self._embedder is not None:
            self._embed(rows, self._embedder)
        return total

    def _embed(self, rows: SearchRows, embedder: Embedder, only: str = "") -> None:
        """Compute missing vectors of people's messages, in all logs or ``only`` one; if that fails, words remain."""
        with self._transaction():
            rows.use_embedder(embedder.name)
        waiting = [row for row in rows.without_vectors() if not only or rows.key_of(row[0]) == only]
        try:
            for done, (log, upto, numbers) in enumerate(waiting):
                if self._progress is not None:
                    self._progress(done, len(waiting))
                texts = [
                    (number, piece, text)
                    for number, entry in self._entries(rows, log, numbers).items()
                    for piece, text in enumerate(pieces_of(own_words(entry))[:_MAX_VECTORS])
                ]
                vectors = embedder.vectors([text for _, _, text in texts])
                with self._transaction():
                    made = [
                        (number, piece, vector.tobytes())
                        for (number, piece, _), vector in zip(texts, vectors, strict=True)
                    ]
                    rows.add_vectors(log, upto, made)
        except ModelError as error:
            self._emit(f"messages are found by their words alone: {error}")

    def _is_gone(self, key: str) -> bool:
        try:
            return self._storage.load(key, 0, 1) is None
        except StorageError:
            return False  # it is there, though not a plain file

    def _follow(self, rows: SearchRows, found: Stamp) -> IndexRefresh:
        """Read the new lines of one log, or all lines if it was replaced, and return the work done."""
        with self._transaction():
            try:
                return self._read(rows, found)
            except FileNotFoundError:
                return IndexRefresh()
            except StorageError as error:
                self._emit(f"{os.path.join(self._home, found.key)}: {error}; search does not find its messages")
                return IndexRefresh()

    def _read(self, rows: SearchRows, found: Stamp) -> IndexRefresh:
        def read(start: int, size: int) -> bytes:
            data = self._storage.load(found.key, start, size)
            if data is None:
                raise FileNotFoundError(found.key)
            return data

        row, restarted = rows.log(found.key), 0
        if row is not None and (found.size < row.offset or row.mark != mark_of(read, row.offset)):
            rows.remove(row.id)
            row, restarted = None, 1
        row = row or rows.begin(found.key)
        offset = start = row.offset
        messages = 0
        while offset < found.size:
            data = whole_lines(read, offset, found.size)
            if not data:
                break  # an incomplete last line
            some = list(messages_in(data, offset))
            rows.add(row.id, some)
            messages += len(some)
            offset += len(data)
        position = found.identity, found.size, found.changed_ns, mark_of(read, offset)
        rows.save_position(LogRow(row.id, found.key, offset, *position))
        return IndexRefresh(1, messages, offset - start, 0, restarted)

    # -- results

    def _entries(self, rows: SearchRows, log: int, numbers: Sequence[int]) -> dict[int, Entry]:
        """Return the messages of a log by number, leaving out those whose line has changed."""
        key = rows.key_of(log)
        found: dict[int, Entry] = {}
        for number, (offset, length, uuid) in rows.places(log, numbers).items():
            with suppress(StorageError, ValueError):
                entry = decode_entry(self._storage.load(key, offset, length) or b"")
                if entry.uuid == uuid:
                    found[number] = entry
        return found

    # -- the file

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._opened is not None
        return self._opened[0]

    @contextmanager
    def _open_rows(self) -> Generator[SearchRows]:
        """Yield the open index under a shared lock, so that no process can delete it."""
        with self._locked(fcntl.LOCK_SH) as is_writable:
            if self._opened is not None and self._opened[2] != _inode(self.path):
                self.close()  # another process has deleted it
            if self._opened is None:
                connection = open_index(self.path) if is_writable else index_in_memory(self.path, copy=self._copies)
                self._opened = (connection, SearchRows(connection), _inode(self.path))
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

    def _with_rows(self, act: Callable[[SearchRows], T]) -> T:
        """Return the result of a function on the rows; if the index is damaged, rebuild it and try once more."""
        for last in (False, True):
            try:
                with self._open_rows() as rows:
                    if last:
                        self._refresh_rows(rows)
                    return act(rows)
            except (sqlite3.Error, ValueError, LookupError, TypeError) as error:
                before = _inode(self.path)
                self.close()
                if last or not is_damage(error):
                    advice = "free some space there" if "full" in str(error) else "move it away to have it rebuilt"
                    raise StorageError(
                        f"the search index at {self.path} cannot be used: {error}; {advice}",
                        path=str(self.path),
                    ) from error
                self._emit(f"{self.path} was damaged ({error}) and is rebuilt from the logs")
                self._discard(before)
        raise AssertionError("unreachable")

    def _discard(self, inode: int) -> None:
        """Delete the index files under an exclusive lock, unless another process has replaced them."""
        self.close()
        with self._locked(fcntl.LOCK_EX) as is_writable:
            self._copies = is_writable
            if is_writable and _inode(self.path) == inode:
                delete_database(self.path)

    @contextmanager
    def _locked(self, how: int) -> Generator[bool]:
        """Hold the lock of the index in a ``with`` block; yield False, without it, in a home that cannot be written."""
        try:
            descriptor = open_file(self._home, _LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if not is_read_only(error):
                raise explain(error, "lock", os.path.join(self._home, _LOCK)) from error
            yield False
            return
        try:
            fcntl.flock(descriptor, how)
            yield True
        finally:
            os.close(descriptor)

    def _emit(self, why: str) -> None:
        if self._listener is not None:
            with suppress(Exception):
                self._listener(FellBack("", "search", why))


def _has_changed(row: LogRow | None, found: Stamp) -> bool:
    return row is None or (row.inode, row.size, row.mtime) != (found.identity, found.size, found.changed_ns)


def _abandon(connection: sqlite3.Connection) -> None:
    """Keep a connection to a deleted index open until the process ends, even after its last reference is gone.

    SQLite deletes the write-ahead log by name when the last connection closes, and that name belongs to the new index.
    """
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


@contextmanager
def opened_search(
    settings: Settings,
    *,
    progress: Callable[[int, int], None] | None = None,
    embedder: Embedder | None = None,
) -> Generator[SessionSearch]:
    """Open a search over the sessions of the configured storage in a context."""
    with (
        closing(storage_of(settings)) as storage,
        SessionSearch(settings.home, storage=storage, progress=progress, embedder=embedder) as search,
    ):
        yield search


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


def _sum(one: IndexRefresh, other: IndexRefresh) -> IndexRefresh:
    return IndexRefresh(
        one.logs + other.logs,
        one.messages + other.messages,
        one.bytes + other.bytes,
        one.removed + other.removed,
        one.restarted + other.restarted,
    )
