"""``reverie statusline``: the click command; ``cli.start`` calls ``session_line`` directly when it can."""

from __future__ import annotations

import click

from .session_line import main


@click.command(short_help="Print a status line about a session for another agent to show.")
@click.option("--json", "as_json", is_flag=True, help="Print the values of the line as one JSON document.")
def command(as_json: bool) -> int:
    """Print a status line about a session for another agent to show.

    Reads the agent's JSON from stdin, in Claude Code's format. The line shows the model, the project, context usage,
    the share of cache hits, the cost, the number of memories, and the number of memories to review.
    """
    return main(["--json"] if as_json else [])
