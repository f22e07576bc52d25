"""The ledger: one row per call, in ``<home>/ledger.sqlite`` or for all machines in the table ``reverie.calls``.

The logs hold the same facts, so a row that cannot be written is reported and stops nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ...cache.ledger import LedgerAxis, LedgerCall, Totals, call_of
from ...cache.usage import Usage
from ...conversation.decisions import CallRecorded, decision_of
from ...conversation.entries import DECISION, Entry
from ...conversation.log import parse_log
from ...errors import StorageError
from ...events import FellBack, Listener
from ...paths import is_read_only
from ...ports import Storage
from ...schemas import LEDGER, is_newer, newer
from ...settings import Settings
from ...storage.files import FileStorage
from ...storage.lock_files import locked
from ...storage.sqlite import DATABASE_ENDINGS, delete_database, is_damage, open_database, open_read_only
from ..places.storage import database_of, storage_of

if TYPE_CHECKING:
    from ...storage.postgres.records import TenantRecords

FILE_NAME: Final = "ledger.sqlite"
_BUSY_SECONDS: Final = 5.0
_CACHE_KIB: Final = 256
_KINDS: Final = ("read", "write_5m", "write_1h", "uncached", "output")
_COLUMNS: Final[dict[str, str]] = {
    "id": "TEXT PRIMARY KEY",
    "session": "TEXT NOT NULL",
    "project": "TEXT NOT NULL",
    "at": "REAL NOT NULL",
    "day": "TEXT NOT NULL",
    "model": "TEXT NOT NULL",
    "source": "TEXT NOT NULL",
    "layer": "TEXT NOT NULL",
    "reason": "TEXT NOT NULL",
    **{kind: "INTEGER NOT NULL" for kind in _KINDS},
    **{f"expected_{kind}": "INTEGER NOT NULL" for kind in _KINDS},
    "usd": "REAL",
    "expected_usd": "REAL",
    "broke": "TEXT NOT NULL",
    "lost_tokens": "INTEGER NOT NULL",
    "lost_usd": "REAL NOT NULL",
}
_AXES: Final[dict[str, str]] = {"session": "session", "day": "day", "project": "project", "layer": "layer"}
_SESSION: Final = """
CASE WHEN project <> '' AND session IN (
    SELECT session FROM calls GROUP BY session HAVING COUNT(DISTINCT NULLIF(project, '')) > 1
) THEN project || '/' || session ELSE session END
"""
"""The name of a session, with its project if another project has one of this name."""
_INSERT: Final = (
    f"INSERT OR IGNORE INTO calls ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
)


class LedgerStore:
    """One row per model call of all sessions, of a home or of a tenant; use it in one thread at a time."""

    def __init__(
        self,
        home: Path,
        *,
        session: str = "",
        listener: Listener | None = None,
        shared: TenantRecords | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        """Open the ledger of a home when it is used; ``shared`` has the calls of all machines instead."""
        self.path = home / FILE_NAME
        self._shared = shared
        self._on_close = on_close
        self._session = session
        self._listener = listener
        self._connection: sqlite3.Connection | None = None
        self._is_newer = False
        self.notice = ""
        """A sentence about a ledger that was damaged and rebuilt; empty otherwise."""

    def __enter__(self) -> LedgerStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the ledger file, if it is open; the next use opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()
        if self._on_close is not None:
            self._on_close()

    @property
    def is_shared(self) -> bool:
        """Whether this is the ledger of all machines of a tenant."""
        return self._shared is not None

    # -- writing

    def enter(self, call: LedgerCall) -> bool:
        """Write one call unless the ledger has it; return False, after an event, on failure. Never raises."""
        return self.enter_all([call])

    def enter_all(self, calls: Iterable[LedgerCall]) -> bool:
        """Write the calls that are new, all or none; return False, after an event, on failure. Never raises."""
        rows = [_row(call) for call in calls]
        if self._shared is not None:
            return self._share(self._shared, rows)
        for can_rebuild in (True, False):
            try:
                connection = self._opened(create=True)
                assert connection is not None
                with connection:
                    connection.executemany(_INSERT, rows)
                return True
            except (sqlite3.Error, OSError, StorageError, OverflowError, ValueError) as error:
                self.close()
                if can_rebuild and self._rebuilt(error):
                    continue
                self._fell_back(f"{self.path}: {error}; the call is in the session's log, only its row is missing")
                return False
        return True

    def _share(self, shared: TenantRecords, rows: Sequence[Mapping[str, Any]]) -> bool:
        try:
            shared.enter_calls(rows)
        except StorageError as error:
            self._fell_back(f"{error}; the call is in the session's log, only its row is missing")
            return False
        return True

    def forget(self, session: str, *, others: Collection[str] = (), dry_run: bool = False) -> int:
        """Delete every call of a session, and a damaged ledger that was set aside; return how many calls there were.

        ``others`` are the projects that have another session of this name, whose calls stay.
        """
        if not dry_run:
            delete_database(self.path.with_name(f"{FILE_NAME}.damaged"))
        shared = 0 if self._shared is None else self._shared.forget_calls(session, others, dry_run=dry_run)
        return shared + self._asked(lambda connection: _forgotten(connection, session, others, dry_run=dry_run), 0)

    # -- reading

    def by(
        self, axis: LedgerAxis, *, session: str | None = None, project: str | None = None, since: str | None = None
    ) -> dict[str, Totals]:
        """Return the totals of calls by axis since a UTC date, most expensive first, but days in order."""
        where, given = _where(session=session, project=project, since=since)
        column = _SESSION if axis == "session" else _AXES[axis]
        order = "key" if axis == "day" else "SUM(COALESCE(usd, 0)) DESC, key"
        sums = ", ".join(f"SUM({kind}), SUM(expected_{kind})" for kind in _KINDS)
        query = (
            f"SELECT {column} AS key, COUNT(*), {sums}, SUM(COALESCE(usd, 0)), SUM(COALESCE(expected_usd, 0)), "
            "SUM(CASE WHEN usd IS NULL THEN 1 ELSE 0 END), SUM(CASE WHEN broke != '' THEN 1 ELSE 0 END), "
            "SUM(lost_tokens), SUM(lost_usd) "
            f"FROM calls {where} GROUP BY key ORDER BY {order}"
        )
        rows = self._rows(query, given)
        reasons = self._lost_by_reason(column, where, given)
        return {row[0]: _totals(row, reasons.get(row[0], {})) for row in rows}

    def spent(self, since: str, *, project: str | None = None) -> float:
        """Return the cost of all calls, or those of one project, since a day, a date in UTC, on all machines."""
        where, given = _where(project=project, since=since)
        (row,) = self._rows(f"SELECT COALESCE(SUM(usd), 0) FROM calls {where}", given) or [(0.0,)]
        return row[0]

    def calls(
        self,
        *,
        session: str | None = None,
        project: str | None = None,
        source: str | None = None,
        day: str | None = None,
    ) -> list[LedgerCall]:
        """Return a list of the calls that match every given filter, oldest first; ``day`` is a date in UTC."""
        where, given = _where(session=session, project=project, source=source, day=day)
        order = "at, rowid" if self._shared is None else "at, id"
        return [
            _call(row) for row in self._rows(f"SELECT {', '.join(_COLUMNS)} FROM calls {where} ORDER BY {order}", given)
        ]

    def _lost_by_reason(self, column: str, where: str, given: list[str]) -> dict[str, dict[str, float]]:
        query = (
            f"SELECT {column}, broke, SUM(lost_usd) FROM calls {where}{' AND' if where else 'WHERE'} broke != '' "
            f"GROUP BY {column}, broke ORDER BY SUM(lost_usd) DESC, broke"
        )
        found: dict[str, dict[str, float]] = {}
        for key, broke, lost in self._rows(query, given):
            found.setdefault(key, {})[broke] = lost
        return found

    def _rows(self, query: str, given: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the rows of a query over the table ``calls``, of the file or of all machines."""
        if self._shared is not None:
            return self._shared.ledger(query, given)
        return self._asked(lambda connection: connection.execute(query, given).fetchall(), [])

    # -- the file

    def _asked(self, ask: Callable[[sqlite3.Connection], Any], nothing: Any) -> Any:
        """Return the result of ``ask``, ``nothing`` without a file; rebuild a damaged ledger, raise if unreadable."""
        for can_rebuild in (True, False):
            try:
                connection = self._opened(create=False)
                return nothing if connection is None else ask(connection)
            except (sqlite3.Error, OSError, ValueError, TypeError) as error:
                self.close()
                if not (can_rebuild and self._rebuilt(error)):
                    why = f"the ledger at {self.path} cannot be used: {error}; check the disk and the permissions"
                    raise StorageError(why, path=str(self.path)) from error
        return nothing

    def _rebuilt(self, error: Exception) -> bool:
        """Set a damaged ledger aside and fill a new one from the logs; return False if it is not damaged."""
        if isinstance(error, OSError | StorageError) or not is_damage(error):
            return False
        aside = self.path.with_name(f"{FILE_NAME}.damaged")
        try:
            with locked(str(self.path.parent)):
                if not is_damaged(self.path):
                    return True  # another process has rebuilt it
                for ending in DATABASE_ENDINGS:
                    with suppress(FileNotFoundError):
                        os.replace(f"{self.path}{ending}", f"{aside}{ending}")
                self._opened(create=True)
        except (sqlite3.Error, OSError, StorageError):
            self.close()
            return False
        self.notice = (
            f"{self.path} was damaged ({error}) and is rebuilt from the logs; calls outside of sessions, "
            f"such as dreams, are only in {aside}"
        )
        self._fell_back(self.notice)
        return True

    def _opened(self, *, create: bool) -> sqlite3.Connection | None:
        if self._connection is not None and not (create and self._is_newer):
            return self._connection
        if not create and not self.path.exists() and not any(_log_keys(FileStorage(self.path.parent))):
            return None
        try:
            connection = open_database(self.path, busy_seconds=_BUSY_SECONDS)
        except OSError as error:
            if create or not is_read_only(error):
                raise
            self._connection = open_read_only(self.path) if self.path.exists() else None
            return self._connection
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            self._is_newer = is_newer(version, LEDGER)
            if create and self._is_newer:
                raise newer(f"the ledger {self.path}", str(self.path), "upgrade Reverie to add calls")
            if version < LEDGER:
                _set_up(connection, all_logged_calls(FileStorage(self.path.parent)) if version == 0 else ())
        except BaseException:
            connection.close()
            raise
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")  # else a long session fills 2 MB with its own rows
        self._connection = connection
        return connection

    def _fell_back(self, why: str) -> None:
        if self._listener is not None:
            with suppress(Exception):
                self._listener(FellBack(self._session, "ledger", why))


def open_ledger(
    settings: Settings, storage: Storage | None = None, *, session: str = "", listener: Listener | None = None
) -> LedgerStore:
    """Return the ledger of a home, or of the tenant if the storage, by default that of the settings, is a database."""
    own = storage_of(settings) if storage is None and settings.database is not None else None
    used = own or storage
    database = None if used is None else database_of(used)
    return LedgerStore(
        settings.home,
        session=session,
        listener=listener,
        shared=None if database is None else database.records,
        on_close=None if own is None else own.close,
    )


def _set_up(connection: sqlite3.Connection, calls: Iterable[LedgerCall]) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
        connection.execute(f"CREATE TABLE IF NOT EXISTS calls ({columns})")
        connection.execute("CREATE INDEX IF NOT EXISTS calls_by_session ON calls (session)")
        connection.execute("CREATE INDEX IF NOT EXISTS calls_by_day ON calls (day, project, usd)")
        connection.executemany(_INSERT, map(_row, calls))
        connection.execute(f"PRAGMA user_version = {LEDGER}")


def copy_calls(source: LedgerStore, logs: Storage, target: LedgerStore) -> bool:
    """Enter every call of a ledger and of the logs beside it into another ledger, once; return False on failure."""
    from ...storage.postgres.records import call_id  # a database stores ids of its own form

    calls = chain(source.calls(), all_logged_calls(logs))
    known: set[UUID] = set() if target.is_shared else {call_id(one.id) for one in target.calls()}
    return target.enter_all({key: one for one in calls if (key := call_id(one.id)) not in known}.values())


def all_logged_calls(storage: Storage) -> Iterator[LedgerCall]:
    """Yield the model calls that the logs of all sessions of a storage record."""
    for key in _log_keys(storage):
        *folders, name = key.split("/")
        entries = parse_log(storage.load(key) or b"").entries
        yield from logged_calls(entries, name.removesuffix(".jsonl"), "".join(folders[1:]))


def _log_keys(storage: Storage) -> Iterator[str]:
    for key in storage.list():
        *folders, name = key.split("/")
        if folders[:1] in (["projects"], ["agents"]) and len(folders) <= 2 and name.endswith(".jsonl"):
            yield key


def logged_calls(entries: Iterable[Entry], session: str, project: str) -> Iterator[LedgerCall]:
    """Yield the model calls that entries of a session record."""
    for entry in entries:
        call = decision_of(entry.body) if entry.kind == DECISION else None
        if isinstance(call, CallRecorded):
            yield call_of(call, session=session, at=entry.at, project=project, id=entry.uuid)


def is_damaged(path: Path) -> bool:
    """Return whether a ledger file is damaged, by SQLite's own check and by its rows."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                return True
            if connection.execute("PRAGMA user_version").fetchone()[0] == LEDGER:
                for row in connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM calls"):
                    _call(row)
        return False
    except (sqlite3.Error, ValueError, TypeError) as error:
        return is_damage(error)


def _forgotten(connection: sqlite3.Connection, session: str, others: Collection[str], *, dry_run: bool) -> int:
    where = f"FROM calls WHERE session = ? AND project NOT IN ({', '.join('?' * len(others))})"
    given = (session, *others)
    if dry_run:
        return connection.execute(f"SELECT count(*) {where}", given).fetchone()[0]
    connection.execute("PRAGMA secure_delete = ON")
    with connection, closing(connection.execute(f"DELETE {where}", given)) as cursor:
        count = cursor.rowcount
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # nothing of it may stay in the WAL file
    return count


def _where(**wanted: str | None) -> tuple[str, list[str]]:
    given = {name: value for name, value in wanted.items() if value is not None}
    text = " AND ".join("day >= ?" if name == "since" else f"{name} = ?" for name in given)
    return (f"WHERE {text}" if text else ""), list(given.values())


def _row(call: LedgerCall) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(call, name) for name in _COLUMNS if hasattr(call, name)}
    for kind in _KINDS:
        row[kind] = getattr(call.actual, kind)
        row[f"expected_{kind}"] = getattr(call.expected, kind)
    row["id"] = call.id or f"{call.session}:{call.at}:{call.source}"
    return row


def _call(row: tuple[Any, ...]) -> LedgerCall:
    found = dict(zip(_COLUMNS, row, strict=True))
    actual = Usage(*(found.pop(kind) for kind in _KINDS))
    expected = Usage(*(found.pop(f"expected_{kind}") for kind in _KINDS))
    for name in ("day", "lost_tokens", "lost_usd"):
        del found[name]
    return LedgerCall(**found, actual=actual, expected=expected)


def _totals(row: tuple[Any, ...], lost_by_reason: dict[str, float]) -> Totals:
    _, calls, *sums = row
    pairs = [int(one) for one in sums[: 2 * len(_KINDS)]]  # a database sums to decimal numbers
    usd, expected_usd, unpriced, breaks, lost_tokens, lost_usd = sums[2 * len(_KINDS) :]
    return Totals(
        calls,
        Usage(*pairs[0::2]),
        Usage(*pairs[1::2]),
        usd,
        expected_usd,
        int(unpriced),
        int(breaks),
        int(lost_tokens),
        lost_usd,
        lost_by_reason,
    )
