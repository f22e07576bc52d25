"""Tool calls as one line each: what was called with what, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..output import printable

__all__ = ["call_title", "one_line", "outcome"]

TITLE_CHARS: Final = 120
OUTCOME_CHARS: Final = 80
# What of an input names the call best, most telling first.
TELLING: Final = ("file_path", "path", "command", "pattern", "url", "query", "skill", "name", "description", "prompt")
PATHS: Final = frozenset({"file_path", "path"})
COUNTED: Final[Mapping[str, tuple[str, str]]] = {
    "Read": ("line", "lines"),
    "Grep": ("line", "lines"),
    "Glob": ("file", "files"),
}


def call_title(name: str, given: Mapping[str, Any], cwd: Path) -> str:
    """Return a call as one line: ``Read(src/app.py)``."""
    if name == "Grep" and isinstance(given.get("pattern"), str):
        where = f" in {_short_path(str(given['path']), cwd)}" if given.get("path") else ""
        return f"Grep({one_line(given['pattern'], TITLE_CHARS // 2)}{where})"
    if isinstance(given.get("todos"), list):
        return f"{one_line(name)}({len(given['todos'])} items)"
    for key in TELLING:
        value = given.get(key)
        if isinstance(value, str) and value:
            shown = _short_path(value, cwd) if key in PATHS else value
            return f"{one_line(name)}({one_line(shown, TITLE_CHARS)})"
    words = ", ".join(f"{key}={value}" for key, value in given.items())
    return f"{one_line(name)}({one_line(words, TITLE_CHARS // 2)})"


def outcome(name: str, text: str, *, lines: int, is_error: bool, seconds: float = 0.0) -> str:
    """Return in a few words what a call gave; ``text`` is the beginning of it and ``lines`` how much there was."""
    took = f" ({seconds:.0f} s)" if seconds >= 2 else ""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if is_error:
        return one_line(first or "failed", OUTCOME_CHARS) + took
    if name in COUNTED and lines:
        one, many = COUNTED[name]
        return f"{lines:,} {one if lines == 1 else many}{took}"
    if not first:
        return f"done{took}"
    more = f" … {lines - 1:,} more lines" if lines > 2 else ""
    return one_line(first, OUTCOME_CHARS - len(more)) + more + took


def one_line(text: str, limit: int = OUTCOME_CHARS) -> str:
    """Return text on one line, harmless, and at most so long."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= limit else flat[: max(1, limit - 1)] + "…"


def _short_path(path: str, cwd: Path) -> str:
    """Return a path as a person in that directory would say it."""
    if not os.path.isabs(path):
        return path
    inside = os.path.relpath(path, cwd)
    return path if inside.startswith("..") else inside
