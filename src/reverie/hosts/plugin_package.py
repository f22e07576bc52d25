"""Build one folder with a plugin for each host, from the files in ``plugin`` and the table of hooks, and delete it.

The root lists the plugins for the marketplaces of Claude Code and Codex. Each host has a folder of its own, because
several read hooks from the same place in their own words, and Codex reads no hooks beside an Agent Plugins manifest.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ..digests import hex_of
from ..errors import InputError
from ..paths import replace_file
from .events import EVENTS, Host
from .installer import BEFORE_TOOL, hook_entries, opencode_plugin, program

_SOURCE: Final = Path(__file__).with_name("plugin")
_RECORD: Final = "plugins.json"
_SCHEMAS: Final = "https://agent-plugins.org/schemas/1.0.0"
_ABOUT: Final = (
    "Memory for coding agents: recall for each prompt, searchable sessions, and undo, in files on your machine."
)
_OWNER: Final = {"name": "Reverie contributors"}
_ROOTS: Final[Mapping[Host, str]] = {
    "claude-code": "${CLAUDE_PLUGIN_ROOT}",
    "codex": "${PLUGIN_ROOT}",
    "gemini": "${extensionPath}",
    "qwen": "${CLAUDE_PLUGIN_ROOT}",
}
"""The place of the plugin in the words of each host."""
_EXECUTABLE: Final = "bin/reverie"


def plugin_files(home: Path) -> dict[str, str]:
    """Return the files of the plugin folder, as text by their path in it."""
    common = {"name": "reverie", "version": version("reverie"), "description": _ABOUT}
    about = {**common, "author": _OWNER, "license": "MIT", "keywords": ["memory", "context", "recall"]}
    listed = {"name": "reverie", "description": _ABOUT}
    local = {"source": {"source": "local", "path": "./codex"}, "category": "Productivity"}
    policy = {"policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"}}
    parts = {"skills": "./skills/", "hooks": "./hooks/hooks.json", "mcpServers": "./.mcp.json"}
    portable = {"type": "stdio", "command": f"./{_EXECUTABLE}", "args": ["mcp"]}
    files: dict[str, Any] = {
        "README.md": _source("README.md"),
        "LICENSE": _source("LICENSE"),
        ".claude-plugin/marketplace.json": {
            **listed,
            "owner": _OWNER,
            "plugins": [{**listed, "source": "./claude-code"}],
        },
        ".agents/plugins/marketplace.json": {
            "name": "reverie",
            "interface": {"displayName": "Reverie"},
            "plugins": [{"name": "reverie", **local, **policy}],
        },
        "agent-plugin/plugin.json": {"$schema": f"{_SCHEMAS}/plugin.schema.json", **about},
        "agent-plugin/mcp.json": {"$schema": f"{_SCHEMAS}/mcp.schema.json", "mcpServers": {"reverie": portable}},
        "claude-code/.claude-plugin/plugin.json": about,
        "claude-code/.mcp.json": _server("claude-code"),
        "codex/.codex-plugin/plugin.json": {**about, **parts},
        "codex/.mcp.json": _server("codex"),
        "gemini/gemini-extension.json": {**common, **_server("gemini")},
        "qwen/qwen-extension.json": {**common, **_server("qwen")},
        "opencode/reverie.js": opencode_plugin(),
        **{f"{host}/hooks/hooks.json": _hooks(host, home) for host in _ROOTS},
    }
    for folder in ("agent-plugin", *_ROOTS):
        files |= _shared(folder)
    return {path: one if isinstance(one, str) else json.dumps(one, indent=2) + "\n" for path, one in files.items()}


def _shared(folder: str) -> dict[str, str]:
    words = program()
    launcher = _source("launcher.sh").replace("@PROGRAM@", shlex.quote(words[0])).replace("@WORDS@", shlex.join(words))
    return {
        f"{folder}/README.md": _source("README.md"),
        f"{folder}/LICENSE": _source("LICENSE"),
        f"{folder}/{_EXECUTABLE}": launcher,
        f"{folder}/bin/before_tool.sh": BEFORE_TOOL.read_text(encoding="utf-8"),
        f"{folder}/skills/reverie/SKILL.md": _source("SKILL.md"),
    }


def _hooks(host: Host, home: Path) -> dict[str, Any]:
    root = _ROOTS[host]

    def command(event: str) -> str:
        start = f'sh "{root}/{_EXECUTABLE}"'
        words = f"{start} hook --host {host} {event}"
        if EVENTS[host][event] == "before_tool":
            words = f'sh "{root}/bin/before_tool.sh" {shlex.quote(str(home))} {host} {start}'
        # A host takes a failed hook for a request to stop, so a plugin that is gone must be silent.
        return f'test -r "{root}/{_EXECUTABLE}" && exec {words}; cat >/dev/null'

    return {"hooks": {event: [entry] for event, entry in hook_entries(host, command).items()}}


def _server(host: Host) -> dict[str, Any]:
    return {"mcpServers": {"reverie": {"command": f"{_ROOTS[host]}/{_EXECUTABLE}", "args": ["mcp"]}}}


def _source(name: str) -> str:
    return (_SOURCE / name).read_text(encoding="utf-8")


# -- the folder


def write_plugin(folder: Path, home: Path, *, dry_run: bool = False) -> list[Path]:
    """Write the plugin to a folder and return the paths of the files; a file that we did not write is not replaced.

    Files that an older version wrote and this one does not have are deleted, unless they were edited.
    """
    files = plugin_files(home)
    records = _records(home)
    known = records.get(str(folder), {})
    new = {path: hex_of(text.encode()) for path, text in files.items()}
    for path, digest in new.items():
        there = folder / path
        if there.exists() and _digest(there) not in (known.get(path), digest):  # a stopped run wrote some of the new
            raise InputError(f"{there} was not written by Reverie; give a new folder")
    if not dry_run:
        written = records[str(folder)] = dict(known)
        try:
            for path, text in files.items():
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
                target.chmod(0o755 if path.endswith(_EXECUTABLE) else 0o644)
                written[path] = new[path]
            _delete(folder, {path: seen for path, seen in known.items() if path not in new})
            records[str(folder)] = new
        finally:
            _save(records, home)
    return [folder / path for path in files]


def delete_plugin(folder: Path, home: Path, *, dry_run: bool = False) -> list[Path]:
    """Delete the files of a plugin that were not edited since, and emptied folders; return the paths of the files."""
    records = _records(home)
    known = records.pop(str(folder), {})
    ours = _delete(folder, known, dry_run=dry_run)
    if not dry_run:
        _save(records, home)
    return ours


def _delete(folder: Path, known: Mapping[str, str], *, dry_run: bool = False) -> list[Path]:
    ours = [folder / path for path, seen in known.items() if _digest(folder / path) == seen]
    for path in () if dry_run else ours:
        path.unlink()
        with suppress(OSError):  # a folder that holds other files stays
            for parent in path.relative_to(folder).parents:
                (folder / parent).rmdir()
    return ours


def plugin_folders(home: Path) -> list[Path]:
    """Return a list of the folders into which plugins were written."""
    return [Path(folder) for folder in _records(home)]


def _digest(path: Path) -> str | None:
    try:
        return hex_of(path.read_bytes())
    except OSError:
        return None


def _records(home: Path) -> dict[str, dict[str, str]]:
    try:
        return json.loads((home / _RECORD).read_bytes())
    except (OSError, ValueError):
        return {}


def _save(records: dict[str, dict[str, str]], home: Path) -> None:
    replace_file(str(home), _RECORD, json.dumps(records, indent=1).encode())
