"""``reverie worker``: run the jobs that hooks queued, in the foreground."""

from __future__ import annotations

from functools import partial

import click

from ...errors import SettingsError
from ...extras import needing
from ...hosts.queue import Queue
from ...hosts.worker import work
from ...settings import load_settings
from ..output import counted, emit_json, say, table


@click.command()
@click.option("--status", is_flag=True, help="Only show queued jobs and whether a worker is running.")
@click.option("--database", "url", metavar="URL", help="Run the jobs of all tenants of a database, until stopped.")
@click.option("--once", is_flag=True, help="With --database: end when no job is left.")
@click.option("--at-once", metavar="N", default=1, type=click.IntRange(1, 64), help="With --database: jobs at a time.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(status: bool, url: str | None, once: bool, at_once: int, as_json: bool) -> None:
    """Process the sessions that hooks queued: extract memories, update notes, copy the session into the library, and
    start a dream if one is due.

    Hooks start a worker automatically unless REVERIE_WORKER=off; this command does the same in the foreground.

    With --database it runs the jobs of a PostgreSQL database (notes, memories, dreams, retention), one per session at a
    time, on any number of machines. Its role must be one that 'reverie db migrate --worker ROLE' named. A job whose
    worker died is taken up by another one within a minute.
    """
    if url is not None:
        return _work_on_database(url, once=once, at_once=at_once, as_json=as_json)
    home = load_settings().home
    queue = Queue(home)
    if status:
        found = [job for name in queue.waiting_names() if (job := queue.read(name)) is not None]
        state = {"working": queue.has_worker(), "waiting": [job for job, _ in found]}
        if as_json:
            emit_json(state)
        else:
            worker = "a worker" if state["working"] else "no worker"
            say(f"{counted(len(found), 'session')} queued; {worker} is running.")
        return
    done = work(home)
    if as_json:
        emit_json(done)
    elif not done:
        say("A worker is already running." if queue.has_worker() else "No jobs are queued.")
    else:
        rows = [(one.host, one.session, one.by, len(one.saved), one.notes, one.filed, one.problem) for one in done]
        table(["host", "session", "method", "memories", "notes", "library", "problem"], rows, right=(3,), cut=6)


def _work_on_database(url: str, *, once: bool, at_once: int, as_json: bool) -> None:
    """Run the jobs of a database and print a line for each one that ended."""
    import anyio

    with needing("postgres", "a database needs the extra postgres", SettingsError):
        from ...runtime.jobs.queue import JobArguments
        from ...runtime.jobs.worker import run_worker

    def told(job: JobArguments, result: str) -> None:
        if as_json:
            emit_json({"job": job, "result": result})
        else:
            say(f"{job.tenant} {job.kind} {job.project} {job.session}: {result}")

    if not as_json and not once:
        say("Working; Ctrl-C ends this worker.")
    anyio.run(partial(run_worker, url, load_settings(), listener=told, once=once, concurrency=at_once))
