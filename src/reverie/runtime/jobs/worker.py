"""The worker of a database: it runs the jobs of all tenants, one per session at a time, on any number of machines."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import anyio
from procrastinate import App, RetryStrategy

from ...errors import ModelError, ReverieError, SessionBusy, StorageError
from ...settings import Settings
from .engine import worker_app
from .queue import KINDS, QUEUE, JobArguments, JobQueue, Kind, task_name
from .tasks import run_job

HEARTBEAT_SECONDS: Final = 10.0
STALLED_SECONDS: Final = 30.0
"""A worker without a heartbeat for this long counts as dead, and its jobs are taken up by another one."""
_MAX_ATTEMPTS: Final = 8
_PASSING: Final = (StorageError, SessionBusy, ModelError, OSError)
"""Errors that may be gone at the next attempt; others fail the job at once."""

Listener = Callable[[JobArguments, str], None]
"""Gets each job that ended, with a sentence about its result."""

_log = logging.getLogger(__name__)


async def run_worker(
    url: str,
    settings: Settings,
    *,
    listener: Listener | None = None,
    once: bool = False,
    concurrency: int = 1,
    stalled_seconds: float = STALLED_SECONDS,
) -> None:
    """Run queued jobs until the task is cancelled; with ``once``, until no job is left that may run."""
    app = worker_app(url)
    for kind in KINDS:
        _add_task(app, kind, url, settings, listener)
    async with app.open_async(), anyio.create_task_group() as group:
        await _take_up(app, stalled_seconds)
        group.start_soon(_watch_stalled, app, stalled_seconds)
        await app.run_worker_async(
            queues=[QUEUE],
            wait=not once,
            concurrency=concurrency,
            install_signal_handlers=False,
            update_heartbeat_interval=min(HEARTBEAT_SECONDS, stalled_seconds / 3),
            stalled_worker_timeout=stalled_seconds,
        )
        group.cancel_scope.cancel()


def _add_task(app: App, kind: Kind, url: str, settings: Settings, listener: Listener | None) -> None:
    retry = RetryStrategy(max_attempts=_MAX_ATTEMPTS, exponential_wait=3, retry_exceptions=_PASSING)

    @app.task(name=task_name(kind), queue=QUEUE, retry=retry)
    async def run(**given: Any) -> str:  # pyright: ignore[reportUnusedFunction]
        job = JobArguments(kind=kind, **given)
        if job.every_seconds:
            await anyio.to_thread.run_sync(_queue_next, job, url)
        result = "stopped"
        try:
            result = await anyio.to_thread.run_sync(run_job, job, url, settings)
        except ReverieError as error:
            result = f"failed: {error}"
            raise
        except BaseException as error:
            result = f"failed: {type(error).__name__}: {error}"
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


async def _watch_stalled(app: App, stalled_seconds: float) -> None:
    while True:
        await anyio.sleep(stalled_seconds / 3)
        try:
            await _take_up(app, stalled_seconds)
        except Exception as error:  # the database may be away: the next round tries again
            _log.warning("cannot look for jobs of dead workers: %s", error)


async def _take_up(app: App, stalled_seconds: float) -> None:
    """Queue the jobs of dead workers again; the engine would leave them, and their locks, for ever."""
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=stalled_seconds):
        await app.job_manager.retry_job(job)
