"""Judge a program with its real arguments, as the sandbox sees it start."""

from __future__ import annotations

from collections.abc import Sequence

from ..grammar import Command, Word
from . import problem_of


def program_problem(argv: Sequence[str]) -> str:
    """Return the reason why a program with these arguments may do more than read; an empty text if it only reads."""
    return problem_of(Command(tuple(Word(text, text) for text in argv)), is_watched=True)
