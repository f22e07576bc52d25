"""The tables of a database: numbered SQL files, applied once each, from any number of processes."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Final

import psycopg
from psycopg import sql

from ...errors import NewerVersion, StorageError
from ...values import record
from .connections import Row, explained, parameters, place_of

_LOCK: Final = 7_250_123_904_511_786_001
"""The key of the advisory lock that one migrating process holds."""
_LIST: Final = """
CREATE TABLE IF NOT EXISTS reverie.migrations (
    number int PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL DEFAULT now()
)
"""
_CAN_WRITE: Final = """
SELECT pg_has_role(%(role)s, 'USAGE') IS NOT NULL, has_table_privilege(%(role)s, entries, 'INSERT')
    OR has_table_privilege(entries, 'INSERT WITH GRANT OPTION')
FROM to_regclass('reverie.entries') AS entries
"""
"""Fails for a role that does not exist; the second value is NULL if the tables do not."""


@record
class Migration:
    """One numbered SQL file."""

    number: int
    name: str
    text: str


@record
class DatabaseStatus:
    """The tables of a database and the rights of the role that asked."""

    database: str
    server: str
    applied: tuple[str, ...]
    pending: tuple[str, ...]
    bypasses_tenants: bool
    """Whether the role is a superuser or has BYPASSRLS, so that row-level security does not bind it."""
    role: str


@cache
def migrations() -> tuple[Migration, ...]:
    """Return the migrations of this version in their order."""
    found = [
        one for one in files("reverie.storage.postgres").joinpath("migrations").iterdir() if one.name.endswith(".sql")
    ]
    return tuple(
        Migration(int(one.name.split("_")[0]), one.name.removesuffix(".sql"), one.read_text(encoding="utf-8"))
        for one in sorted(found, key=lambda one: one.name)
    )


def check_version(applied: Iterable[str], url: str) -> None:
    """Raise ``NewerVersion`` if a migration of a database is not one of this version."""
    known = {one.name for one in migrations()}
    if unknown := [name for name in applied if name not in known]:
        raise NewerVersion(
            f"{place_of(url)} was migrated by a newer Reverie ({unknown[-1]}); upgrade this one", path="database"
        )


def status(url: str) -> DatabaseStatus:
    """Return the applied and pending migrations of a database."""
    with _connected(url) as connection:
        return _status(connection, url)


def migrate(url: str, *, dry_run: bool = False, grant: str = "") -> DatabaseStatus:
    """Apply every pending migration in one transaction and return the status before it; other processes wait.

    ``grant`` names a role that may then read and write the tables; it can neither change them nor leave its tenant.
    """
    with _connected(url) as connection:
        if dry_run:
            before = _status(connection, url)
            if grant:
                _check_grant(connection, before, grant)
            return before
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            before = _status(connection, url)
            if before.pending:
                connection.execute("CREATE SCHEMA IF NOT EXISTS reverie")
                connection.execute(_LIST)
            for one in migrations():
                if one.name in before.pending:
                    connection.execute(one.text.encode())  # several statements, so without parameters
                    connection.execute(
                        "INSERT INTO reverie.migrations (number, name) VALUES (%s, %s)", (one.number, one.name)
                    )
            if grant:
                role = sql.Identifier(grant)
                for text in (
                    "GRANT USAGE ON SCHEMA reverie TO {}",
                    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA reverie TO {}",
                    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA reverie TO {}",
                    "REVOKE INSERT, UPDATE, DELETE ON reverie.migrations FROM {}",
                    "REVOKE UPDATE, DELETE ON reverie.audit FROM {}",
                ):
                    connection.execute(sql.SQL(text).format(role))
                _check_grant(connection, before, grant)  # for a role that may not grant, GRANT is only a warning
        return before


def _check_grant(connection: psycopg.Connection[Row], found: DatabaseStatus, role: str) -> None:
    """Raise unless a role exists and may write, or may be allowed to, if the tables exist."""
    if connection.execute(_CAN_WRITE, {"role": role}).fetchone() == (True, False):
        told = f"{found.role} may not grant rights to {role}; run it as the owner of the tables"
        raise StorageError(f"cannot use {found.database}: {told}", path=found.database)


def _status(connection: psycopg.Connection[Row], url: str) -> DatabaseStatus:
    there = connection.execute("SELECT to_regclass('reverie.migrations') IS NOT NULL").fetchone()
    applied: list[str] = []
    if there is not None and there[0]:
        applied = [name for (name,) in connection.execute("SELECT name FROM reverie.migrations ORDER BY number")]
    check_version(applied, url)
    role = connection.execute(
        "SELECT current_user, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    assert role is not None
    version = connection.info.server_version
    return DatabaseStatus(
        database=place_of(url),
        server=f"PostgreSQL {version // 10_000}.{version % 10_000}",
        applied=tuple(applied),
        pending=tuple(one.name for one in migrations() if one.name not in applied),
        bypasses_tenants=bool(role[1]),
        role=str(role[0]),
    )


@contextmanager
def _connected(url: str) -> Generator[psycopg.Connection[Row]]:
    """Open a connection for a block; raise ``StorageError`` for every failure of the database."""
    place = place_of(url)
    try:
        with psycopg.connect(autocommit=True, **parameters(url)) as connection:
            yield connection
    except psycopg.Error as error:
        told = explained(error, "check server, URL and role")
        raise StorageError(f"cannot use {place}: {told}", path=place) from error
