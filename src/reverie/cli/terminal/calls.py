"""Describe a tool call and its result in one line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..output import counted, printable, visible

TITLE_CHARS: Final = 120
OUTCOME_CHARS: Final = 80
# Input fields that describe a call, best first.
TELLING: Final = ("file_path", "path", "command", "pattern", "url", "query", "skill", "name", "description", "prompt")
PATHS: Final = frozenset({"file_path", "path"})
RESULT_NOUNS: Final[Mapping[str, str]] = {"Read": "line", "Grep": "line", "Glob": "file"}


def call_title(name: str, given: Mapping[str, Any], cwd: Path) -> str:
    """Return a tool call as one line with its most telling input, such as ``Read(src/app.py)``."""
    if name == "Grep" and isinstance(given.get("pattern"), str):
        where = f" in {visible(_short_path(str(given['path']), cwd))}" if given.get("path") else ""
        return f"Grep({one_line(visible(given['pattern']), TITLE_CHARS // 2)}{where})"
    if isinstance(given.get("todos"), list):
        return f"{one_line(name)}({counted(len(given['todos']), 'item')})"
    if name == "Plan" and isinstance(given.get("action"), str):
        return f"Plan({one_line(given['action'])})"
    for key in TELLING:
        value = given.get(key)
        if isinstance(value, str) and value:
            shown = _short_path(value, cwd) if key in PATHS else value
            return f"{one_line(name)}({one_line(visible(shown), TITLE_CHARS)})"
    words = ", ".join(f"{key}={value}" for key, value in given.items())
    return f"{one_line(name)}({one_line(visible(words), TITLE_CHARS // 2)})"


def outcome(name: str, text: str, *, lines: int, is_error: bool, seconds: float = 0.0) -> str:
    """Return a short description of a tool's result from the start of its text and its total number of lines."""
    took = f" ({seconds:.0f} s)" if seconds >= 2 else ""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if is_error:
        return one_line(first or "failed", OUTCOME_CHARS) + took
    if name in RESULT_NOUNS and lines:
        return counted(lines, RESULT_NOUNS[name]) + took
    if not first:
        return f"done{took}"
    more = f" … {lines - 1:,} more lines" if lines > 2 else ""
    return one_line(first, OUTCOME_CHARS - len(more)) + more + took


def one_line(text: str, limit: int = OUTCOME_CHARS) -> str:
    """Return text as one printable line of at most ``limit`` characters."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= limit else flat[: max(1, limit - 1)] + "…"


def _short_path(path: str, cwd: Path) -> str:
    """Return a path relative to the working directory if it is inside it, else unchanged."""
    if not os.path.isabs(path):
        return path
    inside = os.path.relpath(path, cwd)
    return path if inside.startswith("..") else inside
