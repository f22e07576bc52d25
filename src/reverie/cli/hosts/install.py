"""``reverie install`` and ``reverie uninstall``: add hooks to another agent's settings, or remove them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import click

from ...errors import InputError, ReverieError
from ...extras import install_command
from ...hosts.events import HOSTS, Host
from ...hosts.installer import (
    InstallOptions,
    SettingsChange,
    install,
    installed_files,
    program,
    settings_file,
    uninstall,
)
from ...hosts.plugin_package import delete_plugin, plugin_folders, write_plugin
from ...hosts.shared_memory import adopt_memories, is_shared
from ...runtime.memory.scopes import memory_directory
from ...runtime.places.projects import canonical_root
from ...settings import load_settings
from ...values import replace
from ..output import confirmed, emit_json, folded, is_terminal, paint, say

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.option("--host", type=click.Choice(HOSTS), help="The agent.")
@click.option("--plugin", metavar="DIR", help="Build a plugin folder for all agents there; change no settings.")
@click.option("--project", metavar="DIR", help="Use the agent's settings of this project, not the user's.")
@click.option("--statusline", is_flag=True, help="Also set the status line if there is none (Claude Code, Qwen Code).")
@click.option(
    "--share-memory/--no-share-memory",
    default=None,
    help="Let Claude Code keep its own memory of this project in Reverie's directory; default: ask.",
)
@click.option("--no-permissions", is_flag=True, help="Do not allow the MCP tools that only read (Claude Code).")
@click.option("--dry-run", is_flag=True, help="Show the diff and write nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    host: str | None,
    plugin: str | None,
    project: str | None,
    statusline: bool,
    share_memory: bool | None,
    no_permissions: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Add Reverie's hooks to an agent's settings; existing settings and comments stay, and a backup is kept.

    It shows the diff and asks. A second run changes nothing. 'reverie uninstall' restores the file byte for byte.
    """
    _check_choice(host, plugin)
    if plugin is not None:
        _write_plugin(plugin, dry_run, as_json)
        return
    if host is None:
        raise InputError("name the agent with --host, or a folder for a plugin with --plugin")
    name, settings = cast(Host, host), load_settings()
    root = canonical_root(_directory(project) or Path.cwd())
    path = settings_file(name, project=_directory(project))
    parts = {path: InstallOptions(statusline=statusline, permissions=not no_permissions)}
    local, memory = settings_file(name, project=root), str(memory_directory(root, settings))
    if share_memory is None and not (yes or dry_run or as_json or name != "claude-code"):
        share_memory = _wants_one_memory(root, memory)
    if share_memory and name == "claude-code":
        parts[local] = replace(parts.get(local, InstallOptions(hooks=False)), memory=memory)
    planned = [install(name, one, settings.home, options, dry_run=True) for one, options in parts.items()]
    about = (
        f"Each hook runs this Reverie ({shlex.join(program())}, home {settings.home}), and does nothing if it is gone."
    )
    if dry_run or not any(one.diff for one in planned):
        _print_changes(planned, dry_run, as_json)
        if not as_json and any(one.diff for one in planned):
            say(folded(about))
        return
    if not yes:
        _print_diffs(planned)
        say(folded(about))
        refusal = "wrote nothing: confirmation needs a terminal; --yes writes the changes, --dry-run shows them"
        if not confirmed("Write these changes?", refusal):
            return
    made = [install(name, one, settings.home, options) for one, options in parts.items()]
    copied, left = adopt_memories(root, settings) if any(options.memory for options in parts.values()) else ([], [])
    _print_changes(made, dry_run, as_json, diffs=yes, copied=copied, not_copied=left)
    for line in () if as_json else [*_adopted(copied, left), *_next_steps(name)]:
        say(line)


def _check_choice(host: str | None, plugin: str | None) -> None:
    if host is not None and plugin is not None:
        raise InputError("--host and --plugin exclude each other: a plugin folder has a part for each agent")
    if plugin is not None and Path(plugin).is_file():
        raise InputError(f"{plugin} is a file: give a folder")


def _adopted(copied: Sequence[str], left: Sequence[str]) -> list[str]:
    said = {
        f"Copied {len(copied)} memories that Claude Code had of this project": copied,
        "Not copied, because they are too large or are no readable files": left,
    }
    return [f"{words}: {', '.join(files)}" for words, files in said.items() if files]


def _write_plugin(plugin: str, dry_run: bool, as_json: bool) -> None:
    """Build the plugin folder and say how each agent loads it."""
    folder = Path(plugin).absolute()
    files = write_plugin(folder, load_settings().home, dry_run=dry_run)
    if as_json:
        emit_json({"dry_run": dry_run, "files": files})
        return
    for path in files:
        say(str(path))
    say(f"{folder}: {'would be ' if dry_run else ''}written; its README.md says how each agent loads it.")


def _wants_one_memory(root: Path, memory: str) -> bool:
    """Ask whether Claude Code shall use Reverie's memory directory; False without a terminal or if it does already."""
    if not is_terminal() or is_shared(str(root), memory):
        return False
    question = (
        f"Claude Code also keeps memories of its own. Shall it keep those of {root} in Reverie's directory, so that "
        "both have one memory?"
    )
    return confirmed(question, "")


def _next_steps(host: Host) -> list[str]:
    """Return the commands that add the MCP tools, as they work in any directory."""
    serve = shlex.join([*program(), "mcp"])
    said: list[str] = []
    if find_spec("mcp") is None:
        said.append(f"For the tools, first: {install_command('mcp')}")
    match host:
        case "claude-code":
            said.append(f"To add tools too: claude mcp add --scope user reverie -- {serve}")
        case "codex":
            said.append(f"To add tools too: codex mcp add reverie -- {serve}")
            said.append("Codex runs new hooks only after you trusted them: start 'codex' once and agree.")
        case "gemini" | "qwen":
            said.append(f"To add tools too: {host} mcp add --scope user reverie {serve}")
        case "opencode":
            words = json.dumps({"mcp": {"reverie": {"type": "local", "command": [*program(), "mcp"]}}})
            said.append(f"To add tools too, in opencode.json: {words}")
        case "cursor":
            words = [*program(), "mcp"]
            server = json.dumps({"mcpServers": {"reverie": {"command": words[0], "args": words[1:]}}})
            said.append(f"To add tools too, in ~/.cursor/mcp.json: {server}")
    return said


@click.command()
@click.option("--host", type=click.Choice(HOSTS), help="The agent; default: all agents that have the hooks.")
@click.option("--plugin", metavar="DIR", help="Only delete the plugin folder that was built there.")
@click.option("--project", metavar="DIR", help="Use the agent's settings of this project, not the user's.")
@click.option("--dry-run", is_flag=True, help="Show the diff and write nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def remove(host: str | None, plugin: str | None, project: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove Reverie's hooks; restore the file byte for byte, or if it was edited since, remove only the hooks.

    It shows the diff and asks.
    """
    _check_choice(host, plugin)
    home = load_settings().home
    if plugin:
        _delete_plugin(Path(plugin).absolute(), home, dry_run, as_json)
        return
    folders = plugin_folders(home) if host is None else []
    wanted: list[tuple[Host, Path]] = [row for row in installed_files(home) if host in (None, row[0])]
    if host is not None:
        named = cast(Host, host)
        one = (named, settings_file(named, project=_directory(project)))
        wanted = [one] if project else list(dict.fromkeys([one, *wanted]))
    made, wrong = _uninstalled(wanted, home, dry_run=True)
    deleted = [path for folder in folders for path in delete_plugin(folder, home, dry_run=True)]
    needs_answer = not (dry_run or yes) and bool(deleted or any(one.diff for one in made))
    if needs_answer:
        _print_diffs(made)
        for path in deleted:
            say(f"{path}: would be deleted")
        refusal = "removed nothing: confirmation needs a terminal; --yes removes the hooks, --dry-run shows the diff"
        if not confirmed("Remove these hooks?", refusal):
            return
    if not dry_run:
        deleted = [path for folder in folders for path in delete_plugin(folder, home, dry_run=False)]
        made, wrong = _uninstalled(wanted, home, dry_run=False)
    if deleted and not as_json:
        _print_deleted(folders, dry_run, deleted)
    _print_changes(made, dry_run, as_json, diffs=not needs_answer)
    if wrong:
        raise InputError("; ".join(wrong))
    if not made and not deleted and not as_json:
        say("No agent has Reverie's hooks.")


def _uninstalled(
    wanted: Sequence[tuple[Host, Path]], home: Path, *, dry_run: bool
) -> tuple[list[SettingsChange], list[str]]:
    """Remove the hooks from each file; return the changes and the errors of the files that could not be changed."""
    made: list[SettingsChange] = []
    wrong: list[str] = []
    for name, path in wanted:
        try:
            made.append(uninstall(name, path, home, dry_run=dry_run))
        except ReverieError as error:  # continue with the other files
            wrong.append(str(error))
    return made, wrong


def _delete_plugin(folder: Path, home: Path, dry_run: bool, as_json: bool) -> None:
    deleted = delete_plugin(folder, home, dry_run=dry_run)
    if as_json:
        emit_json({"dry_run": dry_run, "deleted": deleted})
    else:
        _print_deleted([folder], dry_run, deleted)


def _print_deleted(folders: Sequence[Path], dry_run: bool, deleted: Sequence[object]) -> None:
    said = f"{'would be ' if dry_run else ''}deleted" if deleted else "no plugin of Reverie"
    say(f"{', '.join(map(str, folders))}: {said}")


def _directory(project: str | None) -> Path | None:
    if project is None:
        return None
    path = Path(project).resolve()
    if not path.is_dir():
        raise InputError(f"--project {project} is not a directory")
    return path


def _print_changes(
    changes: list[SettingsChange], dry_run: bool, as_json: bool, *, diffs: bool = True, **memories: list[str]
) -> None:
    """Print the changes; ``memories`` are lists of files that only the JSON has."""
    if as_json:
        emit_json({"dry_run": dry_run, "changes": changes, **memories})
        return
    if diffs:
        _print_diffs(changes)
    for one in changes:
        backup = f" (backup: {one.backup})" if one.backup else ""
        say(f"{one.path}: {'would be ' if dry_run and one.diff else ''}{one.state}{backup}")


def _print_diffs(changes: list[SettingsChange]) -> None:
    for one in changes:
        if one.diff:
            paint((line, _STYLES.get(line[:1], "")) for line in one.diff.splitlines(keepends=True))
