"""Decide whether a simple command can only read: it is on a list, and every option is known.

The list names allowed forms, never forbidden ones: a command, an option, an abbreviation of an option or a form of
argument that is not on it needs permission.
"""

from __future__ import annotations

from ..grammar import Command
from .commands import COMMANDS
from .options import problem_with
from .watch_rules import WATCHED, watched_problem

__all__ = ["problem_of"]


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
