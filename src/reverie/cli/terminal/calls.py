"""Describe a tool call and its result in one line, the end of a command's output, and the agent's steps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..output import counted, printable, visible

if TYPE_CHECKING:
    from ...tools.context import Todo
    from .colours import Paint

TITLE_CHARS: Final = 120
OUTCOME_CHARS: Final = 80
# Input fields that describe a call, best first.
TELLING: Final = ("file_path", "path", "command", "pattern", "url", "query", "skill", "name", "description", "prompt")
PATHS: Final = frozenset({"file_path", "path"})
COMMANDS: Final = frozenset({"Bash", "BashOutput"})
"""Tools whose result is the output of a command: its end says most."""
CHANGERS: Final = frozenset({"Edit", "Write"})
STEP_MARKS: Final = {"completed": ("✓", "done"), "in_progress": ("▸", "busy")}
RESULT_NOUNS: Final[Mapping[str, str]] = {"Read": "line", "Grep": "line", "Glob": "file"}


def call_title(name: str, given: Mapping[str, Any], cwd: Path) -> str:
    """Return a tool call as one line with its most telling input, such as ``Read(src/app.py)``."""
    if name == "Grep" and isinstance(given.get("pattern"), str):
        where = f" in {visible(_short_path(str(given['path']), cwd))}" if given.get("path") else ""
        return f"Grep({one_line(visible(given['pattern']), TITLE_CHARS // 2)}{where})"
    if isinstance(given.get("todos"), list):
        return f"{one_line(name)}({counted(len(given['todos']), 'item')})"
    if isinstance(given.get("action"), str):
        words = "" if name == "Plan" else str(given.get("text") or given.get("file") or "")
        return f"{one_line(name)}({one_line(visible(': '.join(filter(None, [given['action'], words]))), TITLE_CHARS)})"
    for key in TELLING:
        value = given.get(key)
        if isinstance(value, str) and value:
            shown = _short_path(value, cwd) if key in PATHS else value
            return f"{one_line(name)}({one_line(visible(shown), TITLE_CHARS)})"
    words = ", ".join(f"{key}={value}" for key, value in given.items())
    return f"{one_line(name)}({one_line(visible(words), TITLE_CHARS // 2)})"


def outcome(name: str, text: str, *, lines: int, is_error: bool, seconds: float = 0.0, end: str = "") -> str:
    """Return a short description of a tool's result from its start, its end and its total number of lines."""
    took = f" ({seconds:.0f} s)" if seconds >= 2 else ""
    if name in COMMANDS and is_error:
        last = next((line for line in reversed((end or text).splitlines()) if line.strip()), "failed")
        return one_line(last.strip().strip("[]"), OUTCOME_CHARS) + took
    if name in COMMANDS and lines > 1:
        return counted(lines, "line") + took
    first = next((line for line in text.splitlines() if line.strip()), "")
    if is_error:
        return one_line(first or "failed", OUTCOME_CHARS) + took
    if name == "Plan":  # the text after its first sentence is for the model
        return one_line(first.partition(". ")[0], OUTCOME_CHARS)
    if name in RESULT_NOUNS and lines:
        return counted(lines, RESULT_NOUNS[name]) + took
    if name in CHANGERS and " was " in first:  # the title has the path
        return one_line(first.partition(" was ")[2].rstrip("."), OUTCOME_CHARS)
    if not first:
        return f"done{took}"
    more = f" … {lines - 1:,} more lines" if lines > 2 else ""
    return one_line(first, OUTCOME_CHARS - len(more)) + more + took


def output_lines(text: str, *, rows: int, columns: int, total: int, is_error: bool = False) -> list[str]:
    """Return the last lines of a command's output, cut to the screen; a first line counts those that are left out.

    ``total`` is the number of lines of the whole output. The exit code at the end of an error is left out.
    """
    kept = [line for line in printable(text).expandtabs(4).splitlines() if line.strip()]
    if is_error and kept and kept[-1].startswith("["):
        kept, total = kept[:-1], total - 1
    shown = [line.rstrip() for line in kept[-rows:]]
    shown = [line if len(line) <= columns - 5 else f"{line[: columns - 6]}…" for line in shown]
    left = total - len(shown)
    return [*([f"… {counted(left, 'more line')} · Ctrl-O shows all"] if shown and left > 0 else []), *shown]


def step_lines(steps: Sequence[Todo], paint: Paint, *, columns: int = 200, rows: int = 100) -> list[str]:
    """Return the agent's steps, one line each; of more than ``rows``, those around the first that is not done."""
    first = next((at for at, step in enumerate(steps) if step.status != "completed"), len(steps))
    start = max(0, min(first - 1, len(steps) - rows))
    shown: list[str] = []
    for step in steps[start : start + rows]:
        mark, style = STEP_MARKS.get(step.status, ("·", ""))
        text = one_line(step.content, columns - 5)
        shown.append(f"  {paint(mark, style or 'dim')} {text if style == 'busy' else paint(text, 'dim')}")
    left = len(steps) - len(shown)
    if left > 0:
        shown.append(paint(f"  … {counted(left, 'other step')}, {first} of {len(steps)} done", "dim"))
    return shown


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
