"""The states of the interactive chat: in every one an interrupt ends the running work."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from reverie.cli.terminal import states
from reverie.cli.terminal.states import Effect, InputLine, State, Step
from reverie.values import replace

SEQUENCES = {"suite": 400, "torture": 20_000}
LENGTH = 60
Pressed = Callable[[State, states.Key, float, InputLine], Step]


class World:
    """A terminal around the states, whose work never ends by itself: only an interrupt or a cancellation ends it.

    A query takes one step to stop, and a stubborn one ignores that, so that only its cancellation ends it.
    """

    def __init__(self, rng: random.Random, pressed: Pressed = states.pressed) -> None:
        self.rng = rng
        self.pressed = pressed
        self.state = State()
        self.now = 0.0
        self.running: dict[int, str] = {}
        """Kind of each running work by its number: query, stubborn, command, beside or opening (number 0)."""
        self.told: set[int] = set()
        self.due: list[tuple[float, int]] = []
        self.has_text = self.has_menu = self.has_question = self.is_over = False
        self.running[0] = "opening"

    def apply(self, result: Step) -> None:
        self.state, effects = result
        for effect in effects:
            self.carry_out(effect)

    def carry_out(self, effect: Effect) -> None:
        match effect.act:
            case "start":
                assert not any(kind in ("query", "stubborn", "command") for kind in self.running.values())
                kind = self.state.kind
                self.running[effect.number] = self.rng.choice(["query", "stubborn"]) if kind == "query" else kind
            case "beside":
                self.running[effect.number] = "beside"
            case "interrupt":
                self.told.add(effect.number)
                self.due.append((self.now + 1.0, effect.number))
            case "cancel":
                self.end(effect.number)
            case "close":
                self.has_menu = self.has_question = False
            case "clear":
                self.has_text = False
            case "restore":
                self.has_text = True
            case "leave":
                self.is_over = self.is_over or not self.running
            case "abort":
                self.running.clear()
                self.is_over = True
            case "hint":
                pass

    def end(self, number: int) -> None:
        kind = self.running.pop(number, None)
        if kind == "beside":
            self.apply(states.beside_ended(self.state, number))
        elif kind is not None:
            self.apply(states.work_ended(self.state, number))

    def pass_time(self, seconds: float) -> None:
        """Let time pass: queries that were told to stop do so, and overdue ones are reported."""
        self.now += seconds
        for number in [one for one in self.told if self.running.get(one) == "query"]:
            self.end(number)
        for at, number in [one for one in self.due if one[0] <= self.now]:
            self.due.remove((at, number))
            self.apply(states.overdue(self.state, number))

    def interrupt(self) -> None:
        line = InputLine(self.has_text, self.has_menu, self.has_question)
        self.apply(self.pressed(self.state, self.rng.choice(["escape", "ctrl-c"]), self.now, line))

    def random_event(self) -> None:
        if self.is_over:
            return
        rng = self.rng
        match rng.randrange(14):
            case 13:
                is_idle = self.state.phase == "idle"
                self.apply(states.woken(self.state))
                assert self.state.phase == "busy" or not is_idle
            case 12:
                waiting = self.state.queue
                self.state, text = states.taken(self.state)
                assert (
                    ((text, "query"), *self.state.queue) == waiting if text is not None else self.state.queue == waiting
                )
            case 0 if 0 in self.running:
                del self.running[0]
                self.apply(states.opened(self.state))
            case 0 | 1 | 2:
                self.apply(states.submitted(self.state, "hello", "query"))
            case 3:
                self.apply(states.submitted(self.state, "/compact", "command"))
            case 4 | 5:
                self.apply(states.submitted(self.state, "/cost", "command", beside=True))
            case 6:
                beside = [number for number, kind in self.running.items() if kind == "beside"]
                self.end(rng.choice(beside)) if beside else None
            case 7:
                self.has_text = True
                self.apply(states.typed(self.state))
            case 8:
                self.has_menu = rng.random() < 0.5
            case 9:
                self.has_question = rng.random() < 0.5
            case 10:
                self.pass_time(rng.choice([0.1, 1.0, 3.0]))
            case _:
                self.interrupt()


def survivors(seed: int, pressed: Pressed = states.pressed) -> list[str]:
    """Return the kinds of work that run two seconds after an interrupt that follows random keys and events."""
    world = World(random.Random(seed), pressed)
    for _ in range(world.rng.randrange(LENGTH)):
        world.random_event()
    before = dict(world.running)
    has_menu = world.has_menu or world.has_question
    world.interrupt()
    world.pass_time(2.0)
    if before.get(0) == "opening" and has_menu:  # the first key closes the menu
        world.interrupt()
    return [kind for number, kind in before.items() if number in world.running]


def old_pressed(state: State, key: states.Key, at: float, line: InputLine) -> Step:
    """Interrupt as the chat once did: the last command beside the work was cancelled for ever instead of the work."""
    if state.phase == "busy" and state.started > state.number:  # a command was started beside it, ended or not
        return replace(state, is_stopping=True), (Effect("cancel", state.started),)
    return states.pressed(state, key, at, line)


def seeds(torture: bool) -> range:
    first = int(os.environ["REVERIE_TEST_SEED"])
    count = SEQUENCES["torture" if torture else "suite"]
    print(f"{count:,} sequences of up to {LENGTH} keys and events, seeds from {first}")
    return range(first, first + count)


def test_an_interrupt_ends_the_running_work_after_any_keys(torture: bool) -> None:
    found = {seed: left for seed in seeds(torture) if (left := survivors(seed))}
    assert found == {}


def test_the_old_rule_would_leave_work_running(torture: bool) -> None:
    assert any(survivors(seed, old_pressed) for seed in seeds(torture))


def test_the_sequences_reach_every_state() -> None:
    reached: set[Any] = set()
    for seed in range(300):
        world = World(random.Random(seed))
        for _ in range(LENGTH):
            world.random_event()
            state = world.state
            reached.add((state.phase, state.kind if state.number else "", state.is_stopping, bool(state.beside)))
            reached.add(("menu", state.phase, world.has_menu, world.has_question))
            reached.add(("queue", state.phase, bool(state.queue)))
    for expected in [
        ("opening", "", False, False),
        ("busy", "query", False, True),
        ("busy", "query", True, True),
        ("busy", "command", False, True),
        ("idle", "", False, True),
        ("menu", "busy", True, True),
        ("queue", "busy", True),
        ("queue", "opening", True),
        ("closing", "query", True, False),
    ]:
        assert expected in reached, expected


BUSY = State(phase="busy", number=1, started=1)
IDLE = State(phase="idle", started=1)


@pytest.mark.parametrize(
    ("state", "key", "line", "acts"),
    [
        (BUSY, "escape", InputLine(), ["interrupt"]),
        (BUSY, "escape", InputLine(has_menu=True), ["close", "interrupt"]),
        (BUSY, "ctrl-c", InputLine(has_question=True), ["close", "interrupt"]),
        (BUSY, "ctrl-c", InputLine(has_text=True), ["interrupt"]),
        (replace(BUSY, is_stopping=True), "escape", InputLine(), ["cancel"]),
        (replace(BUSY, kind="command"), "escape", InputLine(), ["cancel"]),
        (replace(BUSY, beside=(2,)), "escape", InputLine(), ["cancel", "interrupt"]),
        (replace(BUSY, queue=(("next", "query"),)), "escape", InputLine(), ["interrupt", "restore"]),
        (replace(BUSY, ctrl_c_at=9.0), "ctrl-c", InputLine(), ["interrupt", "leave"]),
        (State(), "escape", InputLine(), ["abort"]),
        (State(), "escape", InputLine(has_menu=True), ["close"]),
        (State(phase="closing"), "ctrl-c", InputLine(), ["abort"]),
        (IDLE, "escape", InputLine(has_text=True), []),
        (IDLE, "escape", InputLine(has_question=True), ["close"]),
        (IDLE, "ctrl-c", InputLine(has_text=True, has_menu=True), ["close", "clear"]),
        (IDLE, "ctrl-c", InputLine(), ["hint"]),
        (replace(IDLE, ctrl_c_at=9.0), "ctrl-c", InputLine(), ["leave"]),
        (replace(IDLE, ctrl_c_at=1.0), "ctrl-c", InputLine(), ["hint"]),
        (IDLE, "ctrl-d", InputLine(), ["leave"]),
        (IDLE, "ctrl-d", InputLine(has_text=True), []),
    ],
)
def test_a_key_has_one_effect_in_each_state(state: State, key: states.Key, line: InputLine, acts: list[str]) -> None:
    assert [effect.act for effect in states.pressed(state, key, 10.0, line)[1]] == acts


def test_a_prompt_goes_to_the_running_query_unless_a_command_comes_first_or_it_stops() -> None:
    state, _ = states.opened(State())
    assert states.taken(state) == (state, None)
    for text, kind in (("go", "query"), ("also this", "query"), ("/compact", "command"), ("then that", "query")):
        state, _ = states.submitted(state, text, kind)  # type: ignore[arg-type]
    state, text = states.taken(state)
    assert text == "also this"
    assert states.taken(state) == (state, None)  # the command first
    stopping, _ = states.pressed(states.submitted(State("busy", 1), "more", "query")[0], "escape", 0.0, InputLine())
    assert states.taken(stopping)[1] is None
