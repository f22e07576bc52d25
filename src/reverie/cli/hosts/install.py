"""``reverie install`` and ``reverie uninstall``: add hooks to another agent's settings, or remove them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from ...errors import InputError, ReverieError
from ...hosts.events import HOSTS, Host
from ...hosts.installer import SettingsChange, install, installed_files, settings_file, uninstall
from ...settings import load_settings
from ..output import emit_json, paint, say

_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_NEXT = {
    "claude-code": "To add tools too: claude mcp add reverie -- reverie mcp",
    "codex": "To add tools too: codex mcp add reverie -- reverie mcp. Codex asks you to trust new hooks once.",
    "gemini": "To add tools too: gemini mcp add reverie reverie mcp",
    "cursor": 'To add tools too, in mcp.json: {"mcpServers": {"reverie": {"command": "reverie", "args": ["mcp"]}}}',
}


@click.command()
@click.option("--host", type=click.Choice(HOSTS), required=True, help="The agent.")
@click.option("--project", metavar="DIR", help="Use the agent's settings of this project, not the user's.")
@click.option("--statusline", is_flag=True, help="Also set the status line if there is none (Claude Code).")
@click.option("--dry-run", is_flag=True, help="Show the diff and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(host: str, project: str | None, statusline: bool, dry_run: bool, as_json: bool) -> None:
    """Add Reverie's hooks to an agent's settings; existing settings and comments stay, and a backup is kept.

    A second run changes nothing. 'reverie uninstall' restores the file byte for byte.
    """
    path = settings_file(cast(Host, host), project=_directory(project))
    home = load_settings().home
    made = install(cast(Host, host), path, home, statusline=statusline, dry_run=dry_run)
    _print_changes([made], dry_run, as_json)
    if not as_json and not dry_run and made.state == "installed":
        say(_NEXT[host])


@click.command()
@click.option("--host", type=click.Choice(HOSTS), help="The agent; default: all agents that have the hooks.")
@click.option("--project", metavar="DIR", help="Use the agent's settings of this project, not the user's.")
@click.option("--dry-run", is_flag=True, help="Show the diff and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def remove(host: str | None, project: str | None, dry_run: bool, as_json: bool) -> None:
    """Remove Reverie's hooks; restore the file byte for byte, or if it was edited since, remove only the hooks."""
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
        except ReverieError as error:  # continue with the other files
            wrong.append(str(error))
    _print_changes(made, dry_run, as_json)
    if wrong:
        raise InputError("; ".join(wrong))
    if not made and not as_json:
        say("No agent has Reverie's hooks.")


def _directory(project: str | None) -> Path | None:
    if project is None:
        return None
    path = Path(project).resolve()
    if not path.is_dir():
        raise InputError(f"--project {project} is not a directory")
    return path


def _print_changes(changes: list[SettingsChange], dry_run: bool, as_json: bool) -> None:
    if as_json:
        emit_json({"dry_run": dry_run, "changes": changes})
        return
    for one in changes:
        if one.diff:
            paint((line, _STYLES.get(line[:1], "")) for line in one.diff.splitlines(keepends=True))
        backup = f" (backup: {one.backup})" if one.backup else ""
        say(f"{one.path}: {'would be ' if dry_run and one.diff else ''}{one.state}{backup}")
