"""A multiple-choice question that replaces the input line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from ...values import record
from .footer import Part

MAX_ROWS: Final = 12
TYPING_SECONDS: Final = 0.7
"""Keys that follow each other so quickly belong to a text that was begun before the question appeared."""


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
    more: Callable[[bool], str] | None = None
    """Show the next page of the matter in question, or with True all of it, and return a line about the rest."""
    typed_at: float = -inf
    """The time of the last key that was typed into the input line before the question."""
    answer: asyncio.Future[str | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    at: int = 0
    rest: str = ""

    def move(self, by: int) -> None:
        """Move the selection down by a number of options, or up if negative, past the end to the other end."""
        self.at = (self.at + by) % len(self.options)

    def turn(self, *, to_end: bool = False) -> None:
        """Show the next page, or all pages, of the matter in question."""
        if self.more is not None:
            self.rest = self.more(to_end)

    def press(self, key: str) -> None:
        """Choose the option with this key, or turn the page; ignore the keys of a user who is still typing a text."""
        if self._is_typing():
            return
        if key in (" ", "v") and self.rest:
            self.turn(to_end=key == "v")
            return
        for option in self.options:
            if option.key and option.key == key:
                self.resolve(option.value)

    def accept(self) -> None:
        """Choose the selected option, unless the user is still typing a text."""
        if not self._is_typing():
            self.resolve(self.options[self.at].value)

    def _is_typing(self) -> bool:
        is_typing = time.monotonic() - self.typed_at < TYPING_SECONDS
        if is_typing:
            self.typed_at = time.monotonic()
        return is_typing

    def resolve(self, value: str | None) -> None:
        """Set the answer, if none is set yet."""
        if not self.answer.done():
            self.answer.set_result(value)

    def parts(self) -> list[Part]:
        """Return the question as styled text, with the options around the selected one."""
        first = max(0, min(self.at - MAX_ROWS // 2, len(self.options) - MAX_ROWS))
        shown: list[Part] = [("class:warning", f"{self.rest}\n")] if self.rest else []
        shown.append(("class:title", self.title))
        has_keys = any(option.key for option in self.options)
        for number, option in enumerate(self.options[first : first + MAX_ROWS], start=first):
            mark, style = ("❯ ", "class:chosen") if number == self.at else ("  ", "")
            key = f"{option.key or ' '}  " if has_keys else ""
            shown.append((style, f"\n{mark}{key}{option.label}"))
        left = len(self.options) - first - MAX_ROWS
        if left > 0:
            shown.append(("class:dim", f"\n  … {left} more"))
        return shown
