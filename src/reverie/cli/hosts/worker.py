"""``reverie worker``: run the jobs that hooks queued, in the foreground."""

from __future__ import annotations

import click

from ...hosts.queue import Queue
from ...hosts.worker import work
from ...settings import load_settings
from ..output import counted, emit_json, say, table


@click.command()
@click.option("--status", is_flag=True, help="Only show queued jobs and whether a worker is running.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(status: bool, as_json: bool) -> None:
    """Process the sessions that hooks queued: extract memories, update notes, copy the session into the library, and
    start a dream if one is due.

    Hooks start a worker automatically unless REVERIE_WORKER=off; this command does the same in the foreground.
    """
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
