"""The plan in the terminal: the question about it, ``/plan``, plain lines, and ``--print``."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from agent_stage import Stage, plays, use
from reverie.cli.main import run
from reverie.cli.terminal.approval import ask_about_plan
from reverie.cli.terminal.colours import Paint
from reverie.cli.terminal.commands import plan_command
from reverie.cli.terminal.plain import LineApprover
from reverie.cli.terminal.questions import Option
from reverie.errors import InputError
from reverie.runtime.agent.agent import Agent
from reverie.runtime.guard.permissions import Approval, ApprovalAnswer
from reverie.testing.messages_server import MessagesServer
from reverie.tools import Access

PLAN = "# The boat\n\n- [ ] paint the hull"
MODEL = "anthropic:claude-sonnet-5"
PLAIN = Paint(colour=False)
KEYS = ("ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL")


class Shown:
    """A transcript and a screen that keep what they are given, with prepared answers."""

    def __init__(self, *answers: str | None, line: str = "", edit: Callable[[Path], None] | None = None) -> None:
        self.lines: list[str] = []
        self.options: list[str] = []
        self._answers = list(answers)
        self._line = line
        self._edit = edit

    def size(self) -> tuple[int, int]:
        return 80, 24

    def put(self, kind: str, lines: Sequence[str]) -> None:
        self.lines.extend(line.removeprefix("│ ") for line in lines)

    def note(self, text: str, style: str = "dim") -> None:
        self.lines.append(text)

    async def choose(
        self, title: str, options: Sequence[Option], more: Callable[[bool], str] | None = None, *_: Any
    ) -> str | None:
        self.options = [one.key for one in options]
        if more is not None:
            more(True)
        return self._answers.pop(0)

    async def ask_words(self, mark: str) -> str:
        return self._line

    async def edit_file(self, path: Path) -> None:
        if self._edit is None:
            raise InputError("no editor")
        self._edit(path)


def question(path: str = "") -> Approval:
    given = {"action": "write", "text": PLAN}
    return Approval("Plan", given, Access("none", path), PLAN, "the plan waits", is_plan=True)


@pytest.mark.requirement("W9")
@pytest.mark.parametrize(
    ("choice", "answer"),
    [
        ("once", ApprovalAnswer("once")),
        ("always", ApprovalAnswer("always")),
        ("why", ApprovalAnswer("deny", "no hull")),
        ("no", ApprovalAnswer("deny")),
        (None, ApprovalAnswer("deny")),
    ],
)
def test_the_user_answers_a_plan(choice: str | None, answer: ApprovalAnswer) -> None:
    shown = Shown(choice, line=" no hull ")
    assert anyio.run(ask_about_plan, shown, shown, question(), PLAIN) == answer
    assert shown.lines == ["? Plan · the plan waits", *PLAN.split("\n")]
    assert shown.options == ["y", "a", "t", "n"]  # a plan without a file cannot be edited


@pytest.mark.requirement("W9")
def test_an_edited_plan_is_shown_again_before_the_answer(tmp_path: Path) -> None:
    file = tmp_path / "plan.md"
    file.write_text(PLAN)
    shown = Shown("edit", "once", edit=lambda path: cast(None, path.write_text("# Mine")))
    assert anyio.run(ask_about_plan, shown, shown, question(str(file)), PLAIN) == ApprovalAnswer("once")
    assert shown.lines[-2:] == ["? Plan · the plan waits", "# Mine"]
    broken = Shown("edit", "no")
    assert anyio.run(ask_about_plan, broken, broken, question(str(file)), PLAIN) == ApprovalAnswer("deny")
    assert "! no editor" in broken.lines


@pytest.mark.requirement("W9")
@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y", ApprovalAnswer("once")),
        ("a", ApprovalAnswer("always")),
        ("n", ApprovalAnswer("deny")),
        ("no hull", ApprovalAnswer("deny", "no hull")),
    ],
)
def test_plain_lines_ask_about_a_plan_too(
    typed: str,
    answer: ApprovalAnswer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def line(mark: str) -> str:
        assert "accept edits" in mark
        return typed

    monkeypatch.setattr("reverie.cli.terminal.plain.ask_for_line", line)
    assert anyio.run(LineApprover(tmp_path), question()) == answer
    assert "│ # The boat\n│ \n│ - [ ] paint the hull\n" in capsys.readouterr().out


class ChatWithPlan(Shown):
    """The parts of a conversation that ``/plan`` uses."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.agent = agent
        self.paint = PLAIN
        self.transcript = self


@pytest.mark.requirement("W9")
def test_the_command_plan_shows_approves_rejects_and_drops(tmp_path: Path) -> None:
    write = use("Plan", action="write", text=PLAN)
    stage = Stage(tmp_path, {"main": plays([write], "It waits.", [write], "It waits.")}, mode="plan")

    async def steps(agent: Agent) -> None:
        chat = ChatWithPlan(agent)

        async def say(rest: str) -> str:
            chat.lines.clear()
            await plan_command(chat, rest)
            return "\n".join(chat.lines)

        assert "there is no plan" in await say("")
        for wrong in ("edit", "approve", "reject", "drop", "burn"):
            with pytest.raises(InputError):
                await say(wrong)
        async for _ in agent.ask("go"):
            pass
        assert PLAN in await say("")
        assert "proposed by the agent" in await say("")
        with pytest.raises(InputError, match="not 'bypass'"):
            await say("approve bypass")
        await say("reject no hull")
        assert "rejected by the user: no hull" in await say("")
        async for _ in agent.ask("again"):
            pass
        assert "mode: accept-edits" in await say("approve accept-edits")
        assert agent.mode == "accept-edits"
        await say("drop")
        assert "done by the user" in await say("")

    stage.run(steps)


# -- --print


def answering(request: dict[str, Any]) -> Any:
    """Answer like a model that plans when it is asked to, and tells whether it was told of an approval."""
    last = request["messages"][-1]["content"]
    blocks = last if isinstance(last, list) else []
    if any(block.get("type") == "tool_result" for block in blocks):
        return "Read the plan, please."
    if "plan the boat" in str(last):
        return [{"type": "tool_use", "name": "Plan", "input": {"action": "write", "text": PLAN}}]
    return f"Approved: {'approved by the user' in str(request['messages'])}; carried out: {'Carry out' in str(last)}."


@pytest.fixture
def chat(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Return a function that runs ``reverie chat --print`` and gives exit code, stdout and stderr."""
    with MessagesServer(answering) as server:
        for key in KEYS:
            monkeypatch.delenv(key, raising=False)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "a key of the tests")
        monkeypatch.setenv("REVERIE_SWITCH_EXTRACTION", "off")
        project = tmp_path / "project"
        project.mkdir()

        def call_it(*arguments: str) -> tuple[int, str, str]:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
            code = run(["chat", "--model", MODEL, "--cwd", str(project), *arguments])
            return code, *capfd.readouterr()

        yield call_it
        assert server.errors == []


@pytest.mark.slow
@pytest.mark.requirement("W9")
def test_print_shows_the_plan_and_the_next_run_approves_it(chat: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = chat("--print", "--permission-mode", "plan", "plan the boat")
    assert (code, out) == (0, f"Read the plan, please.\n\n{PLAN}\n")
    assert "--approve-plan" in err
    code, out, err = chat("--print", "--continue", "--permission-mode", "plan", "not yet")
    assert (out, err) == ("Approved: False; carried out: False.\n", "")
    code, out, _ = chat("--print", "--continue", "--approve-plan", "accept-edits", "--output-format", "json")
    found = json.loads(out)
    assert found["result"] == "Approved: True; carried out: True."
    assert (found["plan"]["state"], found["plan"]["text"]) == ("approved", PLAN)
    code, _, err = chat("--print", "--continue", "--approve-plan", "default")
    assert code != 0
    assert "no plan waits" in err
    assert chat("--approve-plan", "default")[0] != 0
