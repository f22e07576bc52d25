"""A multiple-choice question that replaces the input line."""

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
    """One answer to choose: the key that chooses it, its label, and the value that the question resolves to."""

    key: str
    label: str
    value: str


@dataclass(slots=True)
class Choice:
    """A question with a few options; ``answer`` resolves to the chosen value, or to None if cancelled."""

    title: str
    options: Sequence[Option]
    answer: asyncio.Future[str | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    at: int = 0

    def move(self, by: int) -> None:
        """Move the selection down by a number of options, or up if negative, past the end to the other end."""
        self.at = (self.at + by) % len(self.options)

    def press(self, key: str) -> None:
        """Choose the option with this key, if there is one."""
        for option in self.options:
            if option.key and option.key == key:
                self.resolve(option.value)

    def resolve(self, value: str | None) -> None:
        """Set the answer, if none is set yet."""
        if not self.answer.done():
            self.answer.set_result(value)

    def accept(self) -> None:
        """Choose the selected option."""
        self.resolve(self.options[self.at].value)

    def parts(self) -> list[Part]:
        """Return the question as styled text, with the options around the selected one."""
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
