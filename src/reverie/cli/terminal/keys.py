"""Key bindings of the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, Filter, has_completions, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from .questions import Choice
from .states import InputLine, Key


class KeyTarget(Protocol):
    """The parts of a screen that keys read and change."""

    on_submit: Callable[[str], None]
    on_mode: Callable[[], None]
    activity: Callable[[], str | None]
    choice: Choice | None
    reply: asyncio.Future[str] | None
    buffer: Buffer

    @property
    def on_key(self) -> Callable[[Key, InputLine], None]: ...
    @property
    def input_line(self) -> InputLine: ...


def key_bindings(screen: KeyTarget) -> KeyBindings:
    """Return the key bindings of a screen, which override prompt_toolkit's own editing keys."""
    keys = KeyBindings()
    _bind_choice(keys, screen)
    _bind_typing(keys, screen)
    _bind_interrupts(keys, screen)
    return keys


def _bind_choice(keys: KeyBindings, screen: KeyTarget) -> None:
    choosing = Condition(lambda: screen.choice is not None)

    def bind(names: tuple[Keys | str, ...], act: Callable[[Choice, KeyPressEvent], None]) -> None:
        def handle(event: KeyPressEvent) -> None:
            if screen.choice is not None:
                act(screen.choice, event)

        for name in names:
            keys.add(name, filter=choosing, eager=True)(handle)

    bind(("up", "c-p"), lambda choice, _: choice.move(-1))
    bind(("down", "c-n", "tab"), lambda choice, _: choice.move(1))
    bind(("enter",), lambda choice, _: choice.accept())
    bind((Keys.Any,), lambda choice, event: choice.press(event.data.lower()))


def _is_typing(screen: KeyTarget) -> Filter:
    return Condition(lambda: screen.choice is None) & ~is_searching


def _bind_typing(keys: KeyBindings, screen: KeyTarget) -> None:
    typing = _is_typing(screen)

    @keys.add("enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        buffer = screen.buffer
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.apply_completion(state.current_completion)
            if not buffer.text.startswith("/"):
                return
        if buffer.document.text_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        _submit(screen)

    @keys.add("escape", "enter", filter=typing)
    @keys.add("c-j", filter=typing)
    def _(event: KeyPressEvent) -> None:
        screen.buffer.insert_text("\n")

    @keys.add("tab", filter=typing)
    def _(event: KeyPressEvent) -> None:
        buffer = screen.buffer
        if buffer.complete_state is None:
            buffer.start_completion(select_first=True)
        elif len(buffer.complete_state.completions) == 1:
            buffer.apply_completion(buffer.complete_state.completions[0])
        else:
            buffer.complete_next()


def _bind_interrupts(keys: KeyBindings, screen: KeyTarget) -> None:
    """Bind Esc, Ctrl-C and Ctrl-D in every state of the screen; the states decide on the effect."""
    typing = _is_typing(screen)
    is_open = Condition(lambda: screen.input_line.has_menu or screen.input_line.has_question)
    stops = is_open | Condition(lambda: screen.activity() is not None)

    @keys.add("s-tab", filter=typing & ~has_completions)
    def _(event: KeyPressEvent) -> None:
        screen.on_mode()

    # Eager, so that the interruption does not wait for a key that might follow.
    @keys.add("escape", filter=stops, eager=True)
    def _(event: KeyPressEvent) -> None:
        screen.on_key("escape", screen.input_line)

    @keys.add("c-c", eager=True)
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        screen.on_key("ctrl-c", screen.input_line)

    @keys.add("c-d", filter=is_open | Condition(lambda: not screen.buffer.text), eager=True)
    def _(event: KeyPressEvent) -> None:
        screen.on_key("ctrl-d", screen.input_line)


def _submit(screen: KeyTarget) -> None:
    buffer = screen.buffer
    text = buffer.text
    if screen.reply is not None:
        if not screen.reply.done():
            screen.reply.set_result(text)
        return
    if not text.strip():
        return
    buffer.append_to_history()
    buffer.reset()
    screen.on_submit(text)
