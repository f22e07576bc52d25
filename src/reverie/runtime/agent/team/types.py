"""Find the agent types: the built-in ones, the user's, and those of a trusted project."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

from ....errors import ReverieError
from ....layers.l7_relay import AgentKind, KindSource, parse_kind
from ....tools.context import ToolContext
from ....tools.files.text_files import decoded_text
from ....tools.files.workspace import open_plain_file

_MAX_KINDS: Final = 100
_MAX_BYTES: Final = 400_000
FOLDER: Final = "agent-types"
"""The name of the folder of the user's own agent types, in their Reverie directory."""


def prompt_of(name: str) -> str:
    """Return the text of a prompt file of the relay layer (``layers/l7_relay/prompts``) by its name."""
    return files("reverie.layers.l7_relay").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8").strip()


def builtin_kinds() -> dict[str, AgentKind]:
    """Return the built-in agent types, ``general`` and ``explore``, by name."""
    return {
        "general": AgentKind(
            "general",
            "Does a whole task by itself, with all tools: searching, changing, running, checking.",
            prompt_of("general"),
        ),
        "explore": AgentKind(
            "explore",
            "Finds things out in the code by reading alone, and answers with paths and lines. Cannot change anything.",
            prompt_of("explore"),
            tools=("Read", "Glob", "Grep", "Bash"),
            mode="plan",
        ),
    }


def find_kinds(cwd: Path, *, home: Path, trusted: bool) -> tuple[Mapping[str, AgentKind], list[str]]:
    """Return all agent types by name, sorted, and the problems of files that could not be used; this may block.

    The first folder with a type has priority; those of a project are searched only if ``trusted``.
    """
    user = os.path.expanduser("~")
    folders: list[tuple[Path, KindSource]] = [(home / FOLDER, "user")]
    if trusted:
        folders = [(cwd / ".reverie" / "agents", "project"), (cwd / ".claude" / "agents", "project"), *folders]
    if user != "~":  # the user has a home directory
        folders.append((Path(user) / ".claude" / "agents", "user"))
    found: dict[str, AgentKind] = {}
    problems: list[str] = []
    for folder, source in folders:
        for file, text in _files(folder, problems):
            kind, wrong = parse_kind(text, file=file, source=source)
            problems += [f"{folder / file}: {one.partition(': ')[2]}" for one in wrong]
            if kind is not None and len(found) < _MAX_KINDS:
                found.setdefault(kind.name, kind)
    for name, kind in builtin_kinds().items():
        found.setdefault(name, kind)
    return {name: found[name] for name in sorted(found)}, problems


def _files(folder: Path, problems: list[str]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each Markdown file directly in a folder; add unreadable ones to ``problems``."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".md") and not name.startswith("."))
    except OSError:
        return
    for name in names[:_MAX_KINDS]:
        try:
            opened = open_plain_file(name, ToolContext(cwd=folder))
            with open(opened.descriptor, "rb") as file:
                yield name, decoded_text(file.read(_MAX_BYTES), opened.target)[0]
        except (OSError, ReverieError) as error:
            problems.append(f"{folder / name}: it cannot be read ({error})")
