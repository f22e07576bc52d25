"""``reverie db``: the tables, jobs and audit rows of a PostgreSQL database."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from ...errors import InputError, SettingsError
from ...extras import needing
from ...runtime.places.projects import log_key
from ...runtime.places.storage import database_of, storage_of
from ...settings import load_settings
from ..options import date_option
from ..output import counted, emit_json, listing, say, table, warn

if TYPE_CHECKING:
    from ...runtime.jobs.queue import JobQueue

_DATABASE = click.option("--database", "url", metavar="URL", help="The database; else the setting 'database'.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group()
def command() -> None:
    """Create the tables of a PostgreSQL database, show their state, its jobs and its audit rows.

    Sessions are stored there if the settings 'database' and 'tenant' are set.
    """


@command.command(short_help="Create missing tables.")
@_DATABASE
@click.option("--grant", metavar="ROLE", default="", help="Let this role read and write the tables.")
@click.option("--worker", metavar="ROLE", default="", help="Let this role run the jobs of all tenants.")
@click.option("--dry-run", is_flag=True, help="Show the pending migrations and change nothing.")
@_JSON
def migrate(url: str | None, grant: str, worker: str, dry_run: bool, as_json: bool) -> int:
    """Create missing tables; safe to run at any time, from any number of machines.

    Run it as the owner of the tables. Programs should use another role, given with --grant: it can neither change the
    tables nor see rows of another tenant. Workers use a third role, given with --worker, which sees the jobs of all
    tenants, and in each job the rows of its tenant.
    """
    where = _url(url)
    made = _migrations().migrate(where, dry_run=dry_run, grant=grant)
    if worker:
        _migrations().migrate(where, dry_run=dry_run, grant=worker)
    if not dry_run:
        from ...runtime.jobs.engine import install

        install(where, grant=grant, worker=worker)
    if as_json:
        emit_json(
            {"dry_run": dry_run, "database": made.database, "applied": made.pending, "granted": grant, "worker": worker}
        )
        return 0
    verb = "would be applied" if dry_run else "applied"
    say(f"{made.database}: {counted(len(made.pending), 'migration')} {verb}")
    for name in made.pending:
        say(f"  {name}")
    if grant:
        say(f"{grant} {'could' if dry_run else 'can'} read and write the tables of its tenant")
    if worker:
        say(f"{worker} {'could' if dry_run else 'can'} run the jobs of all tenants")
    return 0


@command.command("status", short_help="Show the migrations and the rights of the role.")
@_DATABASE
@_JSON
def show_status(url: str | None, as_json: bool) -> int:
    """Show the migrations of a database and whether its role is bound to a tenant."""
    found = _migrations().status(_url(url))
    if as_json:
        emit_json(found)
        return 1 if found.pending else 0
    say(f"{found.database}, {found.server}, as {found.role}")
    say(f"{counted(len(found.applied), 'migration')} applied, {len(found.pending)} pending")
    for name in found.pending:
        say(f"  {name}: run 'reverie db migrate'")
    if found.bypasses_tenants:
        warn(f"the role {found.role} is not bound by row-level security; use a role without SUPERUSER and BYPASSRLS")
    return 1 if found.pending else 0


@command.command(short_help="List background jobs: waiting, running, failed.")
@click.option("--retry", is_flag=True, help="Queue the failed jobs again.")
@click.option("--dry-run", is_flag=True, help="With --retry: count the failed jobs and change nothing.")
@_JSON
def jobs(retry: bool, dry_run: bool, as_json: bool) -> int:
    """List the background jobs of the tenant: waiting, running, failed, and why the last attempt failed."""
    with closing(_queue()) as queue:
        found = queue.jobs()
        failed = sum(row.status == "failed" for row in found)
        if retry and not dry_run:
            queue.retry_failed()
    if as_json:
        emit_json({"jobs": found, "failed": failed, "retried": retry and not dry_run})
    elif retry:
        say(f"{'would queue' if dry_run else 'queued'} {counted(failed, 'failed job')} again")
    elif not found:
        say("No jobs wait.")
    else:
        rows = [
            (one.id, one.kind, one.project, one.session, one.status, one.attempts, one.problem or "") for one in found
        ]
        listing(["job", "kind", "project", "session", "status", "tries", "problem"], rows)
    return 1 if failed and not retry else 0


@command.command(short_help="Queue a background job.")
@click.argument("kind", type=click.Choice(["notes", "extract", "dream", "index", "retain"]))
@click.option("--project", metavar="SLUG", default="", help="The project, as 'reverie sessions --json' names it.")
@click.option("--session", metavar="NAME", default="", help="The session, for notes and extract.")
@click.option("--every", metavar="HOURS", type=click.FloatRange(0.01), help="Run it again and again.")
@click.option("--stop", is_flag=True, help="Delete this job if it waits, so that a timer ends.")
@click.option("--dry-run", is_flag=True, help="Check the arguments and change nothing.")
@_JSON
def queue(kind: Any, project: str, session: str, every: float | None, stop: bool, dry_run: bool, as_json: bool) -> int:
    """Queue a job for the workers: notes or memories of a session, a dream of a project, the index of words,
    or retention."""
    if kind in ("notes", "extract") and not (project and session):
        raise InputError(f"{kind} needs --project and --session")
    if kind == "dream" and not project:
        raise InputError("dream needs --project")
    is_new = True
    with closing(_queue()) as jobs:
        if stop:
            is_there = jobs.drop(kind, project=project, session=session, dry_run=dry_run)
            verb = "would delete" if dry_run else "deleted"
            if as_json:
                emit_json({"kind": kind, "project": project, "session": session, "deleted": is_there and not dry_run})
            else:
                say(f"{verb} the waiting {kind}" if is_there else f"no such {kind} waits")
            return 0
        if session and not _exists(log_key(project, session)):
            raise InputError(f"no session {session} in project {project}: 'reverie sessions --json' lists them")
        if not dry_run:
            seconds = round((every or 0) * 3_600)
            is_new = jobs.put(kind, project=project, session=session, every_seconds=seconds)
    if as_json:
        emit_json({"kind": kind, "project": project, "session": session, "queued": is_new and not dry_run})
    else:
        say(f"would queue {kind}" if dry_run else f"queued {kind}" if is_new else f"the same {kind} waits already")
    return 0


@command.command(short_help="Show who deleted, exported or moved data.")
@date_option("--since", "The first day, such as 2026-01-31.")
@click.option("--limit", metavar="N", default=50, type=click.IntRange(1), help="At most this many rows.")
@_JSON
def audit(since: datetime | None, limit: int, as_json: bool) -> int:
    """Show who deleted, exported or moved data of the tenant, newest first; without content."""
    settings = load_settings()
    first = "-infinity" if since is None else since.astimezone().isoformat()
    with closing(storage_of(settings)) as storage:
        database = database_of(storage)
        if database is None:
            raise InputError("audit rows are in a database; set database and tenant")
        rows = database.records.audit(first, limit)
    if as_json:
        emit_json({"rows": rows})
    elif not rows:
        say("No audit rows.")
    else:
        shown = [
            (f"{row.at:%Y-%m-%d %H:%M}", row.who, row.act, " ".join(f"{k}={v}" for k, v in row.detail.items()))
            for row in rows
        ]
        table(["time", "who", "act", "detail"], shown, cut=3)
    return 0


def _exists(key: str) -> bool:
    with closing(storage_of(load_settings())) as storage:
        return storage.load(key, 0, 1) is not None


def _queue() -> JobQueue:
    settings = load_settings()
    if settings.database is None or not settings.tenant:
        raise InputError("jobs are in a database: set REVERIE_DATABASE and REVERIE_TENANT")
    _migrations()
    from ...runtime.jobs.queue import JobQueue

    return JobQueue(settings.database, settings.tenant)


def _url(given: str | None) -> str:
    url = given or load_settings().database
    if url is None:
        raise InputError("no database: give --database URL, or set REVERIE_DATABASE")
    return url


def _migrations() -> ModuleType:
    with needing("postgres", "a database needs the extra postgres", SettingsError):
        from ...storage.postgres import migrate
    return migrate
