"""Decide whether a line of shell can only read: every command is on a list, every option is known.

The list names allowed forms, never forbidden ones: a command, an option, an abbreviation of an option or a form of
argument that is not on it needs permission.
"""

from __future__ import annotations

from typing import Final

from ....values import record
from ..grammar import Command, UnclearLine, parse
from .commands import COMMANDS
from .options import problem_with
from .watched import WATCHED, watched_problem

__all__ = ["ReadOnlyVerdict", "is_read_only", "problem_of"]

MAX_CHARS: Final = 1_000
"""A line with more characters is not checked and counts as not read-only, because the answer must be quick."""


@record
class ReadOnlyVerdict:
    """Whether a line of shell may run as read-only, and the reason."""

    allowed: bool
    reason: str


def is_read_only(command: str) -> ReadOnlyVerdict:
    """Return a verdict whether a line of shell can only read; a line that is not understood is not allowed."""
    if len(command) > MAX_CHARS:
        return ReadOnlyVerdict(False, f"it is longer than {MAX_CHARS} characters")
    line = parse(command)
    if isinstance(line, UnclearLine):
        return ReadOnlyVerdict(False, line.reason)
    for each in line.commands:
        problem = problem_of(each)
        if problem:
            return ReadOnlyVerdict(False, problem)
    return ReadOnlyVerdict(True, "it only reads")


def problem_of(command: Command, *, is_watched: bool = False) -> str:
    """Return the reason why a simple command may do more than read; an empty text if it can only read.

    ``is_watched`` says that each program is judged when it starts, also those that other programs start.
    """
    first, *rest = command.words
    name = first.text
    if not first.is_plain or (first.is_pattern and name != "["):
        return "its command name is quoted or a pattern"
    rule = COMMANDS.get(name) or (WATCHED.get(name) if is_watched else None)
    if rule is None:
        return f"{name} is not known to be read-only"
    problem = watched_problem(name, tuple(rest)) if is_watched else problem_with(rule, tuple(rest))
    return f"{name}: {problem}" if problem else ""
