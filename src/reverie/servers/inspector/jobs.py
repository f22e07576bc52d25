"""The background jobs of a database: those that wait, run or failed, and another try of the failed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...errors import InputError, StorageError
from ...settings import Settings
from ...text.counts import counted
from .server import Act, Query

if TYPE_CHECKING:
    from ...runtime.jobs.queue import JobQueue

_SHOWN: Final = 200


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
