"""The rows of ``<home>/search.sqlite``: the words of each message of each log, with the message's place.

The index holds words and line offsets but no text of a session, so a deletion removes one set of rows, and a result is
always read from the log.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from ...memories.recall.terms import pieces_of, tokens, without_noise
from ...storage.sqlite import open_database, open_read_only
from ...values import record
from .message_scores import SessionFacts, packed, size_code

_VERSION: Final = 3
_BUSY_SECONDS: Final = 10.0
_CACHE_KILOBYTES: Final = 32_768
_TABLES: Final = (
    "CREATE TABLE logs (id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, project TEXT NOT NULL, offset INTEGER NOT"
    " NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL, mark BLOB NOT NULL, pieces INTEGER"
    " NOT NULL, words INTEGER NOT NULL, people BLOB NOT NULL, embedded INTEGER NOT NULL)",
    "CREATE TABLE messages (log INTEGER NOT NULL, number INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT"
    " NULL, uuid TEXT NOT NULL, PRIMARY KEY (log, number)) WITHOUT ROWID",
    "CREATE TABLE words (word TEXT PRIMARY KEY, logs INTEGER NOT NULL, pieces INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE postings (word TEXT NOT NULL, log INTEGER NOT NULL, posts BLOB NOT NULL, PRIMARY KEY (word, log))"
    " WITHOUT ROWID",
    "CREATE TABLE vectors (log INTEGER NOT NULL, number INTEGER NOT NULL, piece INTEGER NOT NULL, vector BLOB NOT NULL,"
    " PRIMARY KEY (log, number, piece)) WITHOUT ROWID",
    "CREATE TABLE embedder (name TEXT NOT NULL)",
    "CREATE TABLE contents (log INTEGER NOT NULL, part INTEGER NOT NULL, words TEXT NOT NULL, PRIMARY KEY (log, part))"
    " WITHOUT ROWID",
)
_BATCH_SIZE: Final = 500
_CONTRADICTIONS: Final = {
    "words and postings differ": (
        "SELECT 1 FROM words LEFT JOIN (SELECT word AS found, COUNT(*) AS held, SUM(length(posts)) / 8 AS posts"
        " FROM postings GROUP BY word) ON found = word WHERE held IS NOT logs OR posts IS NOT pieces LIMIT 1"
    ),
    "postings of an unknown word": (
        "SELECT 1 FROM postings LEFT JOIN words USING (word) WHERE words.word IS NULL LIMIT 1"
    ),
    "messages are missing": (
        "SELECT 1 FROM logs WHERE length(people) != (SELECT COUNT(*) FROM messages WHERE log = logs.id) LIMIT 1"
    ),
}


@record
class LogRow:
    """How far a log has been read, with the data that detect a replaced log."""

    id: int
    key: str
    offset: int
    inode: int
    size: int
    mtime: int
    mark: bytes


@record
class IndexedMessage:
    """A message to index: the place of its line, whether a person wrote it, its speaker and month, and its text."""

    offset: int
    length: int
    uuid: str
    by_person: bool
    header: str
    text: str


def open_index(path: Path) -> sqlite3.Connection:
    """Open the index; create the private file if missing, and its tables if missing or of another version."""
    connection = open_database(path, busy_seconds=_BUSY_SECONDS, autocommit=True)
    try:
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KILOBYTES}")
        connection.execute("PRAGMA wal_autocheckpoint = 16384")
        if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            _set_up(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def index_in_memory(path: Path, *, copy: bool = True) -> sqlite3.Connection:
    """Return an index in memory for a home that cannot be written, filled from the file unless ``copy`` is False."""
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    if copy:
        with suppress(OSError, sqlite3.Error), closing(open_read_only(path)) as file:
            file.backup(connection)
    if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
        _set_up(connection)
    return connection


def _set_up(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            for table in ("logs", "messages", "speakers", "words", "postings", "contents", "vectors", "embedder"):
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # after some errors, such as a full disk, SQLite has rolled back itself
            connection.execute("ROLLBACK")
        raise


class SearchRows:
    """The rows of the index, as ranking reads them (``message_scores``) and as indexing changes them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._seen: tuple[int, int] | None = None
        self._facts: dict[int, SessionFacts] = {}
        self.pieces = self.sessions = self.words = 0

    # -- ranking

    def reload(self) -> None:
        """Reload the totals if the rows have changed since the last reload."""
        changes = self._connection.execute("PRAGMA data_version").fetchone()[0], self._connection.total_changes
        if changes == self._seen:
            return
        row = self._connection.execute("SELECT COUNT(*), SUM(pieces), SUM(words) FROM logs WHERE pieces > 0").fetchone()
        self.sessions, self.pieces, self.words = row[0], row[1] or 0, row[2] or 0
        self._facts = {}
        self._seen = changes

    def frequencies(self, wanted: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return a dict of each indexed word to the numbers of sessions and of pieces that contain it."""
        found: dict[str, tuple[int, int]] = {}
        for some in _batches(list(wanted)):
            marks = ",".join("?" * len(some))
            for word, logs, pieces in self._connection.execute(
                f"SELECT word, logs, pieces FROM words WHERE word IN ({marks})", some
            ):
                found[word] = (logs, pieces)
        return found

    def starting(self, letters: str) -> Sequence[str]:
        """Return at most 2000 indexed words that begin with these letters, sorted."""
        query = "SELECT word FROM words WHERE word >= ? AND word < ? ORDER BY word LIMIT 2000"
        return [row[0] for row in self._connection.execute(query, (letters, letters + "\U0010ffff"))]

    def postings(self, term: str, within: Sequence[int] | None = None) -> list[tuple[int, array[int]]]:
        """Return a word's packed postings as pairs with the session's number, for all sessions or for some."""
        rows: list[tuple[int, bytes]] = []
        if within is None:
            rows = self._connection.execute("SELECT log, posts FROM postings WHERE word = ?", (term,)).fetchall()
        else:
            for some in _batches(list(within)):
                marks = ",".join("?" * len(some))
                query = f"SELECT log, posts FROM postings WHERE word = ? AND log IN ({marks})"
                rows += self._connection.execute(query, [term, *some]).fetchall()
        return [(log, _numbers(posts)) for log, posts in rows]

    def facts(self, sessions: Iterable[int]) -> dict[int, SessionFacts]:
        """Return the facts about these sessions, by session number."""
        wanted = list(sessions)
        if not self._facts:
            query = "SELECT id, key, words, people FROM logs"
            self._facts = {row[0]: SessionFacts(*row[1:]) for row in self._connection.execute(query)}
        return {session: self._facts[session] for session in wanted}

    def check(self) -> None:
        """Raise ``ValueError`` if the rows contradict each other: a damaged index finds nothing and does not fail."""
        for what, query in _CONTRADICTIONS.items():
            if self._connection.execute(query).fetchone() is not None:
                raise ValueError(what)

    # -- rows

    def logs(self) -> dict[str, LogRow]:
        """Return the rows of all logs by key."""
        query = "SELECT id, key, offset, inode, size, mtime, mark FROM logs"
        return {row[1]: LogRow(*row) for row in self._connection.execute(query)}

    def log(self, key: str) -> LogRow | None:
        """Return the row of one log by its key, or None."""
        query = "SELECT id, key, offset, inode, size, mtime, mark FROM logs WHERE key = ?"
        row = self._connection.execute(query, (key,)).fetchone()
        return None if row is None else LogRow(*row)

    def keys(self, project: str | None = None) -> dict[int, str]:
        """Return the keys of the logs of all projects or of one, by the number of the log."""
        where, given = ("", []) if project is None else (" WHERE project = ?", [project])
        return dict(self._connection.execute(f"SELECT id, key FROM logs{where}", given).fetchall())

    def places(self, log: int, numbers: Sequence[int]) -> dict[int, tuple[int, int, str]]:
        """Return a dict of message number to the message's place in its log: offset, length and uuid."""
        found: dict[int, tuple[int, int, str]] = {}
        for some in _batches(list(numbers)):
            marks = ",".join("?" * len(some))
            query = f"SELECT number, offset, length, uuid FROM messages WHERE log = ? AND number IN ({marks})"
            found |= {row[0]: row[1:] for row in self._connection.execute(query, [log, *some])}
        return found

    def key_of(self, log: int) -> str:
        """Return the key of a log by its number; an empty string if there is none."""
        row = self._connection.execute("SELECT key FROM logs WHERE id = ?", (log,)).fetchone()
        return row[0] if row else ""

    # -- changes, inside a transaction of the caller

    def begin(self, key: str) -> LogRow:
        """Insert and return the row of a new log."""
        project = key.split("/")[1]
        self._connection.execute(
            "INSERT INTO logs (key, project, offset, inode, size, mtime, mark, pieces, words, people, embedded)"
            " VALUES (?, ?, 0, 0, 0, 0, x'', 0, 0, x'', 0)",
            (key, project),
        )
        row = self.log(key)
        assert row is not None
        return row

    def add(self, log: int, messages: Sequence[IndexedMessage]) -> None:
        """Add the words of the pieces, and the places of messages, after the last indexed message of a log."""
        connection = self._connection
        (first,) = connection.execute("SELECT length(people) FROM logs WHERE id = ?", (log,)).fetchone()
        posts: dict[str, array[int]] = {}
        pieces = words = 0
        for number, message in enumerate(messages, first):
            header = tokens(message.header)
            for piece, text in enumerate(pieces_of(message.text)):
                counts = Counter(tokens(text) + header)
                length = sum(counts[word] for word in without_noise(counts))
                code = size_code(length)
                for word, count in counts.items():
                    posts.setdefault(word, array("Q")).append(packed(number, piece, count, code))
                pieces += 1
                words += length
        connection.executemany(
            "INSERT INTO messages VALUES (?, ?, ?, ?, ?)",
            [(log, number, one.offset, one.length, one.uuid) for number, one in enumerate(messages, first)],
        )
        self._add_postings(log, posts)
        connection.execute(
            "UPDATE logs SET pieces = pieces + ?, words = words + ?, people = CAST(people || ? AS BLOB) WHERE id = ?",
            (pieces, words, bytes(one.by_person for one in messages), log),
        )

    def _add_postings(self, log: int, posts: Mapping[str, array[int]]) -> None:
        connection = self._connection
        old = self._contents(log)
        new = sorted(word for word in posts if word not in old)
        query = "INSERT INTO contents SELECT ?, COALESCE(MAX(part), 0) + 1, ? FROM contents WHERE log = ?"
        connection.execute(query, (log, "\n".join(new), log))
        connection.executemany(
            "INSERT INTO postings VALUES (?, ?, ?)"
            " ON CONFLICT (word, log) DO UPDATE SET posts = CAST(posts || excluded.posts AS BLOB)",
            [(word, log, some.tobytes()) for word, some in sorted(posts.items())],
        )
        connection.executemany(
            "INSERT INTO words VALUES (?, ?, ?)"
            " ON CONFLICT (word) DO UPDATE SET logs = logs + excluded.logs, pieces = pieces + excluded.pieces",
            [(word, word not in old, len(some)) for word, some in sorted(posts.items())],
        )

    # -- vectors of what people said

    def use_embedder(self, name: str) -> None:
        """Delete all vectors if another embedder made them."""
        row = self._connection.execute("SELECT name FROM embedder").fetchone()
        if row is not None and row[0] == name:
            return
        for statement in ("DELETE FROM vectors", "DELETE FROM embedder", "UPDATE logs SET embedded = 0"):
            self._connection.execute(statement)
        self._connection.execute("INSERT INTO embedder VALUES (?)", (name,))

    def without_vectors(self) -> list[tuple[int, int, list[int]]]:
        """Return the logs with messages that were not embedded: number, count of messages, those of people to embed."""
        query = "SELECT id, people, embedded FROM logs WHERE embedded < length(people)"
        rows = self._connection.execute(query).fetchall()
        return [(log, len(people), [at for at in range(done, len(people)) if people[at]]) for log, people, done in rows]

    def add_vectors(self, log: int, upto: int, vectors: Iterable[tuple[int, int, bytes]]) -> None:
        """Add vectors by message number and piece; all messages of the log before ``upto`` have theirs now."""
        rows = [(log, *row) for row in vectors]
        self._connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)
        self._connection.execute("UPDATE logs SET embedded = ? WHERE id = ?", (upto, log))

    def vectors(self) -> Iterable[tuple[int, int, bytes]]:
        """Yield all vectors, each with its log and the number of its message."""
        return self._connection.execute("SELECT log, number, vector FROM vectors")

    def save_position(self, row: LogRow) -> None:
        """Record how far a log has been read."""
        self._connection.execute(
            "UPDATE logs SET offset = ?, inode = ?, size = ?, mtime = ?, mark = ? WHERE id = ?",
            (row.offset, row.inode, row.size, row.mtime, row.mark, row.id),
        )

    def remove(self, log: int) -> None:
        """Delete all rows of a log, and overwrite their data on disk."""
        connection = self._connection
        connection.execute("PRAGMA secure_delete = ON")  # a deletion must leave no words in free pages
        query = "SELECT length(posts) / 8 FROM postings WHERE word = ? AND log = ?"
        words = self._contents(log)
        counts = [(word, connection.execute(query, (word, log)).fetchone()[0]) for word in words]
        connection.executemany("DELETE FROM postings WHERE word = ? AND log = ?", [(word, log) for word in words])
        connection.executemany(
            "UPDATE words SET logs = logs - 1, pieces = pieces - ? WHERE word = ?",
            [(count, word) for word, count in counts],
        )
        connection.executemany("DELETE FROM words WHERE word = ? AND pieces <= 0", [(word,) for word, _ in counts])
        for table, column in (("contents", "log"), ("vectors", "log"), ("messages", "log"), ("logs", "id")):
            connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (log,))
        connection.execute("PRAGMA secure_delete = OFF")

    def _contents(self, log: int) -> set[str]:
        rows = self._connection.execute("SELECT words FROM contents WHERE log = ?", (log,))
        return {word for (words,) in rows for word in words.split("\n") if word}


def _numbers(data: bytes) -> array[int]:
    numbers: array[int] = array("Q")
    numbers.frombytes(data)
    return numbers


def _batches(items: list[str] | list[int]) -> Iterable[list[str] | list[int]]:
    for at in range(0, len(items), _BATCH_SIZE):
        yield items[at : at + _BATCH_SIZE]
