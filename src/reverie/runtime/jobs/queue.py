"""The job queue of one tenant: put a job, list jobs, try failed ones again.

It writes to the engine's table itself, in a transaction that names the tenant, so it also works behind a pooler that
gives each transaction another connection.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Literal

from ...errors import InputError
from ...keys import as_one_part
from ...storage.postgres.connections import Connections
from ...values import record

Kind = Literal["notes", "extract", "dream", "index", "retain"]
KINDS: Final[tuple[Kind, ...]] = ("notes", "extract", "dream", "index", "retain")
SCHEMA: Final = "reverie_jobs"
QUEUE: Final = "reverie"
_TASK: Final = "reverie."
_PATIENCE_SECONDS: Final = 30.0
_SEARCH: Final = f"SET LOCAL search_path TO {SCHEMA}"  # the engine's triggers name its tables without a schema
_PUT: Final = """
INSERT INTO reverie_jobs.procrastinate_jobs AS known
    (queue_name, task_name, lock, queueing_lock, args, priority, scheduled_at)
VALUES (%s, %s, %s, %s, %s, %s, CASE WHEN %s > 0 THEN clock_timestamp() + make_interval(secs => %s) END)
ON CONFLICT (queueing_lock) WHERE status = 'todo' DO UPDATE
SET args = CASE WHEN %s THEN excluded.args ELSE known.args END,
    scheduled_at = CASE WHEN excluded.scheduled_at IS NOT NULL THEN known.scheduled_at END
WHERE (excluded.scheduled_at IS NULL AND known.scheduled_at IS NOT NULL)
    OR (%s AND known.args <> excluded.args AND (excluded.scheduled_at IS NULL OR known.args @> '{"every_seconds": 0}'))
RETURNING id
"""
_LIST: Final = """
SELECT id, task_name, args, status::text, attempts, scheduled_at, problem FROM reverie_jobs.procrastinate_jobs
WHERE tenant = %s AND status::text = ANY(%s) ORDER BY id
"""
_DROP: Final = """
DELETE FROM reverie_jobs.procrastinate_jobs WHERE tenant = %s AND id = ANY(%s) AND status <> 'doing' RETURNING id
"""
# The same job may wait already, such as the next run of a timer: it runs at once.
_RETRY: Final = """
WITH failed AS (DELETE FROM reverie_jobs.procrastinate_jobs WHERE tenant = %s AND status = 'failed' RETURNING *),
queued AS (
    INSERT INTO reverie_jobs.procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
    SELECT DISTINCT ON (queueing_lock) queue_name, task_name, lock, queueing_lock, args FROM failed
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO UPDATE SET scheduled_at = NULL
)
SELECT count(*) FROM failed
"""
_FIND: Final = """
SELECT id FROM reverie_jobs.procrastinate_jobs WHERE tenant = %s AND queueing_lock = %s AND status = 'todo'
"""
_NOTE: Final = "UPDATE reverie_jobs.procrastinate_jobs SET problem = %s WHERE tenant = %s AND id = %s RETURNING id"
_MAX_PROBLEM_CHARS: Final = 300


@record
class JobArguments:
    """A job's tenant, the project and session that it is for, and the seconds after which a timer runs it again."""

    tenant: str
    kind: Kind
    project: str = ""
    session: str = ""
    every_seconds: int = 0

    @property
    def lock(self) -> str:
        """The text under which at most one job runs at a time: that of a session, else of a kind and its project.

        The engine lets a job wait for each earlier one of its lock, also for one whose time has not come.
        """
        return "/".join(filter(None, (as_one_part(self.tenant), self.project, self.session or self.kind)))


@record
class JobRow:
    """A job in the queue and its state."""

    id: int
    kind: str
    project: str
    session: str
    status: str
    attempts: int
    at: datetime | None
    """When it may run, None if at once."""
    problem: str | None
    """Why the last attempt failed."""


class JobQueue:
    """The jobs of one tenant in a database."""

    def __init__(self, url: str, tenant: str) -> None:
        self._tenant = tenant
        self._connections = Connections(url, tenant, _PATIENCE_SECONDS)
        weakref.finalize(self, self._connections.close)

    def put(
        self, kind: Kind, *, project: str = "", session: str = "", every_seconds: int = 0, delay_seconds: float = 0
    ) -> bool:
        """Queue a job and return True, or False if the same job waits already.

        With ``every_seconds`` it is a timer: each run queues the next one. It takes the place of the same job that
        waits, but the next run of a timer does not take that of a new timer. Without a delay, one that waits for its
        time runs now.
        """
        if kind not in KINDS:
            raise InputError(f"there is no job {kind!r}; give one of: {', '.join(KINDS)}")
        job = JobArguments(self._tenant, kind, project, session, every_seconds)
        given = {"tenant": self._tenant, "project": project, "session": session, "every_seconds": every_seconds}
        names = (QUEUE, task_name(kind), job.lock, f"{kind} {job.lock}")
        priority = -1 if session and delay_seconds else 0  # others of the session need not wait for its time
        is_timer = every_seconds > 0
        values = (*names, json.dumps(given), priority, delay_seconds, delay_seconds, is_timer, is_timer)
        return bool(self._asked(_PUT, values))

    def jobs(self, *, status: str | None = None) -> list[JobRow]:
        """Return the jobs that wait, run or failed, oldest first; ``status`` is ``todo``, ``doing`` or ``failed``."""
        return [
            JobRow(id, task.removeprefix(_TASK), given.get("project", ""), given.get("session", ""), *rest)
            for id, task, given, *rest in self._asked(
                _LIST, (self._tenant, [status] if status else ["todo", "doing", "failed"])
            )
        ]

    def retry_failed(self) -> int:
        """Queue every failed job again and return how many there were."""
        return self._asked(_RETRY, (self._tenant,))[0][0]

    def drop(self, kind: Kind, *, project: str = "", session: str = "", dry_run: bool = False) -> bool:
        """Delete the same job if it waits, so that a timer ends, or only look for it; return whether it was there."""
        lock = JobArguments(self._tenant, kind, project, session).lock
        found = [id for (id,) in self._asked(_FIND, (self._tenant, f"{kind} {lock}"))]
        return bool(found if dry_run or not found else self._asked(_DROP, (self._tenant, found)))

    def note_problem(self, id: int, problem: str) -> None:
        """Keep the reason for which an attempt of a job failed."""
        self._asked(_NOTE, (problem[:_MAX_PROBLEM_CHARS], self._tenant, id))

    def forget(self, logs: Iterable[str], *, dry_run: bool = False) -> int:
        """Delete the jobs of the sessions with these logs that do not run just now, or only count them."""
        wanted = set(logs)
        found = [
            row.id
            for row in self.jobs()
            if f"projects/{row.project}/{row.session}.jsonl" in wanted and row.status != "doing"
        ]
        return len(found) if dry_run or not found else len(self._asked(_DROP, (self._tenant, found)))

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        self._connections.close()

    def _asked(self, statement: Any, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._connections.transaction("the job queue") as connection:
            connection.execute(_SEARCH)
            return connection.execute(statement, values).fetchall()


def task_name(kind: Kind) -> str:
    """Return the name under which the engine knows the task of a kind."""
    return f"{_TASK}{kind}"
