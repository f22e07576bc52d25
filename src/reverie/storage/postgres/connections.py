"""Connections to a database, each transaction of which names its tenant first."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import Connection, errors
from psycopg.conninfo import conninfo_to_dict

from ...errors import SettingsError, StorageError

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # it reports a cut connection, which is handled here
T = TypeVar("T")
Row = tuple[Any, ...]

_CUT_OFF: Final = {
    "connect_timeout": 10,  # seconds, as the next three
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 20_000,  # milliseconds
}
"""How long a server that answers no more is waited for; the system would wait for a quarter of an hour."""
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_MAX_IDLE: Final = 8
_MAX_TENANT_CHARS: Final = 200  # an index admits keys of 2,700 bytes, and the tenant is the first part of each
_SET_TENANT: Final = "SELECT set_config('reverie.tenant', %s, true)"  # the same as SET LOCAL, with a parameter
UNREACHABLE: Final = (psycopg.OperationalError, psycopg.InterfaceError)
_PASSING: Final = (errors.SerializationFailure, errors.DeadlockDetected)


class Connections:
    """The open connections of one tenant to one database, made when they are needed and kept for the next use."""

    def __init__(self, url: str, tenant: str, patience_seconds: float) -> None:
        if not tenant:
            raise SettingsError("a database needs a tenant: set REVERIE_TENANT, or tenant in config.toml")
        if not tenant.isprintable() or len(tenant) > _MAX_TENANT_CHARS:
            raise SettingsError(f"the tenant is {tenant[:64]!r}; use at most {_MAX_TENANT_CHARS} printable characters")
        self.tenant = tenant
        self.place = place_of(url)
        self.was_reached = False
        self._url = url
        self._patience_seconds = patience_seconds
        self._idle: list[Connection[Row]] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def call(self, path: str, sql: LiteralString, values: Sequence[Any]) -> Row | None:
        """Call a function that names its tenant itself, as one transaction, and return its row."""
        with self._explained(path), self._borrowed() as connection:
            return connection.execute(sql, values).fetchone()

    def row(self, path: str, sql: LiteralString, values: Sequence[Any] | Mapping[str, Any]) -> Row | None:
        """Run one statement in a transaction of its own, with one round trip, and return its first row."""
        with self._explained(path), self._borrowed() as connection:
            with connection.pipeline(), connection.transaction():
                connection.execute(_SET_TENANT, (self.tenant,))
                cursor = connection.execute(sql, values, binary=True)
            return cursor.fetchone()

    def rows(self, path: str, sql: LiteralString, values: Sequence[Any] | Mapping[str, Any]) -> list[Row]:
        """Run one statement in a transaction of its own, with one round trip, and return its rows."""
        with self._explained(path), self._borrowed() as connection:
            with connection.pipeline(), connection.transaction():
                connection.execute(_SET_TENANT, (self.tenant,))
                cursor = connection.execute(sql, values, binary=True)
            return cursor.fetchall()

    @contextmanager
    def transaction(self, path: str) -> Generator[Connection[Row]]:
        """Open a transaction of the tenant; it is committed unless the block raises."""
        with self._explained(path), self._borrowed() as connection, connection.transaction():
            connection.execute(_SET_TENANT, (self.tenant,))
            yield connection

    def repeated(self, act: Callable[[], T]) -> T:
        """Run an action that may be run twice; run it again while a database that was reached once is away."""
        until, pause = time.monotonic() + self._patience_seconds, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return act()
            except StorageError as error:
                passing = isinstance(error.__cause__, _PASSING)
                away = self.was_reached and isinstance(error.__cause__, UNREACHABLE)
                if not (passing or away) or time.monotonic() > until:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def close(self) -> None:
        """Close every connection that is not in use; a later use opens new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        if self._process == os.getpid():
            for connection in idle:
                connection.close()

    @contextmanager
    def _borrowed(self) -> Generator[Connection[Row]]:
        connection = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _take(self) -> Connection[Row]:
        if self._process != os.getpid():  # the connections belong to the parent, which goes on using them
            self._lock, self._process, self._inherited = threading.Lock(), os.getpid(), self._idle
            self._idle = []
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
        connection = psycopg.connect(autocommit=True, **parameters(self._url))
        self.was_reached = True
        return connection

    def _give_back(self, connection: Connection[Row]) -> None:
        usable = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            if usable and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    @contextmanager
    def _explained(self, path: str) -> Generator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise StorageError(f"cannot use {path} in {self.place}: {_reason(error)}", path=path) from error


def parameters(url: str) -> dict[str, Any]:
    """Return the parameters of a connection: those of the URL, and how long to wait for a server that is cut off."""
    return {**_CUT_OFF, **_parts_of(url)}


def place_of(url: str) -> str:
    """Return host and name of a database, without user and password."""
    parts = _parts_of(url)
    return f"the database {parts.get('dbname') or '(default)'} on {parts.get('host') or 'this machine'}"


def _parts_of(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError) as error:
        raise StorageError(
            "the database's URL cannot be read; write postgresql://USER@HOST:PORT/NAME", path="database"
        ) from error


def _reason(error: psycopg.Error) -> str:
    if isinstance(
        error, (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn, errors.UndefinedFunction)
    ):
        return "its tables are missing or of another version; run: reverie db migrate"
    if isinstance(error, errors.InsufficientPrivilege):
        rights = (
            "the role needs the tenant that is configured and the rights that 'reverie db migrate --grant ROLE' gives"
        )
        return explained(error, rights)
    if isinstance(error, UNREACHABLE):
        return explained(error, "check that the server runs, and the URL with its user and password")
    return explained(error)


def explained(error: psycopg.Error, advice: str = "") -> str:
    """Return the first line of a database's error, which has no values of rows, and the advice."""
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return "it is read-only for this role; give the URL of the primary server, with a role that may write"
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"{first}; {advice}" if advice else first
