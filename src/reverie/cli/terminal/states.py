"""The states of the interactive chat, as pure functions: the work that runs, and the effect of every key on it.

The terminal reports each event to its function and carries out the effects that it returns; it decides nothing itself.
An interrupt (Esc or Ctrl-C) stops the work that runs in every state. A query that does not stop in time is cancelled.
"""

from __future__ import annotations

from math import inf
from typing import Final, Literal, TypeAlias

from ...values import record, replace

Key: TypeAlias = Literal["escape", "ctrl-c", "ctrl-d"]
Kind: TypeAlias = Literal["query", "command"]
"""A query stops on request and completes the log; a command is cancelled."""
TWICE_SECONDS: Final = 2.0
QUIT_HINT: Final = "Press Ctrl-C again to quit"


@record
class State:
    """The work of the chat: the line that runs with its number, the commands beside it, and the lines that wait."""

    phase: Literal["opening", "idle", "busy", "closing"] = "opening"
    number: int = 0
    """The number of the running work; 0 if none runs."""
    kind: Kind = "query"
    is_stopping: bool = False
    beside: tuple[int, ...] = ()
    queue: tuple[tuple[str, Kind], ...] = ()
    started: int = 0
    ctrl_c_at: float = -inf
    """The time of the last Ctrl-C without input since; a second one shortly after quits."""


@record
class InputLine:
    """The input when a key is pressed: whether it has text, a menu (of completions, or the search), or a question."""

    has_text: bool = False
    has_menu: bool = False
    has_question: bool = False


@record
class Effect:
    """One act of the terminal.

    start, beside: begin the work, or a command beside it, on the line ``text``. interrupt: request the end of the
    running query, and report ``overdue`` later. cancel: cancel the task of that number. close: cancel the open
    question, search or menu. clear: empty the input. restore: put ``text`` back into the input. hint: show ``text``.
    leave: end the chat when its work has ended. abort: end it at once.
    """

    act: Literal["start", "beside", "interrupt", "cancel", "close", "clear", "restore", "hint", "leave", "abort"]
    number: int = 0
    text: str = ""


Step: TypeAlias = tuple[State, tuple[Effect, ...]]
CLOSE: Final = (Effect("close"),)


def opened(state: State) -> Step:
    """Go on when the session is open: start the first line that waits."""
    return _next(replace(state, phase="idle")) if state.phase == "opening" else (state, ())


def submitted(state: State, text: str, kind: Kind, *, beside: bool = False) -> Step:
    """Start the work on a line that the user sent, or let it wait; ``beside`` lets it run while other work does."""
    if beside and state.phase == "busy":
        number = state.started + 1
        return replace(state, beside=(*state.beside, number), started=number), (Effect("beside", number, text),)
    state = replace(state, queue=(*state.queue, (text, kind)))
    return _next(state) if state.phase == "idle" else (state, ())


def woken(state: State) -> Step:
    """Start a query without a prompt, about results that arrived, if nothing runs."""
    return submitted(state, "", "query") if state.phase == "idle" else (state, ())


def taken(state: State) -> tuple[State, str | None]:
    """Take the prompt that waits first for the running query; None if there is none, or a command comes first."""
    if not state.queue or not state.number or "command" in (state.kind, state.queue[0][1]) or state.is_stopping:
        return state, None
    return replace(state, queue=state.queue[1:]), state.queue[0][0]


def work_ended(state: State, number: int, *, switches: bool = False) -> Step:
    """Go on after the work of this number: start the next line, or with ``switches`` open another session first."""
    if number != state.number:
        return state, ()
    state = replace(state, number=0, is_stopping=False)
    if state.phase == "closing":
        return state, ()
    return (replace(state, phase="opening"), ()) if switches else _next(replace(state, phase="idle"))


def beside_ended(state: State, number: int) -> Step:
    """Forget a command that ran beside the work."""
    return replace(state, beside=tuple(one for one in state.beside if one != number)), ()


def overdue(state: State, number: int) -> Step:
    """Cancel the work of this number if it still runs some time after an interrupt."""
    return state, (Effect("cancel", number),) if number == state.number and state.is_stopping else ()


def typed(state: State) -> Step:
    """Note that the text of the input changed: the next Ctrl-C is a first one."""
    return replace(state, ctrl_c_at=-inf), ()


def pressed(state: State, key: Key, at: float, line: InputLine) -> Step:
    """Interrupt, clear the input or leave, by a key that was pressed at this time."""
    is_open = line.has_menu or line.has_question
    first = CLOSE if is_open else ()
    if key == "ctrl-d":
        return _stopped(state, first) if is_open else (state, ()) if line.has_text else left(state)
    if key == "ctrl-c":
        is_second = at - state.ctrl_c_at < TWICE_SECONDS
        state = replace(state, ctrl_c_at=at)
        if is_second:
            return left(state, first)
    if state.phase == "opening" and is_open:
        return state, first
    if state.phase != "idle" or state.beside:
        return _stopped(state, first)
    if key == "escape" or line.has_question:
        return state, first
    return state, (*first, Effect("clear") if line.has_text else Effect("hint", text=QUIT_HINT))


def left(state: State, first: tuple[Effect, ...] = ()) -> Step:
    """Stop all that runs, and leave when it has ended; leave at once if that was asked for before."""
    state, effects = _stopped(replace(state, queue=()), first)
    if state.phase == "closing":
        return state, effects
    return replace(state, phase="closing"), (*effects, Effect("leave"))


def _next(state: State) -> Step:
    """Start the next line that waits."""
    if not state.queue:
        return state, ()
    ((text, kind), *rest), number = state.queue, state.started + 1
    state = replace(state, phase="busy", number=number, kind=kind, queue=tuple(rest), started=number)
    return state, (Effect("start", number, text),)


def _stopped(state: State, first: tuple[Effect, ...] = ()) -> Step:
    """Stop all that runs: the opening, the work (at the second request by force) and the commands beside it."""
    effects = [*first, *(Effect("cancel", number) for number in state.beside)]
    if state.phase in ("opening", "closing"):
        return replace(state, phase="closing"), (*effects, Effect("abort"))
    if state.number:
        is_gentle = state.kind == "query" and not state.is_stopping
        effects.append(Effect("interrupt" if is_gentle else "cancel", state.number))
        state = replace(state, is_stopping=True)
    if state.queue:
        effects.append(Effect("restore", text="\n".join(text for text, _ in state.queue)))
    return replace(state, queue=()), tuple(effects)
