"""A question on the screen: a text that a person types at it grants nothing, and a single deliberate key is quick."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.application.current import set_app
from prompt_toolkit.completion import DummyCompleter
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import DummyOutput

from reverie.cli.terminal import screen as screens
from reverie.cli.terminal.approval import ScreenApprover
from reverie.cli.terminal.colours import Paint
from reverie.cli.terminal.keys import bind_keys
from reverie.cli.terminal.plain import LineApprover
from reverie.cli.terminal.questions import Choice, Option
from reverie.cli.terminal.screen import Screen
from reverie.cli.terminal.states import Effect
from reverie.runtime.guard.permissions import Approval, ApprovalAnswer
from reverie.tools.tool import Access

CALL = Approval(
    "Bash",
    {"command": "git add a"},
    Access("run", "git add a"),
    "",
    "why",
    suggestions=("Bash(git add a)", "Bash(git)"),
)
PLAN = Approval("Plan", {}, Access("write", "/plan.md"), "# A plan\n" * 90, "", is_plan=True)
LONG = Approval("Bash", {"command": "ls\n" * 90}, Access("run", "ls\n" * 90), "", "why", suggestions=("Bash(ls)",))
PICKS = [Option(key, key, key) for key in "yns123ac"]
WORDS = (
    "please stop", "wait, what", "why does", "/help", "no, use the other file", "apply it to b", "even so", "not yet",
    "1234 is wrong", "very wrong", "yes but first", "talk to me", "PLEASE", "!ls", "@a",
)  # fmt: skip
TEXTS = st.sampled_from(WORDS) | st.text("yapnetv1234s c/!@.,YAPöß", min_size=2, max_size=30).filter(
    lambda text: not text.startswith(" ")
)


class Person:
    """A person at a screen, for whom time passes only when they wait."""

    def __init__(self, screen: Screen, timers: list[Callable[[], None]], cwd: Path) -> None:
        self.screen = screen
        self.timers = timers
        self.sent: list[str] = []
        self.refused: list[str | None] = []
        screen.on_submit = self.sent.append
        transcript: Any = SimpleNamespace(
            put=lambda *_: None, note=lambda *_: None, denied=lambda _, why: self.refused.append(why)
        )
        self.approve = ScreenApprover(screen, transcript, paint=Paint(colour=False), cwd=cwd)

    def press(self, *keys: str) -> None:
        for key in keys:
            data = "\r" if key == Keys.Enter else key
            self.screen.app.key_processor.feed(KeyPress(Keys.Enter if key == Keys.Enter else key, data))
            self.screen.app.key_processor.process_keys()

    def type(self, text: str) -> None:
        self.press(*text)

    def paste(self, text: str) -> None:
        self.screen.app.key_processor.feed(KeyPress(Keys.BracketedPaste, text))
        self.screen.app.key_processor.process_keys()

    def wait(self) -> None:
        for act in self.timers[:]:
            self.timers.remove(act)
            act()

    def shown(self) -> str:
        choice = self.screen.choice
        return "".join(text for _, text in choice.parts(self.screen.buffer.text)) if choice is not None else ""

    async def asked(self, question: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Return a task that waits for the answer to a question that is on the screen."""
        task = asyncio.create_task(question)
        while self.screen.choice is None:
            await asyncio.sleep(0)
        return task


@contextmanager
def person(cwd: Path) -> Iterator[Person]:
    timers: list[Callable[[], None]] = []
    with pytest.MonkeyPatch.context() as patch, create_pipe_input() as pipe:
        patch.setattr(screens, "call_later", lambda _, act: timers.append(act))
        with create_app_session(input=pipe, output=DummyOutput()):
            screen = Screen(colour=False, history=InMemoryHistory(), completer=DummyCompleter())
            bind_keys(screen)
            with set_app(screen.app):
                yield Person(screen, timers, cwd)


QUESTIONS: dict[str, Callable[[Person], Coroutine[Any, Any, Any]]] = {
    "call": lambda one: one.approve(CALL),
    "long call": lambda one: one.approve(LONG),
    "plan": lambda one: one.approve(PLAN),
    "choice": lambda one: one.screen.choose("Which?", PICKS),
}


async def draft_after(name: str, text: str, *, pasted: bool = False, draft: str = "") -> tuple[bool, str]:
    """Return whether a text typed quickly at a question answers it, also after a wait, and the draft."""
    with person(Path("/w")) as one:
        one.type(draft)
        task = await one.asked(QUESTIONS[name](one))
        one.paste(text) if pasted else one.type(text)
        one.wait()
        await asyncio.sleep(0)
        found = (task.done() or one.screen.choice is None or one.screen.choice.answer.done(), one.screen.buffer.text)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found


@given(st.sampled_from(sorted(QUESTIONS)), TEXTS, st.booleans(), st.sampled_from(["", "begun "]))
def test_a_text_typed_at_a_question_grants_nothing_and_is_in_the_draft(
    name: str, text: str, pasted: bool, draft: str
) -> None:
    if pasted and not text.strip():
        return
    assert asyncio.run(draft_after(name, text, pasted=pasted, draft=draft)) == (False, draft + text)


def test_the_first_matching_key_of_a_text_would_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    def press(choice: Choice, key: str) -> str:
        for option in choice.options:
            if option.key == key.lower():
                choice.resolve(option.value)
        return ""

    monkeypatch.setattr(Choice, "press", press)  # the known-bad twin
    granted = [text for text in WORDS if asyncio.run(draft_after("call", text))[0]]
    assert {"please stop", "wait, what", "why does", "/help"} <= set(granted)


ONCE = ApprovalAnswer("once")
SESSION, PROJECT = (ApprovalAnswer("always", rule="Bash(git add a)", keep=keep) for keep in ("session", "project"))


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["y", ""], ONCE),
        (["Y", ""], ONCE),
        (["y", Keys.Enter], ONCE),
        ([Keys.Enter], ONCE),
        (["n", ""], ApprovalAnswer("deny")),
        (["a", ""], None),
        (["p", "", ""], None),
        (["e", ""], None),
        (["a", Keys.Enter], SESSION),
        (["p", "", Keys.Enter], PROJECT),
        (["p", "", "y", ""], ONCE),
        (["p", "", "l", "", "y", ""], None),
        (["p", "l", Keys.Backspace, Keys.Backspace, "y", ""], ONCE),
        ([*"please", Keys.Down, Keys.Enter], SESSION),
        ([*"no, use b", Keys.Enter], ApprovalAnswer("deny", "no, use b")),
        ([*"no", Keys.Enter, *"go on", Keys.Enter], ApprovalAnswer("deny", "no")),
        ([*"yes", Keys.Enter], ApprovalAnswer("deny", "yes")),
        ([*"please", *[Keys.Backspace] * 6, "", Keys.Enter], ONCE),
        ([*"please", *[Keys.Backspace] * 6, Keys.Enter], None),
        ([*"/cost", Keys.Enter, Keys.Enter], None),
        ([*"/cost", Keys.Enter], None),
    ],
)
def test_a_key_alone_answers_and_an_answer_that_lasts_needs_enter(
    tmp_path: Path, keys: list[str], answer: ApprovalAnswer | None
) -> None:
    async def main() -> None:
        with person(tmp_path) as one:
            task = await one.asked(one.approve(CALL))
            for key in keys:
                one.press(key) if key else one.wait()
            for _ in range(9):
                await asyncio.sleep(0)
            assert (task.result() if task.done() else None) == answer
            assert one.sent == (["/cost"] if "/" in keys else ["go on"] if "g" in keys else [])
            if keys[0] == "e":
                assert "Enter opens the rule, and you edit it" in one.shown()
            if keys[0] in "ap" and answer is None and "l" not in keys:
                assert "Enter confirms" in one.shown()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_a_message_begun_before_the_question_goes_on_and_is_sent_and_esc_keeps_a_text(tmp_path: Path) -> None:
    async def main() -> None:
        with person(tmp_path) as one:
            one.type("also test ")
            task = await one.asked(one.approve(CALL))
            one.type("any")
            one.press(Keys.Enter)
            assert one.sent == ["also test any"]
            assert not task.done()
            assert "❯ y" in one.shown()
            one.type("/c")
            assert "Enter sends" in one.shown()
            assert "❯" not in one.shown()
            one.press(Keys.Backspace, Keys.Backspace)
            assert "❯ y" in one.shown()
            one.type("wait")
            assert "Enter refuses" in one.shown()
            one.screen.change_input(Effect("close"))
            assert await task == ApprovalAnswer("deny")
            assert one.screen.buffer.text == "wait"
            assert one.refused == [None], "an interrupt is no refusal"

    asyncio.run(main())


@pytest.mark.parametrize("text", WORDS)
def test_a_text_in_plain_lines_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    async def line(mark: str) -> str:
        return text

    monkeypatch.setattr("reverie.cli.terminal.plain.ask_for_line", line)
    for approval in (CALL, PLAN):
        assert asyncio.run(LineApprover(tmp_path)(approval)) == ApprovalAnswer("deny", text)


@pytest.mark.parametrize(("columns", "rows"), [(80, 10), (40, 12), (40, 8), (30, 6), (80, 5)])
@pytest.mark.parametrize("call", [CALL, LONG, PLAN])
def test_on_a_low_screen_the_call_and_the_keys_of_all_answers_stay(
    tmp_path: Path, call: Approval, columns: int, rows: int
) -> None:
    async def main() -> None:
        with person(tmp_path) as one:
            one.screen.size = lambda: (columns, rows)  # type: ignore[method-assign]
            task = await one.asked(one.approve(call))
            shown: list[str] = []
            for _ in range(8):
                assert one.screen.choice is not None
                room = rows - 1
                shown = "".join(part for _, part in one.screen.choice.low_parts("", columns, room)).split("\n")
                assert len(shown) <= room
                assert all(len(row) <= columns for row in shown)
                assert shown[0].startswith("? ")
                assert all(any(re.search(rf"(^|· |  |❯ ){key} ", row) for row in shown) for key in "ynt")
                marked = one.screen.choice.options[one.screen.choice.at]
                assert f"❯ {marked.key}  {marked.label}" in "".join(shown)  # whole, because Enter chooses it
                one.press(Keys.Down)
            assert call is PLAN or rows < 8 or any(row.startswith("│ ") for row in shown)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_a_page_that_is_turned_on_a_low_screen_stands_in_the_question(tmp_path: Path) -> None:
    async def main() -> None:
        command = "\n".join(map(str, range(90)))
        call = Approval("Bash", {"command": command}, Access("run", command), "", "why")
        with person(tmp_path) as one:
            one.screen.size = lambda: (80, 10)  # type: ignore[method-assign]
            task = await one.asked(one.approve(call))
            seen: list[str] = []
            for key in ["", " ", " ", "v"]:
                one.press(key) if key else None
                one.wait()
                assert one.screen.choice is not None
                shown = "".join(part for _, part in one.screen.choice.low_parts("", 80, 9)).split("\n")
                seen.append(" ".join(row[2:] for row in shown if row.startswith("│ ")))
                assert "Space: next page" in "".join(shown) or key == "v"
            assert seen == ["0 1 2", "3 4 5", "6 7 8", "87 88 89"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_ctrl_o_opens_the_last_output_while_a_question_is_open_and_answers_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        with person(tmp_path) as one:
            opened: list[str] = []
            one.screen.on_open = lambda: opened.append(one.shown())
            task = await one.asked(one.approve(CALL))
            one.press(Keys.ControlO)
            assert len(opened) == 1
            one.type("wait")
            one.press(Keys.ControlO)
            assert len(opened) == 2
            assert (task.done(), one.screen.buffer.text) == (False, "wait")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
