"""The key bindings of the terminal: of the input line, of questions, and the interrupts."""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit.filters import Condition, Filter, has_completions, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from .attached_files import image_path
from .questions import Choice
from .screen import Screen


def bind_keys(screen: Screen) -> None:
    """Give a screen its keys, which override prompt_toolkit's own editing keys."""
    keys = KeyBindings()
    _bind_choice(keys, screen)
    _bind_typing(keys, screen)
    _bind_other_programs(keys, screen)
    _bind_interrupts(keys, screen)
    screen.app.key_bindings = keys


def _bind_choice(keys: KeyBindings, screen: Screen) -> None:
    choosing = Condition(lambda: screen.choice is not None)
    typing = Condition(lambda: screen.is_typing)

    def bind(names: tuple[Keys | str, ...], when: Filter, act: Callable[[Choice, KeyPressEvent], None]) -> None:
        def handle(event: KeyPressEvent) -> None:
            if screen.choice is not None:
                act(screen.choice, event)

        for name in names:
            keys.add(name, filter=choosing & when, eager=True)(handle)

    def press(choice: Choice, event: KeyPressEvent) -> None:
        text = event.data
        if event.key_sequence[0].key == Keys.BracketedPaste and text.strip():
            screen.begin_text(choice.begin(_pasted(text)))
        elif len(text) == 1 and text.isprintable() and (begun := choice.press(text)):
            screen.begin_text(begun)

    bind(("up", "c-p"), ~has_completions, lambda choice, _: choice.move(-1))
    bind(("down", "c-n"), ~has_completions, lambda choice, _: choice.move(1))
    bind(("tab",), ~typing, lambda choice, _: choice.move(1))
    bind(("enter",), ~typing, lambda choice, _: choice.accept())
    bind(("c-o",), ~typing, lambda choice, event: screen.on_open())
    bind((Keys.Any,), ~typing, press)


def _pasted(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return image_path(text) or text


def _calling(act: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    return lambda _: act()


def _is_typing(screen: Screen) -> Filter:
    return Condition(lambda: screen.is_typing) & ~is_searching


def _bind_typing(keys: KeyBindings, screen: Screen) -> None:
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
        screen.submit()

    for names in (("escape", "enter"), ("c-j",)):
        keys.add(*names, filter=typing)(_calling(lambda: screen.buffer.insert_text("\n")))

    @keys.add("tab", filter=typing)
    def _(event: KeyPressEvent) -> None:
        buffer = screen.buffer
        if buffer.complete_state is None:
            buffer.start_completion(select_first=True)
        elif len(buffer.complete_state.completions) == 1:
            buffer.apply_completion(buffer.complete_state.completions[0])
        else:
            buffer.complete_next()


def _bind_other_programs(keys: KeyBindings, screen: Screen) -> None:
    """Bind the keys that give the terminal to the editor or to the shell that started this program."""
    typing = _is_typing(screen)

    @keys.add("c-x", "c-e", filter=typing)
    def _(event: KeyPressEvent) -> None:
        screen.buffer.open_in_editor(validate_and_handle=False)

    @keys.add(Keys.BracketedPaste, filter=typing)
    def _(event: KeyPressEvent) -> None:
        screen.buffer.insert_text(_pasted(event.data))

    keys.add("c-v", filter=typing)(_calling(lambda: screen.on_paste_image()))
    keys.add("c-o", filter=typing)(_calling(lambda: screen.on_open()))
    keys.add("c-z", filter=typing)(_calling(lambda: screen.app.suspend_to_background()))


def _bind_interrupts(keys: KeyBindings, screen: Screen) -> None:
    """Bind Esc, Ctrl-C and Ctrl-D in every state of the screen; the states decide on the effect."""
    typing = _is_typing(screen)
    is_open = Condition(lambda: screen.input_line.has_menu or screen.input_line.has_question)
    stops = is_open | Condition(lambda: screen.activity() is not None)

    changes_mode = typing & ~has_completions & Condition(lambda: screen.choice is None)
    keys.add("s-tab", filter=changes_mode)(_calling(lambda: screen.on_mode()))
    # Eager, so that the interruption does not wait for a key that might follow.
    keys.add("escape", filter=stops, eager=True)(_calling(lambda: screen.on_key("escape", screen.input_line)))
    keys.add("c-c", eager=True)(_calling(lambda: screen.on_key("ctrl-c", screen.input_line)))
    keys.add("<sigint>")(_calling(lambda: screen.on_key("ctrl-c", screen.input_line)))
    ends = is_open | Condition(lambda: not screen.buffer.text)
    keys.add("c-d", filter=ends, eager=True)(_calling(lambda: screen.on_key("ctrl-d", screen.input_line)))
