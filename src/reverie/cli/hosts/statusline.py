"""``reverie statusline``: one line about a session, for hosts that show one."""

from __future__ import annotations

import click

from .session_line import main

__all__ = ["command"]


@click.command(short_help="Print one line about a session for a host to show.")
@click.option("--json", "as_json", is_flag=True, help="Print what the line says as one JSON document.")
def command(as_json: bool) -> int:
    """Print one line about a session for a host to show.

    The host's JSON is read from stdin, as Claude Code gives it. The line says the model, the project, how full the
    window is, the share read from the cache, the cost, how many memories there are and how many wait for review.
    """
    return main(["--json"] if as_json else [])
