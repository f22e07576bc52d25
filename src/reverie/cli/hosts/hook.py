"""``reverie hook`` and ``reverie statusline`` as click commands, for --help; ``cli.start`` runs both without click."""

from __future__ import annotations

import sys

import click

from ...hosts.events import EVENTS, HOSTS
from ...hosts.hook import main as answer
from .session_line import main as print_line


@click.command(
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


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the values of the line as one JSON document.")
def statusline(as_json: bool) -> int:
    """Print a status line about a session for another agent to show.

    Reads the agent's JSON from stdin, in Claude Code's format. The line shows the model, the project, context usage,
    the share of cache hits, the cost, the number of memories, and the number of memories to review.
    """
    return print_line(["--json"] if as_json else [])
