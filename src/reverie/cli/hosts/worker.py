"""``reverie worker``: do what hooks left for later, now."""

from __future__ import annotations

import click

from ...hosts.queue import Queue
from ...hosts.worker import work
from ...settings import load_settings
from ..output import emit_json, say, table

__all__ = ["command"]


@click.command(short_help="Do what hooks of other agents left for later.")
@click.option("--status", is_flag=True, help="Only say what waits and whether somebody is at it.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(status: bool, as_json: bool) -> None:
    """Look through the sessions that hooks named: memories, notes, the library, and a dream where one is due.

    Hooks start a worker by themselves (REVERIE_WORKER=off keeps them from it); this is the same, in the foreground.
    """
    home = load_settings().home
    queue = Queue(home)
    if status:
        found = [job for name in queue.waiting_names() if (job := queue.read(name)) is not None]
        state = {"working": queue.has_worker(), "waiting": [job for job, _ in found]}
        if as_json:
            emit_json(state)
        else:
            say(f"{len(found)} sessions wait; {'a worker is at it' if state['working'] else 'nobody is at it'}.")
        return
    done = work(home)
    if as_json:
        emit_json(done)
    elif not done:
        say("A worker is at it already." if queue.has_worker() else "Nothing waits.")
    else:
        rows = [(one.host, one.session, one.by, len(one.saved), one.notes, one.filed, one.problem) for one in done]
        table(["host", "session", "by", "memories", "notes", "filed", "problem"], rows, right=(3,), cut=6)
