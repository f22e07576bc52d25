"""``reverie install`` and ``reverie uninstall``: our hooks in another agent's settings, and out again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click

from ...errors import InputError, ReverieError
from ...hosts.events import HOSTS, Host
from ...hosts.installer import SettingsChange, install, installed_files, settings_file, uninstall
from ...settings import load_settings
from ..output import console, emit_json, paint, say

__all__ = ["command", "remove"]

_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_NEXT = {
    "claude-code": "For tools as well: claude mcp add reverie -- reverie mcp",
    "codex": "For tools as well: codex mcp add reverie -- reverie mcp. Codex asks you to trust new hooks once.",
    "gemini": "For tools as well: gemini mcp add reverie reverie mcp",
    "cursor": 'For tools as well, in mcp.json: {"mcpServers": {"reverie": {"command": "reverie", "args": ["mcp"]}}}',
}


@click.command(short_help="Put our hooks into another agent's settings.")
@click.option("--host", type=click.Choice(HOSTS), required=True, help="The agent.")
@click.option("--project", metavar="DIR", help="Its settings for one project, in place of the user's.")
@click.option("--statusline", is_flag=True, help="Also set the status line, where there is none (Claude Code).")
@click.option("--dry-run", is_flag=True, help="Show what would change and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(host: str, project: str | None, statusline: bool, dry_run: bool, as_json: bool) -> None:
    """Merge our hooks into an agent's settings: what is there stays, comments too, and a copy is kept.

    Doing it twice changes nothing; 'reverie uninstall' puts everything back byte for byte.
    """
    path = settings_file(cast(Host, host), project=_directory(project))
    home = load_settings().home
    made = install(cast(Host, host), path, home, statusline=statusline, dry_run=dry_run)
    _tell([made], dry_run, as_json)
    if not as_json and not dry_run and made.state == "installed":
        say(_NEXT[host])


@click.command(short_help="Take our hooks out of another agent's settings.")
@click.option("--host", type=click.Choice(HOSTS), help="The agent; without one, all that we were put into.")
@click.option("--project", metavar="DIR", help="Its settings for one project, in place of the user's.")
@click.option("--dry-run", is_flag=True, help="Show what would change and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def remove(host: str | None, project: str | None, dry_run: bool, as_json: bool) -> None:
    """Take our hooks out again: byte for byte where nobody edited the file since, else only what is ours."""
    home = load_settings().home
    wanted: list[tuple[Host, Path]] = installed_files(home)
    if host is not None:
        named = cast(Host, host)
        wanted = [(named, settings_file(named, project=_directory(project)))]
    made: list[SettingsChange] = []
    wrong: list[str] = []
    for one, path in wanted:
        try:
            made.append(uninstall(one, path, home, dry_run=dry_run))
        except ReverieError as error:  # a file that cannot be read keeps nobody from the others
            wrong.append(str(error))
    _tell(made, dry_run, as_json)
    if wrong:
        raise InputError("; ".join(wrong))
    if not made and not as_json:
        say("Our hooks are in no agent's settings.")


def _directory(project: str | None) -> Path | None:
    if project is None:
        return None
    path = Path(project).resolve()
    if not path.is_dir():
        raise InputError(f"--project {project} is not a directory")
    return path


def _tell(changes: list[SettingsChange], dry_run: bool, as_json: bool) -> None:
    if as_json:
        rows: list[dict[str, Any]] = [
            {
                "host": one.host,
                "path": str(one.path),
                "state": one.state,
                "diff": one.diff,
                "backup": str(one.backup) if one.backup else None,
            }
            for one in changes
        ]
        emit_json({"dry_run": dry_run, "changes": rows})
        return
    for one in changes:
        if one.diff:
            paint((line, _style(line)) for line in one.diff.splitlines(keepends=True))
        say(f"{one.path}: {'would be ' if dry_run and one.diff else ''}{one.state}" + _kept(one))


def _kept(one: SettingsChange) -> str:
    return f" (the file as it was: {one.backup})" if one.backup else ""


def _style(line: str) -> str:
    return _STYLES.get(line[:1], "") if console().is_terminal else ""
