"""The worker of a database: it runs the jobs of all tenants, one per session at a time, on any number of machines."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final

import anyio
import psycopg
from procrastinate import App, JobContext, RetryStrategy
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition, Job
from procrastinate.retry import RetryDecision

from ...errors import ModelError, NewerVersion, ReverieError, SessionBusy, StorageError
from ...settings import Settings
from ...storage.postgres.connections import UNREACHABLE, explained, place_of
from .engine import refuse_newer_tables, worker_app, worker_parameters
from .queue import KINDS, QUEUE, SCHEMA, JobArguments, JobQueue, Kind, task_name
from .tasks import run_job

HEARTBEAT_SECONDS: Final = 10.0
STALLED_SECONDS: Final = 30.0
"""A worker without a heartbeat for this long counts as dead, and its jobs are taken up by another one."""
_MAX_ATTEMPTS: Final = 8
_PAUSE_SECONDS: Final = 2.0
_PASSING: Final = (StorageError, SessionBusy, ModelError, OSError)
"""Errors that may be gone at the next attempt; others fail the job at once."""
_NOW_DUE: Final = """
UPDATE procrastinate_jobs SET priority = 0 WHERE status = 'todo' AND priority < 0 AND scheduled_at <= now()
"""
_GIVE_UP: Final = """
UPDATE procrastinate_jobs SET status = 'failed', problem = %(problem)s WHERE id = %(id)s AND status = 'doing'
"""
_ROLE: Final = f"""
SELECT rolname, rolsuper OR rolbypassrls OR EXISTS (SELECT FROM {SCHEMA}.worker_roles WHERE role = rolname)
FROM pg_roles WHERE rolname = current_user
"""
_COUNTED_AS_DEAD: Final = (
    "this worker showed no sign of life for %.0f seconds (its machine slept, or it was cut off), so others took up "
    "its jobs; it registers again"
)


class _Backoff(RetryStrategy):
    """Lets other jobs of a session go before one that waits for its next attempt; the engine would hold them back."""

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        """Return the time of the next attempt, None if there is none: the later it is, the lower is the priority."""
        decision = super().get_retry_decision(exception=exception, job=job)
        if decision is not None:
            decision.priority = -1 - job.attempts
        return decision


Listener = Callable[[JobArguments, str], None]
"""Gets each job that ended, with a sentence about its result."""

_log = logging.getLogger(__name__)
logging.getLogger("procrastinate").addHandler(logging.NullHandler())  # it reports failed jobs, as is done here


async def run_worker(
    url: str,
    settings: Settings,
    *,
    listener: Listener | None = None,
    once: bool = False,
    concurrency: int = 1,
    stalled_seconds: float = STALLED_SECONDS,
) -> None:
    """Run queued jobs until the task is cancelled; with ``once``, until no job is left that may run.

    A database that was reached once and goes away is waited for. A worker that was away itself, so that others counted
    it as dead, registers again. A database that a newer Reverie migrated is a ``NewerVersion``, and its jobs are left
    to others; another problem of the database is a ``StorageError``.
    """
    was_reached = False
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(**worker_parameters(url)) as connection:
                was_reached = True
                await _refuse_other_role(connection, url)
            return await _run(url, settings, listener, once, concurrency, stalled_seconds)
        except Exception as error:
            problem = _database_problem(error)
            if problem is None:
                raise
            if isinstance(problem, NewerVersion):
                raise problem from None
            if isinstance(problem, psycopg.errors.ForeignKeyViolation):  # its row among the workers was deleted
                _log.warning(_COUNTED_AS_DEAD, stalled_seconds)
                continue
            if once or not was_reached or not isinstance(problem, UNREACHABLE):
                told = explained(problem, "check server, URL and role, and run 'reverie db migrate --worker ROLE'")
                raise StorageError(f"cannot run the jobs of {place_of(url)}: {told}", path="database") from error
            _log.warning("the database cannot be used now, and the worker waits for it: %s", explained(problem))
        await anyio.sleep(_PAUSE_SECONDS)


async def _refuse_other_role(connection: psycopg.AsyncConnection[tuple[str, bool]], url: str) -> None:
    """Raise ``StorageError`` for a role that sees the jobs of no tenant, so that it would wait for ever."""
    found = await (await connection.execute(_ROLE.encode())).fetchone()
    if found is not None and not found[1]:
        told = f"the role {found[0]} may not run the jobs of {place_of(url)}"
        raise StorageError(
            f"{told}; run 'reverie db migrate --worker {found[0]}', or use a worker's role", path="database"
        )


async def _run(
    url: str, settings: Settings, listener: Listener | None, once: bool, concurrency: int, stalled_seconds: float
) -> None:
    app = worker_app(url)
    for kind in KINDS:
        _add_task(app, kind, url, settings, listener)
    async with app.open_async(), anyio.create_task_group() as group:
        await refuse_newer_tables(app.connector, url)
        await _take_up(app, stalled_seconds)
        group.start_soon(_watch_stalled, app, stalled_seconds)
        await app.run_worker_async(
            queues=[QUEUE],
            wait=not once,
            concurrency=concurrency,
            delete_jobs=DeleteJobCondition.SUCCESSFUL,
            install_signal_handlers=False,
            update_heartbeat_interval=min(HEARTBEAT_SECONDS, stalled_seconds / 3),
            stalled_worker_timeout=stalled_seconds,
        )
        group.cancel_scope.cancel()


def _database_problem(error: BaseException) -> psycopg.Error | NewerVersion | None:
    """Return the error of the database that an error is or comes from; None if there is another cause."""
    if isinstance(error, BaseExceptionGroup):
        inner: list[BaseException] = list(error.exceptions)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        found = [_database_problem(one) for one in inner]
        return found[0] if all(found) else None
    if isinstance(error, ConnectorException) and error.__cause__ is not None:
        return _database_problem(error.__cause__)
    return error if isinstance(error, psycopg.Error | NewerVersion) else None


def _add_task(app: App, kind: Kind, url: str, settings: Settings, listener: Listener | None) -> None:
    retry = _Backoff(max_attempts=_MAX_ATTEMPTS, exponential_wait=3, retry_exceptions=_PASSING)

    @app.task(name=task_name(kind), queue=QUEUE, retry=retry, pass_context=True)
    async def run(context: JobContext, **given: Any) -> str:  # pyright: ignore[reportUnusedFunction]
        job = JobArguments(kind=kind, **given)
        if job.every_seconds:
            await anyio.to_thread.run_sync(_queue_next, job, url)
        result = "stopped"
        try:
            result = await anyio.to_thread.run_sync(run_job, job, url, settings)
        except Exception as error:
            is_known = isinstance(error, ReverieError)
            if not is_known:
                _log.exception("a fault in the program ended %s", context.job.call_string)
            result = f"failed: {error}" if is_known else f"failed: {type(error).__name__}: {error}"
            is_plain = is_known and settings.encryption_key is None
            shown = str(error) if is_plain else f"{type(error).__name__}: the worker's output has more"
            with suppress(StorageError):
                await anyio.to_thread.run_sync(_note_problem, job, url, context.job.id or 0, shown)
            raise
        finally:
            if listener is not None:
                listener(job, result)
        return result


def _queue_next(job: JobArguments, url: str) -> None:
    """Queue the next run of a timer, unless an earlier attempt queued it."""
    every = job.every_seconds
    with closing(JobQueue(url, job.tenant)) as queue:
        queue.put(job.kind, project=job.project, session=job.session, every_seconds=every, delay_seconds=every)


def _note_problem(job: JobArguments, url: str, id: int, problem: str) -> None:
    """Keep the reason for which a job failed in its row."""
    with closing(JobQueue(url, job.tenant)) as queue:
        queue.note_problem(id, problem)


async def _watch_stalled(app: App, stalled_seconds: float) -> None:
    while True:
        await anyio.sleep(stalled_seconds / 3)
        try:
            await _take_up(app, stalled_seconds)
        except Exception as error:  # the database may be away: the next round tries again
            _log.warning("cannot look for jobs of dead workers: %s", error)


async def _take_up(app: App, stalled_seconds: float) -> None:
    """Queue the jobs of dead workers again, and let those whose time has come be as urgent as all others.

    The engine would leave the former, and their locks, for ever, and the latter while there is any other job. A job
    that ended many workers fails, so that it does not end them all in turn.
    """
    await app.connector.execute_query_async(_NOW_DUE)
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=stalled_seconds):
        if job.attempts < _MAX_ATTEMPTS:
            await app.job_manager.retry_job(job)
        else:
            problem = f"its worker ended, at attempt {job.attempts + 1}; look at the output of the workers"
            await app.connector.execute_query_async(_GIVE_UP, id=job.id, problem=problem)
