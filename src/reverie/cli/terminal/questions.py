"""Questions that take the place of the input line: a choice, or a line of text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ...values import record
from .footer import Part

__all__ = ["Choice", "Option"]

MAX_ROWS: Final = 12


@record
class Option:
    """One answer: the key that gives it, what it says, and what it means."""

    key: str
    label: str
    value: str


@dataclass(slots=True)
class Choice:
    """A question with a few answers; ``answer`` is done once one is given, with None where it was refused."""

    title: str
    options: Sequence[Option]
    answer: asyncio.Future[str | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    at: int = 0

    def move(self, by: int) -> None:
        """Point at another answer."""
        self.at = (self.at + by) % len(self.options)

    def press(self, key: str) -> None:
        """Give the answer that has this key, if there is one."""
        for option in self.options:
            if option.key and option.key == key:
                self.give(option.value)

    def give(self, value: str | None) -> None:
        """Give an answer."""
        if not self.answer.done():
            self.answer.set_result(value)

    def take(self) -> None:
        """Give the answer that is pointed at."""
        self.give(self.options[self.at].value)

    def parts(self) -> list[Part]:
        """Return how the question looks."""
        first = max(0, min(self.at - MAX_ROWS // 2, len(self.options) - MAX_ROWS))
        shown: list[Part] = [("class:title", self.title)]
        for number, option in enumerate(self.options[first : first + MAX_ROWS], start=first):
            mark, style = ("❯ ", "class:chosen") if number == self.at else ("  ", "")
            key = f"{option.key}  " if option.key else ""
            shown.append((style, f"\n{mark}{key}{option.label}"))
        left = len(self.options) - first - MAX_ROWS
        if left > 0:
            shown.append(("class:dim", f"\n  … {left} more"))
        return shown
