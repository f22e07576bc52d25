"""The audit rows of a tenant, and the money that its calls cost on all machines."""

from __future__ import annotations

import getpass
import hashlib
import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.sql import SQL, Identifier, Placeholder

from ...values import record
from .connections import Connections, Row

_ENTER: Final = (
    "INSERT INTO reverie.audit (tenant, who, act, detail) VALUES (%s, current_user || %s, %s, %s) RETURNING id"
)
_ROWS: Final = """
SELECT id, at, who, act, detail FROM reverie.audit WHERE tenant = %s AND at >= %s ORDER BY id DESC LIMIT %s
"""
_KINDS: Final = ("read", "write_5m", "write_1h", "uncached", "output")
_USUAL: Final[dict[str, Any]] = {
    **{"source": "main", "layer": "model", "reason": "reply", "broke": "", "lost_tokens": 0, "lost_usd": 0.0},
    **dict.fromkeys(_KINDS, 0),
}
"""The values that a row leaves out, as it does an expected value that is the actual one."""
_SHOWN: Final = ", ".join(
    [
        *(f"coalesce({name}, {usual!r}) AS {name}" for name, usual in _USUAL.items()),
        *(f"coalesce(expected_{kind}, {kind}, 0) AS expected_{kind}" for kind in _KINDS),
        "coalesce(expected_usd, usd) AS expected_usd",
    ]
)
_LEDGER: Final = (
    "WITH calls AS (SELECT id::text AS id, session, project, day, usd, at, model, "
    f"{_SHOWN} FROM reverie.calls WHERE tenant = %s) "
)
_FORGET: Final = """
WITH gone AS (
    DELETE FROM reverie.calls WHERE tenant = %s AND session = %s AND project <> ALL(%s) RETURNING 1
) SELECT count(*) FROM gone
"""
_COUNT: Final = "SELECT count(*) FROM reverie.calls WHERE tenant = %s AND session = %s AND project <> ALL(%s)"


@record
class AuditRow:
    """One act on a tenant's data: its time, author and counts."""

    id: int
    at: datetime
    who: str
    act: str
    detail: dict[str, Any]


class TenantRecords:
    """The audit rows and the priced calls of one tenant."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def enter_audit(self, act: str, detail: Mapping[str, Any]) -> int:
        """Write an audit row and return its number; ``detail`` holds counts and hashes, no content."""
        who = f", {_user()} on {socket.gethostname()}"
        values = (self._connections.tenant, who, act, json.dumps(detail))
        row = self._connections.row("audit", _ENTER, values)
        assert row is not None
        return row[0]

    def audit(self, since: str = "-infinity", most: int = 100) -> list[AuditRow]:
        """Return the newest audit rows since a date, newest first."""
        rows = self._connections.rows("audit", _ROWS, (self._connections.tenant, since, most))
        return [AuditRow(*row) for row in rows]

    def enter_calls(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the rows of the ledger that are new; each is known by its id."""
        if not rows:
            return
        names = ["tenant", *rows[0]]
        insert = SQL("INSERT INTO reverie.calls ({}) VALUES ({}) ON CONFLICT DO NOTHING").format(
            SQL(", ").join(map(Identifier, names)), SQL(", ").join(map(Placeholder, names))
        )
        with self._connections.transaction("calls") as connection, connection.cursor() as cursor:
            cursor.executemany(insert, [self._stored(row) for row in rows])

    def _stored(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {"tenant": self._connections.tenant, **_unusual(row), "id": call_id(row["id"])}

    def ledger(self, query: str, values: Sequence[Any]) -> list[Row]:
        """Return the rows of a query over the table ``calls``, which has the calls of this tenant on all machines."""
        statement: Any = _LEDGER + query.replace("?", "%s")
        given = (self._connections.tenant, *values)
        return self._connections.repeated(lambda: self._connections.rows("calls", statement, given))

    def forget_calls(self, session: str, others: Iterable[str] = (), *, dry_run: bool = False) -> int:
        """Delete the calls of a session, but not those of other projects, or only count; return how many there were."""
        values = (self._connections.tenant, session, list(others))
        row = self._connections.row("calls", _COUNT if dry_run else _FORGET, values)
        assert row is not None
        return row[0]


def _unusual(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with None for every value that need not be stored."""

    def is_usual(name: str, value: Any) -> bool:
        actual = row.get(name.removeprefix("expected_")) if name.startswith("expected_") else _USUAL.get(name)
        return value == actual

    return {name: None if is_usual(name, value) else value for name, value in row.items()}


def call_id(text: str) -> UUID:
    """Return the id of a call as 16 bytes: ids of entries are UUIDs, any other text is hashed."""
    with suppress(ValueError):
        if str(found := UUID(text)) == text:
            return found
    return UUID(bytes=hashlib.md5(text.encode(), usedforsecurity=False).digest())


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run a user without a name
        return "unknown user"
