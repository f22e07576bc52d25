"""A multiple-choice question that replaces the input line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from prompt_toolkit.formatted_text import ANSI, to_formatted_text
from prompt_toolkit.utils import get_cwidth

from ...values import record
from .footer import Part

MAX_ROWS: Final = 12
QUIET_SECONDS: Final = 0.4
"""A key answers a question if no other key follows within this time; in a text that a person types, one does."""
ALL_PAGES: Final = "v"
FIRST_KEYS: Final = "ynt"
"""The keys of the answers that a narrow line names first."""


@record
class Option:
    """One answer to choose: the key that chooses it, its label, and the value that the question resolves to."""

    key: str
    label: str
    value: str
    lasts: bool = False
    """Whether the answer also holds for later calls; its key only marks it, and Enter chooses it."""
    on_enter: str = "Enter confirms"
    """The hint about Enter that the key of an answer that lasts brings."""
    takes_words: bool = False
    """Whether a text that is typed at the question, and Enter, are this answer."""
    short: str = ""
    """A word for the label, for a screen without room for it."""


def call_later(seconds: float, act: Callable[[], None]) -> None:
    """Call a function on the running loop after some time."""
    asyncio.get_running_loop().call_later(seconds, act)


@dataclass(slots=True)
class Choice:
    """A question with a few options; ``answer`` resolves to the chosen value, or to None if cancelled.

    The first key of a text looks like an answer, so it is held until it is clear that no text follows.
    """

    title: str
    options: Sequence[Option]
    more: Callable[[bool], str] | None = None
    """Show the next page of the matter in question, or with True all of it, and return a line about the rest."""
    has_draft: bool = False
    """Whether the input had text before the question; this text is a message, and no answer."""
    is_typing: bool = False
    """Whether keys belong to the text in the input."""
    later: Callable[[float, Callable[[], None]], None] = call_later
    matter: Callable[[], tuple[Sequence[str], Sequence[str]]] | None = None
    """Return the lines of the matter that were shown last, which may have colours: its head, and a page of it."""
    answer: asyncio.Future[str | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    at: int = 0
    rest: str = ""
    held: str = ""
    """The key that was pressed last, if it is an answer that still waits."""
    _waits: int = 0
    _is_quick: bool = False
    """Whether a key that follows now belongs to the same text as the last one."""

    def move(self, by: int) -> None:
        """Move the selection down by a number of options, or up if negative, past the end to the other end."""
        self.at = (self._marked + by) % len(self.options)
        self.is_typing = self._is_quick = False
        self.held = ""

    def turn(self, *, to_end: bool = False) -> None:
        """Show the next page, or all pages, of the matter in question."""
        if self.more is not None:
            self.rest = self.more(to_end)

    def press(self, key: str) -> str:
        """Hold the key of an answer for a short time, or turn the page; return the text that begins with this key."""
        if key == " " and not self.held:
            if self.rest:
                self.turn()
            return ""
        if (self.held and self._is_quick) or not self._is_answer(key.lower()):
            return self.begin(key)
        self.held = key
        self._wait()
        return ""

    def begin(self, text: str) -> str:
        """Take the keys from now on as text, and return its beginning: the held key, and this."""
        held, self.held = self.held, ""
        self.is_typing = True
        return held + text

    def accept(self) -> None:
        """Choose the option whose key is held, or else the selected one, unless a text has just ended."""
        if self._is_quick and not self.held:
            return
        if self._turns_all(self.held):
            self._turn_all()
        else:
            self.resolve(self.options[self._marked].value)

    def emptied(self) -> None:
        """Note that the input has no text any more: the next key may answer, and Enter a short time later."""
        self.is_typing = self.has_draft = False
        self._wait()

    def answer_of(self, text: str) -> Option | None:
        """Return the option that a text chooses that was typed at the question; None if the text is sent as always."""
        if self.has_draft or self.answer.done() or text.startswith(("/", "!")):
            return None
        return next((one for one in self.options if one.takes_words), None)

    @property
    def _marked(self) -> int:
        keys = [one.key for one in self.options]
        return keys.index(self.held.lower()) if self.held and self.held.lower() in keys else self.at

    def _is_answer(self, key: str) -> bool:
        return self._turns_all(key) or any(one.key == key for one in self.options)

    def _turns_all(self, key: str) -> bool:
        return key == ALL_PAGES and bool(self.rest)

    def _turn_all(self) -> None:
        self.held = ""
        self.turn(to_end=True)

    def _wait(self) -> None:
        self._waits += 1
        self._is_quick = True
        self.later(QUIET_SECONDS, partial(self._settle, self._waits))

    def _settle(self, waits: int) -> None:
        """Choose the option whose key is held, if no other wait began since; one that lasts waits for Enter."""
        if waits != self._waits:
            return
        self._is_quick = False
        if not self.held or self.answer.done():
            return
        if self._turns_all(self.held):
            self._turn_all()
        elif not self.options[self._marked].lasts:
            self.resolve(self.options[self._marked].value)

    def _hint(self, text: str) -> str:
        if self.is_typing:
            refuses = self.answer_of(text) is not None
            return "Enter refuses with your words" if refuses else "Enter sends your text; ↑↓ and Enter answer"
        if self.held and self.options[self._marked].lasts:
            return self.options[self._marked].on_enter
        return "or type what to do instead" if self.answer_of(text) else ""

    def resolve(self, value: str | None) -> None:
        """Set the answer, if none is set yet."""
        if not self.answer.done():
            self.answer.set_result(value)

    def parts(self, text: str = "") -> list[Part]:
        """Return the question above this text in the input as styled text, with the options around the selected one."""
        first = max(0, min(self._marked - MAX_ROWS // 2, len(self.options) - MAX_ROWS))
        shown: list[Part] = [("class:warning", f"{self.rest}\n")] if self.rest else []
        shown.append(("class:title", self.title))
        if hint := self._hint(text):
            shown.append(("class:dim", f"  {hint}"))
        has_keys = any(option.key for option in self.options)
        for number, option in enumerate(self.options[first : first + MAX_ROWS], start=first):
            mark, style = ("❯ ", "class:chosen") if number == self._marked and not self.is_typing else ("  ", "")
            key = f"{option.key or ' '}  " if has_keys else ""
            shown.append((style, f"\n{mark}{key}{option.label}"))
        left = len(self.options) - first - MAX_ROWS
        if left > 0:
            shown.append(("class:dim", f"\n  … {left} more"))
        return shown

    def low_parts(self, text: str, columns: int, room: int) -> list[Part]:
        """Return the question for a screen without room for ``parts`` below its matter: so many rows, and both in them.

        The matter and the keys stay longest; a line counts the rows of the matter that scrolled off the screen.
        """
        head, page = self.matter() if self.matter is not None else ((), ())
        first = [row for line in head[:1] for row in rows_of(line, columns)]
        reason = [row for line in head[1:] for row in rows_of(line, columns)]
        shown = [row for line in page for row in rows_of(line, columns)]
        rest: list[Part] = [("class:warning", _cut(self.rest, columns))] if self.rest else []
        hint = self._hint(text)
        title: list[Part] = [("class:title", _cut(self.title, columns))]
        if hint and len(self.title) + len(hint) + 2 <= columns:
            title.append(("class:dim", f"  {hint}"))
        marked = self.options[self._marked]
        label = f"❯ {marked.key}  {marked.label}"  # whole, because Enter grants it
        chosen: list[list[Part]] = [[("class:chosen", part) for _, part in row] for row in rows_of(label, columns)]
        answers: list[list[Part]] = []
        for one in self.options:
            is_marked = one is marked and not self.is_typing
            answers += chosen if is_marked else [[("", _cut(f"  {one.key}  {one.label}", columns))]]
        wanted = len(first) + len(shown) + bool(rest)
        if wanted + 1 + len(answers) <= room:
            below = [title, *answers]
        else:
            below = [*(chosen if room > 2 and not self.is_typing else []), self._keys(columns)]
            below = [title, *below] if room > len(below) + 2 else below
        left = max(1, room - len(below) - bool(rest))
        above = [*first, *(reason if wanted + len(reason) + len(below) <= room else []), *shown]
        if len(above) > left:
            kept = max(1, left - 1)
            more = _cut(f"… {len(above) - kept:,} more rows: scroll up", columns)
            above = [*above[:kept], *([[("class:warning", more)]] if left > 1 else [])]
        rows: list[list[Part]] = [*above, *([rest] if rest else []), *below]
        return [part for at, row in enumerate(rows) for part in ([("", "\n"), *row] if at else row)]

    def _keys(self, columns: int) -> list[Part]:
        """Return one row with the keys of all answers, the ones that hold for this call only first."""
        once = sorted((one for one in self.options if not one.lasts), key=lambda one: FIRST_KEYS.find(one.key) % 9)
        lasting = [one.key for one in self.options if one.lasts]
        words = [f"{one.key} {one.short or one.label}" for one in once]
        return [("", _cut(" · ".join([*words, *([f"{' '.join(lasting)} always"] if lasting else [])]), columns))]


def rows_of(line: str, columns: int) -> list[list[Part]]:
    """Return a line, which may have colours, as rows of at most so many columns."""
    rows: list[list[Part]] = [[]]
    used = 0
    for style, text, *_ in to_formatted_text(ANSI(line)):
        for one in text:
            width = get_cwidth(one)
            if used + width > columns:
                rows.append([])
                used = 0
            rows[-1].append((style, one))
            used += width
    return rows


def _cut(text: str, columns: int) -> str:
    """Return the beginning of a text that fits into so many columns."""
    if get_cwidth(text) <= columns:
        return text
    while text and get_cwidth(text) >= columns:
        text = text[:-1]
    return f"{text}…"
