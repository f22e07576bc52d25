"""What keys do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from .screen import Screen

__all__ = ["key_bindings"]

TWICE_SECONDS: Final = 2.0


def key_bindings(screen: Screen) -> KeyBindings:
    """Return the keys of a screen; prompt_toolkit's own for editing lie below them."""
    keys = KeyBindings()
    _bind_choice(keys, screen)
    _bind_typing(keys, screen)
    _bind_leaving(keys, screen)
    return keys


def _bind_choice(keys: KeyBindings, screen: Screen) -> None:
    choosing = Condition(lambda: screen.choice is not None)

    @keys.add("up", filter=choosing, eager=True)
    @keys.add("c-p", filter=choosing, eager=True)
    def _(event: KeyPressEvent) -> None:
        if screen.choice is not None:
            screen.choice.move(-1)

    @keys.add("down", filter=choosing, eager=True)
    @keys.add("c-n", filter=choosing, eager=True)
    @keys.add("tab", filter=choosing, eager=True)
    def _(event: KeyPressEvent) -> None:
        if screen.choice is not None:
            screen.choice.move(1)

    @keys.add("enter", filter=choosing, eager=True)
    def _(event: KeyPressEvent) -> None:
        if screen.choice is not None:
            screen.choice.take()

    @keys.add("escape", filter=choosing, eager=True)
    @keys.add("c-c", filter=choosing, eager=True)
    @keys.add("c-d", filter=choosing, eager=True)
    def _(event: KeyPressEvent) -> None:
        if screen.choice is not None:
            screen.choice.give(None)
        screen.on_interrupt()

    @keys.add(Keys.Any, filter=choosing, eager=True)
    def _(event: KeyPressEvent) -> None:
        if screen.choice is not None:
            screen.choice.press(event.data.lower())


def _bind_typing(keys: KeyBindings, screen: Screen) -> None:
    typing = Condition(lambda: screen.choice is None) & ~is_searching
    busy = Condition(lambda: screen.activity() is not None)

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

    @keys.add("s-tab", filter=typing & ~has_completions)
    def _(event: KeyPressEvent) -> None:
        screen.on_mode()

    @keys.add("escape", filter=typing & has_completions, eager=True)
    def _(event: KeyPressEvent) -> None:
        screen.buffer.cancel_completion()

    # Eager, so that the interruption does not wait for a key that might follow.
    @keys.add("escape", filter=typing & busy & ~has_completions, eager=True)
    def _(event: KeyPressEvent) -> None:
        screen.on_interrupt()


def _submit(screen: Screen) -> None:
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


def _bind_leaving(keys: KeyBindings, screen: Screen) -> None:
    typing = Condition(lambda: screen.choice is None) & ~is_searching

    @keys.add("c-c", filter=typing)
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        again = time.monotonic() - screen.stopped_at < TWICE_SECONDS
        screen.stopped_at = time.monotonic()
        if again:
            screen.on_leave()
        elif screen.activity() is not None:
            screen.on_interrupt()
        elif screen.buffer.text:
            screen.buffer.reset()
        else:
            screen.say_briefly("Ctrl-C again leaves")

    @keys.add("c-d", filter=typing & Condition(lambda: not screen.buffer.text))
    def _(event: KeyPressEvent) -> None:
        screen.on_leave()
