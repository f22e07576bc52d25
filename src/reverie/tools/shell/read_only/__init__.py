"""Whether a line of shell only looks: every command on a list, every option known, every word understood.

The list says what is allowed, never what is forbidden: a command, an option, an abbreviation of an option or a shape of
argument that is not on it makes the line one that needs permission.
"""

from __future__ import annotations

from typing import Final

from ....values import record
from ..grammar import Command, UnclearLine, parse
from .commands import COMMANDS
from .options import problem_with

__all__ = ["ReadOnlyVerdict", "is_read_only", "problem_of"]

MAX_CHARS: Final = 1_000
"""A longer line is not looked at: the answer must come at once."""


@record
class ReadOnlyVerdict:
    """Whether a line may run as read-only, and why."""

    allowed: bool
    reason: str


def is_read_only(command: str) -> ReadOnlyVerdict:
    """Say whether a line of shell can only read; whatever is not understood is not allowed."""
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


def problem_of(command: Command) -> str:
    """Return why a simple command is not known to only read; nothing where it is."""
    first, *rest = command.words
    name = first.text
    if not first.is_plain or (first.is_pattern and name != "["):
        return "its command name is quoted or a pattern"
    rule = COMMANDS.get(name)
    if rule is None:
        return f"{name} is not on the list of commands that only read"
    problem = problem_with(rule, tuple(rest))
    return f"{name}: {problem}" if problem else ""
