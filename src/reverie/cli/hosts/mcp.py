"""``reverie mcp``: serve memories and past sessions as tools over MCP."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click

from ...errors import InputError
from ...extras import needing
from ...settings import load_settings
from ..options import number_option
from ..output import printable

TOKEN_FILE = "mcp-token"


@click.command()
@click.option(
    "--project",
    "projects",
    metavar="DIR",
    multiple=True,
    help="A directory to serve; default: the current one (repeatable).",
)
@click.option("--all-projects", is_flag=True, help="Allow searches over the sessions of all projects.")
@click.option("--http", "over_http", is_flag=True, help="Serve HTTP on loopback instead of stdin and stdout.")
@number_option("--port", "The port for --http; 0 means any free port.", 0, 65_535, default=0, metavar="PORT")
@click.option("--new-token", is_flag=True, help="Create a new token for --http and revoke the old one.")
@click.option("--json", "as_json", is_flag=True, help="With --http: print the address as JSON.")
def command(
    projects: tuple[str, ...], all_projects: bool, over_http: bool, port: int, new_token: bool, as_json: bool
) -> None:
    """Serve memories and past sessions to other agents over MCP.

    By default it uses stdin and stdout. With --http it listens on 127.0.0.1 and requires a token, which is stored in a
    file that only you can read.
    """
    if not over_http and (port or new_token or as_json):
        raise InputError("--port, --new-token and --json need --http")
    home = load_settings().home
    with needing("mcp", "the MCP server needs an optional package", InputError):
        import mcp  # pyright: ignore[reportUnusedImport]  # noqa: F401 - check that it is installed
    import anyio

    from ...servers.answers import ToolAnswers
    from ...servers.mcp import McpServer, serve_stdio
    from ...servers.scope import ServedProjects

    answers = ToolAnswers(
        ServedProjects(projects or default_projects(os.environ)), home=home, all_projects=all_projects
    )
    if not over_http:
        anyio.run(serve_stdio, McpServer(answers))
        return
    from ...servers.guard import load_token, open_listener
    from ...servers.mcp_http import serve_http

    token = load_token(home, TOKEN_FILE, renew=new_token)
    with open_listener(port) as listener:
        announce = partial(print_address, home / TOKEN_FILE, as_json)
        anyio.run(partial(serve_http, McpServer(answers, with_project=True), listener, token=token, started=announce))


def default_projects(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories to serve if none is named: the current one, or in a plugin's folder the client's and home.

    A client of Agent Plugins starts a server in the plugin's folder. Then each call can name its project.
    """
    folder, started = environ.get("PLUGIN_ROOT", ""), environ.get("PWD", "")
    if not folder or not Path.cwd().is_relative_to(Path(folder).resolve()):
        return (".",)
    is_other = os.path.isdir(started) and not Path(started).resolve().is_relative_to(Path(folder).resolve())
    return (started, "~") if is_other else ("~", ".")


def print_address(token_file: Path, as_json: bool, url: str) -> None:
    """Print the server's URL and the path of its token file, but never the token."""
    address = {"url": url, "token_file": str(token_file)}
    text = json.dumps(address) if as_json else f"listening on {url}\nthe token is in {token_file}"
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()
