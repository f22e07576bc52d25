"""The bottom part of the terminal: live lines, the input or a question, completions, and the footer."""

from __future__ import annotations

import asyncio
import os
import select
import termios
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, has_completions
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.layout import ConditionalContainer, Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.search import stop_search
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from .colours import STYLES
from .footer import Part, footer_lines
from .inline import InlineApplication
from .questions import Choice, Option, call_later, rows_of
from .states import Effect, InputLine, Key

INPUT_ROWS: Final = 10
MENU_ROWS: Final = 12
SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPIN_SECONDS: Final = 0.12
HINT_SECONDS: Final = 2.0
TYPING_SECONDS: Final = 0.7
"""A text whose last key is not older was still being typed when the question appeared."""


def lines_typed_before(terminal: int) -> list[str]:
    """Return the lines that the user sent while the program started; read later, their ends would be new lines."""
    if not os.isatty(terminal) or not termios.tcgetattr(terminal)[3] & termios.ICANON:
        return []
    lines: list[str] = []
    while select.select([terminal], [], [], 0)[0] and (line := os.read(terminal, 65_536)):
        lines.append(line.decode("utf-8", "replace").rstrip("\n"))
    return [line for line in lines if line.strip()]


class Screen:
    """The prompt_toolkit layout and input; its owner sets the callbacks that give it content and meaning."""

    def __init__(self, *, colour: bool, history: History, completer: Completer) -> None:
        self.on_submit: Callable[[str], None] = lambda text: None
        self.on_key: Callable[[Key, InputLine], None] = lambda key, line: None
        self.on_typed: Callable[[], None] = lambda: None
        self.on_mode: Callable[[], None] = lambda: None
        self.on_open: Callable[[], None] = lambda: None
        self.on_paste_image: Callable[[], None] = lambda: None
        self.live: Callable[[], Sequence[str]] = lambda: ()
        self.footer: Callable[[], Sequence[Part]] = lambda: ()
        self.activity: Callable[[], str | None] = lambda: None
        self.choice: Choice | None = None
        self.reply: asyncio.Future[str] | None = None
        self._asking = asyncio.Lock()
        self._typed_at = -inf
        self._said = ""
        self._reply_mark = ""
        self._left = False
        self._hint = ""
        self._hint_until = 0.0
        self._shown_footer: list[Part] = []
        self.busy_since: float | None = None
        self.buffer = Buffer(
            multiline=True,
            history=history,
            completer=completer,
            complete_while_typing=True,
            on_text_changed=self._typed,
        )
        self._search = SearchToolbar(ignore_case=True)
        self.app = InlineApplication(
            layout=self._layout(),
            style=Style.from_dict({name: words for name, (_, words) in STYLES.items()} if colour else {}),
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
        )

    def _typed(self, buffer: Buffer) -> None:
        self._typed_at = time.monotonic()
        if buffer.text:
            self.on_typed()
        elif self.choice is not None:
            self.choice.emptied()

    # -- drawing

    def _layout(self) -> Layout:
        choosing, typing = Condition(lambda: self.choice is not None), Condition(lambda: self.is_typing)
        busy = Condition(lambda: self.activity() is not None and self.reply is None)
        hinting = Condition(lambda: bool(self.hint))
        low = Condition(lambda: self._low_room() is not None)
        live = Condition(lambda: bool(self.live()))
        self._input = Window(
            BufferControl(self.buffer, search_buffer_control=self._search.control, preview_search=True),
            height=Dimension(min=1, max=INPUT_ROWS),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=self._prefix,
        )
        rows = [
            ConditionalContainer(self._lines(lambda: ANSI("\n".join(self.live()))), live & ~low),
            ConditionalContainer(self._lines(lambda: ""), ~low),
            ConditionalContainer(self._lines(self._busy_line), busy & ~choosing),
            ConditionalContainer(self._lines(self._question, wrap=True), choosing),
            ConditionalContainer(self._input, typing),
            self._search,
            ConditionalContainer(self._lines(self._menu), has_completions & typing),
            ConditionalContainer(self._lines(lambda: [("class:warning", f"  {self.hint}")]), hinting),
            self._lines(self._footer),
            Window(),
        ]
        return Layout(HSplit(rows), focused_element=self._input)

    def _lines(self, text: Callable[[], Any], *, wrap: bool = False) -> Window:
        return Window(FormattedTextControl(text), dont_extend_height=True, wrap_lines=wrap, height=Dimension(min=0))

    def _prefix(self, line: int, wrapped: int) -> StyleAndTextTuples:
        if line or wrapped:
            return [("", "  ")]
        is_normal = self.vim and self.app.vi_state.input_mode == InputMode.NAVIGATION
        return [("class:chosen", self._reply_mark or (": " if is_normal else "> "))]

    def _busy_line(self) -> StyleAndTextTuples:
        doing = self.activity() or ""
        spin = SPINNER[int(time.monotonic() / SPIN_SECONDS) % len(SPINNER)]
        seconds = time.monotonic() - self.busy_since if self.busy_since is not None else 0.0
        return [("class:busy", f"{spin} {doing}"), ("class:dim", f"  {seconds:.0f} s · Esc interrupts")]

    def _question(self) -> StyleAndTextTuples:
        if self.choice is None or (room := self._low_room()) is None:
            return [*self.choice.parts(self.buffer.text)] if self.choice is not None else []
        return [*self.choice.low_parts(self.buffer.text, self.size()[0], room)]

    def _low_room(self) -> int | None:
        """Return the rows for a question whose matter would be pushed off the screen by it; None if both fit."""
        if self.choice is None or self.choice.matter is None:
            return None
        columns, rows = self.size()
        head, page = self.choice.matter()
        typed = self.buffer.text.splitlines() or [""] if self.is_typing else []
        below = len(footer_lines(self.footer(), columns - 2)) + bool(self.hint)
        below += min(INPUT_ROWS, sum(len(rows_of(line, max(1, columns - 2))) for line in typed))
        asked = "".join(text for _, text in self.choice.parts(self.buffer.text)).split("\n")
        whole = sum(len(rows_of(line, columns)) for line in (*head, *page, *asked)) + len(self.live()) + 1
        return None if whole + below <= rows else max(2, rows - below)

    def _menu(self) -> StyleAndTextTuples:
        state = self.buffer.complete_state
        if state is None:
            return []
        at = state.complete_index or 0
        first = max(0, min(at - MENU_ROWS // 2, len(state.completions) - MENU_ROWS))
        columns = self.size()[0]
        shown: StyleAndTextTuples = []
        for number, one in enumerate(state.completions[first : first + MENU_ROWS], start=first):
            chosen = number == state.complete_index
            text = f"  {one.display_text:<18} {one.display_meta_text}".rstrip()
            text = text if len(text) < columns else f"{text[: columns - 2]}…"
            shown.append(("class:chosen" if chosen else "class:dim", ("\n" if shown else "") + text))
        left = len(state.completions) - first - MENU_ROWS
        if left > 0:
            shown.append(("class:dim", f"\n  … {left} more"))
        return shown

    def _footer(self) -> StyleAndTextTuples:
        shown: StyleAndTextTuples = []
        self._shown_footer = list(self.footer())
        for line in footer_lines(self._shown_footer, self.size()[0] - 2):
            shown.append(("", "\n  " if shown else "  "))
            shown += [(f"class:{style}", text) for style, text in line]
        return shown

    # -- used by the owner

    async def run(self) -> None:
        """Run the application until ``leave`` is called; return at once if it was called before."""
        if self._left:
            return
        for line in lines_typed_before(self.app.input.fileno()):
            self.on_submit(line)
        spinning = asyncio.create_task(self._spin())
        try:
            await self.app.run_async(handle_sigint=True, set_exception_handler=False)
        finally:
            spinning.cancel()
            self.app.write_rest()

    async def _spin(self) -> None:
        while True:
            await asyncio.sleep(SPIN_SECONDS)
            busy = self.activity() is not None
            if busy and self.busy_since is None:
                self.busy_since = time.monotonic()
            if busy or self._hint or list(self.footer()) != self._shown_footer:
                self._hint = self.hint
                self.app.invalidate()
            if not busy:
                self.busy_since = None

    @property
    def vim(self) -> bool:
        """Whether the input line has the keys of vim."""
        return self.app.editing_mode == EditingMode.VI

    @vim.setter
    def vim(self, is_on: bool) -> None:
        self.app.editing_mode = EditingMode.VI if is_on else EditingMode.EMACS
        self.app.vi_state.input_mode = InputMode.INSERT

    def leave(self) -> None:
        """End the application and restore the terminal."""
        self._left = True
        if self.app.is_running and not self.app.is_done:
            self.app.exit()

    def size(self) -> tuple[int, int]:
        """Return the current columns and rows of the terminal."""
        found = self.app.frames.get_size()
        return found.columns, found.rows

    @property
    def hint(self) -> str:
        """The temporary message above the footer, or an empty string."""
        return self._hint if time.monotonic() < self._hint_until else ""

    def change_input(self, effect: Effect) -> None:
        """Carry out an effect on the input: close, clear, restore or hint."""
        match effect.act:
            case "close":
                if self.choice is not None:
                    self.choice.resolve(None)
                if self.reply is not None and not self.reply.done():
                    self.reply.set_result("")
                if self.app.layout.is_searching:
                    stop_search()
                self.buffer.cancel_completion()
            case "clear":
                self.buffer.reset()
            case "restore":
                self.buffer.text = "\n".join(filter(None, [effect.text, self.buffer.text]))
                self.buffer.cursor_position = len(self.buffer.text)
            case _:
                self._hint, self._hint_until = effect.text, time.monotonic() + HINT_SECONDS
        self.app.invalidate()

    @property
    def input_line(self) -> InputLine:
        """The state of the input: its text, and the menu or question that is open."""
        has_menu = self.app.layout.is_searching or self.buffer.complete_state is not None
        return InputLine(bool(self.buffer.text), has_menu, self.choice is not None or self.reply is not None)

    @property
    def is_typing(self) -> bool:
        """Whether keys go to the input line: no question is open, or a text is being typed at it."""
        return self.choice is None or self.choice.is_typing

    def begin_text(self, text: str) -> None:
        """Put the beginning of a text that is typed at a question into the input, where the rest follows."""
        self.app.vi_state.input_mode = InputMode.INSERT
        self.buffer.insert_text(text)

    def submit(self) -> None:
        """Send the text of the input: as a reply, as the words of a refusal, or as a prompt or command."""
        text = self.buffer.text
        if self.reply is not None:
            if not self.reply.done():
                self.reply.set_result(text)
            return
        if not text.strip():
            return
        self.buffer.append_to_history()
        self.buffer.reset()
        self.app.vi_state.input_mode = InputMode.INSERT
        if self.choice is not None and (refusal := self.choice.answer_of(text)) is not None:
            self._said = text
            self.choice.resolve(refusal.value)
            return
        if self.choice is not None:
            self.choice.emptied()
        self.on_submit(text)

    async def choose(
        self,
        title: str,
        options: Sequence[Option],
        more: Callable[[bool], str] | None = None,
        matter: Callable[[], tuple[Sequence[str], Sequence[str]]] | None = None,
    ) -> str | None:
        """Ask a multiple-choice question and return the chosen value, or None if cancelled.

        Questions are asked one after another. ``more`` and ``matter`` show the matter, as in ``Choice``.
        """
        async with self._asking:
            has_draft = bool(self.buffer.text)
            is_typing = has_draft and time.monotonic() - self._typed_at < TYPING_SECONDS
            self.choice = Choice(title, options, more, has_draft, is_typing, self._call_later, matter)
            self._said = ""
            self.choice.turn()
            self.app.invalidate()
            try:
                return await self.choice.answer
            finally:
                self.choice = None
                self.app.invalidate()

    def _call_later(self, seconds: float, act: Callable[[], None]) -> None:
        def act_and_draw() -> None:
            act()
            self.app.invalidate()

        call_later(seconds, act_and_draw)

    async def ask_words(self, mark: str) -> str:
        """Return the words that were typed at the last question; ask for a line if there are none."""
        return self._said or await self.ask_line(mark)

    async def edit_file(self, path: Path) -> None:
        """Open a file in the user's editor, which has the terminal meanwhile; raise ``InputError`` if it fails."""
        from ..editor import open_editor

        await run_in_terminal(lambda: open_editor(path), in_executor=True)

    async def show_page(self, text: str) -> None:
        """Show a text in the user's pager, which has the terminal meanwhile."""
        from ..editor import open_pager

        await run_in_terminal(lambda: open_pager(text), in_executor=True)

    async def ask_line(self, mark: str, text: str = "") -> str:
        """Ask for text in the input line, beginning with ``text``, and return it; restore the draft afterwards."""
        async with self._asking:
            draft, self._reply_mark = self.buffer.text, mark
            self.buffer.text = text
            self.buffer.cursor_position = len(text)
            self.reply = asyncio.get_running_loop().create_future()
            self.app.invalidate()
            try:
                return await self.reply
            finally:
                self.reply, self._reply_mark = None, ""
                self.buffer.text = draft
                self.buffer.cursor_position = len(draft)
                self.app.invalidate()


def open_history(path: Path) -> History:
    """Open the input history in a file, which is created if missing and which only its owner can read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    path.chmod(0o600)
    return FileHistory(str(path))
