"""``reverie hook``: what other agents' hooks call; answered before this module is loaded, which only explains it."""

from __future__ import annotations

import sys

import click

from ...hosts.events import EVENTS, HOSTS
from ...hosts.hook import main as answer

__all__ = ["command"]


@click.command(
    short_help="Answer a hook of another agent.",
    context_settings={"ignore_unknown_options": True},
    epilog="Events: " + "; ".join(f"{host}: {', '.join(EVENTS[host])}" for host in HOSTS),
)
@click.option("--host", metavar="NAME", required=True, help=f"Who calls: {', '.join(HOSTS)}.")
@click.argument("event", required=False, default="")
def command(host: str, event: str) -> None:
    """Answer a hook: JSON on stdin, JSON on stdout, always exit code 0.

    Session start shows the index of memories and, where the session goes on, its notes. A prompt brings the memories
    that fit it. Big tool outputs move to disk where the agent takes something else in their place. Before and after a
    compaction, at a stop and at the end, work is left for 'reverie worker'.
    """
    sys.exit(answer(["--host", host, event]))
