"""``reverie mcp``: memories and past sessions as tools for any agent that speaks MCP."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import click

from ...errors import InputError
from ...settings import load_settings
from ..output import printable

__all__ = ["command"]

TOKEN_FILE = "mcp-token"


@click.command(short_help="Serve memories and past sessions to other agents.")
@click.option(
    "--project",
    "projects",
    metavar="DIR",
    multiple=True,
    help="A directory to serve, in place of the current one; may be given several times.",
)
@click.option("--all-projects", is_flag=True, help="Let sessions of all projects be searched, where that is asked for.")
@click.option("--http", "over_http", is_flag=True, help="Serve HTTP on loopback instead of stdin and stdout.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, show_default=True, help="The port for --http; 0 takes any."
)
@click.option("--new-token", is_flag=True, help="Make a new token for --http; the old one no longer opens anything.")
@click.option("--json", "as_json", is_flag=True, help="With --http: say as JSON where it listens.")
def command(
    projects: tuple[str, ...], all_projects: bool, over_http: bool, port: int, new_token: bool, as_json: bool
) -> None:
    """Serve memories and past sessions to other agents.

    Without --http it speaks to the program that started it. With --http it listens on 127.0.0.1 and lets in who sends
    the token that is kept, readable by you alone, in the file it names.
    """
    if not over_http and (port or new_token or as_json):
        raise InputError("--port, --new-token and --json belong to --http; add it, or leave them out")
    home = load_settings().home
    try:
        import mcp  # pyright: ignore[reportUnusedImport]  # noqa: F401 - only to see whether it is there
    except ImportError:
        raise InputError("the MCP server needs an extra: pip install 'reverie[mcp]'") from None
    import anyio

    from ...servers.answers import ToolAnswers
    from ...servers.mcp import McpServer, serve_stdio
    from ...servers.scope import ServedProjects

    answers = ToolAnswers(ServedProjects(projects or (".",)), home=home, all_projects=all_projects)
    if not over_http:
        anyio.run(serve_stdio, McpServer(answers))
        return
    from ...servers.mcp_http import open_listener, serve_http
    from ...servers.token_file import load_token

    token = load_token(home, TOKEN_FILE, renew=new_token)
    with open_listener(port) as listener:
        told = partial(tell, home / TOKEN_FILE, as_json)
        anyio.run(partial(serve_http, McpServer(answers, with_project=True), listener, token=token, started=told))


def tell(token_file: Path, as_json: bool, url: str) -> None:
    """Say where the server listens and where its token is; the token itself is never printed."""
    said = {"url": url, "token_file": str(token_file)}
    text = json.dumps(said) if as_json else f"listening on {url}\nthe token is in {token_file}"
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()
