"""``reverie hook``: the click command, used only for --help; ``cli.start`` handles real hook calls without click."""

from __future__ import annotations

import sys

import click

from ...hosts.events import EVENTS, HOSTS
from ...hosts.hook import main as answer


@click.command(
    short_help="Handle one hook call from another agent.",
    context_settings={"ignore_unknown_options": True},
    epilog="Events: " + "; ".join(f"{host}: {', '.join(EVENTS[host])}" for host in HOSTS),
)
@click.option("--host", metavar="NAME", required=True, help=f"The calling agent: {', '.join(HOSTS)}.")
@click.argument("event", required=False, default="")
def command(host: str, event: str) -> None:
    """Handle one hook call: JSON on stdin, JSON on stdout, always exit code 0.

    At session start it returns the memory index and, for a continued session, the notes. For a prompt it returns
    matching memories. It moves large tool outputs to disk if the agent accepts a replacement. Around compactions, at a
    stop and at the end it queues jobs for 'reverie worker'.
    """
    sys.exit(answer(["--host", host, event]))
