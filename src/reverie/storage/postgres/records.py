"""The audit rows of a tenant, and the money that its calls cost on all machines."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any, Final

from ...cache.ledger import LedgerCall
from ...values import record
from .connections import Connections

_ENTER: Final = (
    "INSERT INTO reverie.audit (tenant, who, act, detail) VALUES (%s, current_user || %s, %s, %s) RETURNING id"
)
_ROWS: Final = """
SELECT id, at, who, act, detail FROM reverie.audit WHERE tenant = %s AND at >= %s ORDER BY id DESC LIMIT %s
"""
_CALL: Final = """
INSERT INTO reverie.calls (tenant, id, session, project, day, usd) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (tenant, id) DO NOTHING
"""
_SPENT: Final = """
SELECT coalesce(sum(usd), 0) FROM reverie.calls
WHERE tenant = %(tenant)s AND day >= %(since)s AND (%(project)s::text IS NULL OR project = %(project)s)
"""
_FORGET: Final = """
WITH gone AS (DELETE FROM reverie.calls WHERE tenant = %s AND session = ANY(%s) RETURNING 1) SELECT count(*) FROM gone
"""
_COUNT: Final = "SELECT count(*) FROM reverie.calls WHERE tenant = %s AND session = ANY(%s)"


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

    def enter_calls(self, calls: Iterable[LedgerCall]) -> None:
        """Write the priced calls that are new; each is known by the uuid of its log entry."""
        priced = [call for call in calls if call.usd and call.id]
        if not priced:
            return
        with self._connections.transaction("calls") as connection:
            for call in priced:
                values = (call.id, call.session, call.project, date.fromisoformat(call.day), call.usd)
                connection.execute(_CALL, (self._connections.tenant, *values))

    def spent(self, since: str, *, project: str | None = None) -> float:
        """Return the cost of all calls, or those of one project, since a day, a date in UTC."""
        values = {"tenant": self._connections.tenant, "since": date.fromisoformat(since), "project": project}
        row = self._connections.repeated(lambda: self._connections.row("calls", _SPENT, values))
        assert row is not None
        return row[0]

    def forget_calls(self, sessions: Iterable[str], *, dry_run: bool = False) -> int:
        """Delete the calls of sessions, or only count them; return how many there were."""
        values = (self._connections.tenant, list(sessions))
        row = self._connections.row("calls", _COUNT if dry_run else _FORGET, values)
        assert row is not None
        return row[0]


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run a user without a name
        return "unknown user"
