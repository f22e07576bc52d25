"""The engine of background jobs: procrastinate in a schema of its own, with a tenant on every job.

Procrastinate locks a key, retries and wakes workers. Added here: the tenant of a job with row-level security, a schema
that may be applied twice, and the take-up of jobs whose worker died.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final, LiteralString

import psycopg
from procrastinate import App, BaseConnector, PsycopgConnector
from procrastinate.exceptions import ConnectorException, UniqueViolation
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from procrastinate.schema import SchemaManager
from psycopg import sql

from ...errors import NewerVersion, StorageError
from ...storage.postgres.connections import explained, parameters, place_of
from ...storage.postgres.migrate import check_version
from .queue import SCHEMA

_LOCK: Final = 7_250_123_904_511_786_002
"""The key of the advisory lock that one process holds while it creates the tables."""
_GRANTS: Final = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    "REVOKE INSERT, UPDATE, DELETE ON {schema}.worker_roles FROM {role}",
)
_WORKERS_SEE_ALL: Final = """
CREATE POLICY workers ON {schema}.procrastinate_jobs
USING (EXISTS (SELECT FROM {schema}.worker_roles WHERE role IN (current_user, session_user)))
"""
"""The session's user counts too: a foreign key that changes jobs because a worker's row goes acts as their owner."""
_LATER: Final[dict[LiteralString, LiteralString]] = {
    "SELECT FROM pg_policies WHERE schemaname = %s AND policyname = 'workers'": _WORKERS_SEE_ALL,
    "SELECT FROM information_schema.columns WHERE table_schema = %s AND column_name = 'problem'": (
        "ALTER TABLE {schema}.procrastinate_jobs ADD COLUMN problem text"
    ),
}
"""Later changes of the tables, by the query that finds each if it was made."""
_NOT_TRIED: Final = """
UPDATE procrastinate_jobs SET attempts = attempts - 1, priority = 0, scheduled_at = NULL
WHERE id = %(id)s AND status = 'todo'
"""


def install(url: str, *, grant: str = "", worker: str = "") -> bool:
    """Create the tables of the engine unless they exist, and return whether they were created.

    The role ``grant`` may then queue and see the jobs of its tenant; the role ``worker`` runs the jobs of all tenants.
    """
    try:
        with psycopg.connect(**parameters(url)) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            found = connection.execute("SELECT to_regclass(%s) IS NULL", (f"{SCHEMA}.procrastinate_jobs",)).fetchone()
            is_new = found is not None and bool(found[0])
            if is_new:
                connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
                connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(SCHEMA)))
                connection.execute(SchemaManager.get_schema().encode())  # several statements, so without parameters
                connection.execute(files("reverie.runtime.jobs").joinpath("engine.sql").read_bytes())
            for is_there, change in _LATER.items():
                if not connection.execute(is_there.encode(), (SCHEMA,)).rowcount:
                    connection.execute(sql.SQL(change).format(schema=sql.Identifier(SCHEMA)))
            for role in filter(None, (grant, worker)):
                for text in _GRANTS:
                    named = {"schema": sql.Identifier(SCHEMA), "role": sql.Identifier(role)}
                    connection.execute(sql.SQL(text).format(**named))
            if worker:
                known = sql.SQL("INSERT INTO {}.worker_roles VALUES (%s) ON CONFLICT DO NOTHING")
                connection.execute(known.format(sql.Identifier(SCHEMA)), (worker,))
            return is_new
    except psycopg.Error as error:
        raise StorageError(
            f"cannot create the job tables of {place_of(url)}: {explained(error)}", path="database"
        ) from error


async def refuse_newer_tables(connector: BaseConnector, url: str) -> None:
    """Raise ``NewerVersion`` if a newer Reverie changed the tables."""
    found = await connector.execute_query_all_async("SELECT name FROM reverie.migrations ORDER BY number")
    check_version((row["name"] for row in found), url)


class _Jobs(JobManager):
    """The engine's access to jobs, which another worker may have taken up and ended while this one was away."""

    def __init__(self, connector: PsycopgConnector, url: str) -> None:
        super().__init__(connector)
        self._url = url

    async def fetch_job(self, *args: Any, **kwargs: Any) -> Job | None:
        """Take a job; raise ``NewerVersion`` if a newer Reverie changed the tables."""
        await refuse_newer_tables(self.connector, self._url)
        return await super().fetch_job(*args, **kwargs)

    async def finish_job_by_id_async(self, *args: Any, **kwargs: Any) -> None:
        """End a job, unless another worker has."""
        with _ended_already():
            await super().finish_job_by_id_async(*args, **kwargs)

    async def retry_job_by_id_async(self, job_id: int, *args: Any, **kwargs: Any) -> None:
        """Queue a job again, or delete it if its successor waits: the next run of a timer, for one.

        An attempt on tables that a newer Reverie changed meanwhile does not count, and the job waits for no time.
        """
        is_queued = False
        try:
            with _ended_already():
                await super().retry_job_by_id_async(job_id, *args, **kwargs)
                is_queued = True
        except (UniqueViolation, AssertionError) as error:  # the engine asserts a detail that row-level security hides
            if not isinstance(error.__context__, psycopg.errors.UniqueViolation):
                raise
            await self.finish_job_by_id_async(job_id, Status.ABORTED, delete_job=True)
        try:
            await refuse_newer_tables(self.connector, self._url)
        except NewerVersion:
            if is_queued:
                await self.connector.execute_query_async(_NOT_TRIED, id=job_id)


@contextmanager
def _ended_already() -> Generator[None]:
    """Ignore the error of a job that is no longer in the state from which it should be changed."""
    try:
        yield
    except ConnectorException as error:
        if not isinstance(error.__cause__, psycopg.errors.RaiseException):
            raise


def worker_parameters(url: str) -> dict[str, Any]:
    """Return the parameters of a worker's connection, which a pooler in transaction mode refuses."""
    return {**parameters(url), "options": f"-c search_path={SCHEMA}"}


def worker_app(url: str) -> App:
    """Return the engine's application for a worker, which sees the jobs of all tenants."""
    connector = PsycopgConnector(kwargs=worker_parameters(url))
    app = App(connector=connector)
    app.job_manager = _Jobs(connector, url)
    return app
