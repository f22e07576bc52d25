"""The views of a whole home: the tree of agents with their messages, the costs, and the search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...cache.ledger import Totals
from ...cache.watch import losses_by_cause
from ...conversation.decisions import MessageQueued, decision_of
from ...conversation.entries import decode_entry
from ...errors import InputError, StorageError
from ...ports import Storage
from ...runtime.agent.team.history import agents_of
from ...runtime.library import Library
from ...runtime.places.projects import session_of
from ...runtime.reports.stats import AXES, stats_of
from ...runtime.search.sessions import SessionSearch
from ...runtime.search.vectors import settings_embedder
from ...settings import Settings
from ...text.counts import counted
from .memories import MemorySources
from .server import Act, Query

if TYPE_CHECKING:
    from ...runtime.jobs.queue import JobQueue

_QUEUED: Final = b"message_queued"
_MESSAGES: Final = 500
_MESSAGE_CHARS: Final = 4_000
_HITS: Final = 30
_MEMORIES: Final = 5
_SHOWN: Final = 200


def agents_data(storage: Storage) -> dict[str, Any]:
    """Return all agents of a storage, the latest first, and the messages that reached them and their sessions."""
    library = Library(storage)
    agents = [msgspec.to_builtins(one) for one in agents_of(storage)]
    messages = [one for key in [*library.keys(), *library.agent_keys()] for one in _messages(storage, key)]
    return {"agents": agents, "messages": sorted(messages, key=lambda one: one["time"])[-_MESSAGES:]}


def _messages(storage: Storage, key: str) -> Iterator[dict[str, Any]]:
    """Yield the messages that a log records as arrived; commands without a text are left out."""
    data = storage.load(key) or b""
    for line in data.split(b"\n") if _QUEUED in data else ():
        with suppress(ValueError):
            entry = decode_entry(line) if _QUEUED in line else None
            found = decision_of(entry.body) if entry is not None else None
            if entry is not None and isinstance(found, MessageQueued) and found.text:
                to = session_of(key)
                yield {"time": entry.time, "from": found.sender, "to": to, "text": found.text[:_MESSAGE_CHARS]}


def costs_data(settings: Settings, days: str) -> dict[str, Any]:
    """Return the costs of the last days by day, project, layer and session, and the losses by cause."""
    count = int(days) if days.isdecimal() and 0 < len(days) < 6 else 30
    found = stats_of(settings, days=max(1, count), now=datetime.now(UTC))
    causes = [
        {"cause": cause.title, "remedy": cause.remedy, "usd": usd}
        for cause, usd in losses_by_cause(found.total.lost_by_reason.items())
    ]
    by = {axis: [_sums(name or "(none)", one) for name, one in found.by(axis).items()] for axis in AXES}
    budgets = [{"what": one.what, "per": one.per, "usd": one.usd, "of_usd": one.of_usd} for one in found.budgets]
    return {"days": count, "total": _sums("total", found.total), "by": by, "causes": causes, "budgets": budgets}


def _sums(name: str, row: Totals) -> dict[str, Any]:
    used = row.actual
    return {
        "name": name,
        "calls": row.calls,
        "read": used.read,
        "written": used.write,
        "uncached": used.uncached,
        "output": used.output,
        "usd": row.usd,
        "lost_usd": row.lost_usd,
        "unpriced": row.unpriced,
    }


def search_data(settings: Settings, storage: Storage, memories: MemorySources, query: str) -> dict[str, Any]:
    """Return the messages of all sessions and the memories of all projects that match a query, best first."""
    if not query.strip():
        raise InputError("the query is empty: pass a few words to search for")
    if not settings.switches.memory:
        raise InputError("search over past sessions is switched off: set switches.memory to true")
    with SessionSearch(settings.home, embedder=settings_embedder(settings), storage=storage) as search:
        messages = [msgspec.to_builtins(one) for one in search.search(query, limit=_HITS)]
    found = [
        {"project": name, "file": one.file, "name": one.name, "text": one.body or one.description}
        for name, memory in memories.opened().items()
        for one in memory.recall(query, limit=_MEMORIES, everything=True)
    ]
    return {"messages": messages, "memories": found}


class JobSource:
    """The job queue of the settings' tenant; empty without a database."""

    def __init__(self, settings: Settings) -> None:
        self._queue = _opened(settings)

    def rows(self) -> list[dict[str, Any]]:
        """Return the jobs that failed, run or wait, in this order; none if the database has no job tables."""
        if self._queue is None:
            return []
        try:
            found = [row for status in ("failed", "doing", "todo") for row in self._queue.jobs(status=status)]
        except StorageError:
            return []
        return [msgspec.to_builtins(row) for row in found[:_SHOWN]]

    @property
    def acts(self) -> dict[str, Act]:
        """The act on jobs, by name; the command 'db jobs --retry' does the same."""
        return {"retry-jobs": self._retry}

    def close(self) -> None:
        """Close the connections of the queue."""
        if self._queue is not None:
            self._queue.close()

    def _retry(self, _query: Query) -> str:
        if self._queue is None:
            raise InputError("there are no jobs without a database")
        return f"queued {counted(self._queue.retry_failed(), 'failed job')} again"


def _opened(settings: Settings) -> JobQueue | None:
    if settings.database is None:
        return None
    from ...runtime.jobs.queue import JobQueue

    return JobQueue(settings.database, settings.tenant or "")
