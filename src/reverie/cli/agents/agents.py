"""``reverie agents``: the agents that sessions started, running and past."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from ...conversation.entries import seconds
from ...errors import InputError
from ...runtime.agent.team.history import AgentRecord, agents_of
from ...runtime.library import Library
from ...runtime.places.projects import project_slug
from ..output import console, emit_json, say, table
from ..sessions.recordings import opened_storage

SHOWN: Final = 50
EVERY_SECONDS: Final = 2.0
STATES: Final = {"lost": "lost (its process ended)"}


@click.command()
@click.option("--watch", is_flag=True, help="Refresh every two seconds until Ctrl-C.")
@click.option("--running", is_flag=True, help="Only running agents.")
@click.option("--session", metavar="NAME", help="Only agents of this session; the start of its name is enough.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(watch: bool, running: bool, session: str | None, as_json: bool) -> int:
    """List the agents that sessions started, newest first, with state, task, last step, turns, tokens and cost."""
    if watch and as_json:
        raise InputError("--watch and --json exclude each other: use one of them")
    while True:
        found = _selected_agents(running, session)
        if as_json:
            emit_json({"agents": found})
            return 0
        if watch:
            console().clear()
        draw(found)
        if not watch:
            return 0
        time.sleep(EVERY_SECONDS)


def _selected_agents(running: bool, session: str | None) -> list[AgentRecord]:
    with opened_storage() as storage:
        found = agents_of(storage)
        if session is not None:
            session = Library(storage, project=project_slug(Path.cwd())).find(session).rsplit("/", 1)[-1]
            session = session.removesuffix(".jsonl")
    return [
        one
        for one in found
        if (not running or one.state == "running") and (session is None or session in (one.session, one.parent))
    ]


def draw(found: list[AgentRecord]) -> None:
    """Print a table with one row per agent, at most 50, and the number of further agents."""
    if not found:
        say("No agents yet. A session starts agents with its Agent tool.")
        return
    shown = found[:SHOWN]
    now = time.time()
    columns = {
        "agent": [one.agent for one in shown],
        "state": [STATES.get(one.state, one.state) for one in shown],
        "task": [": ".join(filter(None, (one.description, one.line))) for one in shown],
        "started by": [one.parent or one.session for one in shown],
        "depth": [str(one.depth) for one in shown],
        "turns": [f"{one.turns:,}" for one in shown],
        "tokens": [f"{one.tokens:,}" for one in shown],
        "cost": ["–" if one.cost_usd is None else f"${one.cost_usd:,.4f}" for one in shown],
        "age": [age(now - seconds(one.started)) for one in shown],
    }
    headings = list(columns)
    right = [at for at, name in enumerate(headings) if name in ("depth", "turns", "tokens", "cost", "age")]
    table(headings, list(zip(*columns.values(), strict=True)), right=right, cut=2)
    if len(found) > SHOWN:
        say(f"... and {len(found) - SHOWN:,} earlier; --json prints all")


def age(passed: float) -> str:
    """Return a duration in seconds as text in its largest unit, rounded, such as "3 h"."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if passed >= size:
            return f"{passed / size:.0f} {unit}"
    return f"{max(0.0, passed):.0f} s"
