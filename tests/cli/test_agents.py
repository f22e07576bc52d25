"""``reverie agents`` and the agents in the terminal: running, ended, and lost ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Settings
from reverie.cli.main import run
from reverie.cli.terminal.agents import AgentLines
from reverie.cli.terminal.colours import Paint
from reverie.cli.terminal.footer import footer_parts
from reverie.cli.terminal.transcript import Transcript
from reverie.conversation.decisions import AgentSpawned, Cause
from reverie.events import AgentEnded, AgentProgressed, AgentStarted, UserMessaged
from reverie.models import ScriptedModel
from reverie.runtime.agent.agent import Agent
from reverie.runtime.agent.status import Status
from reverie.settings import Switches


def listed(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    assert run(["agents", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)["agents"]


def test_running_ended_and_lost_agents_are_told_apart(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> Any:
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        if turn == 0:
            return [{"type": "tool_use", "name": "Read", "input": {"file_path": "/x/view.py"}}]
        inside.extend(listed(capsys, "--running"))
        return "All is well.\x1b[31m"

    async def steps() -> None:
        settings = Settings(home, switches=Switches(extraction=False, recall=False, dream=False))
        (tmp_path / "work").mkdir()
        async with Agent(model=ScriptedModel(answer), cwd=tmp_path / "work", session="s", settings=settings) as agent:
            await agent.spawn("Look.", kind="explore", description="look around")
            await agent.session.log.decide(
                AgentSpawned(Cause("relay", "t"), "general-0", "Do it.", {"kind": "general"})
            )

    anyio.run(steps)
    assert [(one["kind"], one["state"], one["turns"], one["line"]) for one in inside] == [
        ("explore", "running", 1, "Reading view.py")
    ]
    found = {one["agent"]: one for one in listed(capsys)}
    lost = found.pop("general-0")
    assert lost["state"] == "lost"
    (ended,) = found.values()
    assert (ended["state"], ended["turns"], ended["depth"], ended["session"]) == ("completed", 2, 1, "s")
    assert run(["agents"]) == 0
    shown = capsys.readouterr().out
    assert "lost (its process ended)" in shown
    assert "look around: All is well." in shown
    assert "\x1b" not in shown
    assert run(["delete", ended["agent"], "--yes"]) == 0
    capsys.readouterr()
    assert [one["line"] for one in listed(capsys) if one["state"] == "deleted"] == [""]
    assert listed(capsys, "--running") == []
    assert [one["agent"] for one in listed(capsys, "--session", "s")] == ["general-0", ended["agent"]]
    assert run(["agents", "--session", "other"]) == 2
    assert "there is no session 'other'" in capsys.readouterr().err


def test_a_fork_that_ended_is_not_called_deleted_though_it_has_no_log_of_its_own(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def steps() -> None:
        settings = Settings(home, switches=Switches(extraction=False, recall=False, dream=False))
        model = ScriptedModel(lambda request: "All is well.")
        async with Agent(model=model, cwd=tmp_path, session="s", settings=settings) as agent:
            await agent.spawn("Look.")

    anyio.run(steps)
    (fork,) = listed(capsys)
    assert (fork["kind"], fork["state"], fork["line"]) == ("fork", "completed", "All is well.")


def test_no_agents_is_said_and_watching_wants_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["agents"]) == 0
    assert "No agents" in capsys.readouterr().out
    assert run(["agents", "--watch", "--json"]) == 2


def test_the_transcript_has_a_line_while_an_agent_works_and_one_when_it_ends() -> None:
    paint = Paint(colour=False)
    lines = AgentLines(paint, clock=lambda: 7.0)
    assert lines.on_event(AgentStarted("s", "explore-1", "explore", "look\x07 around", True)) == [
        "◇ explore-1 started in the background: look around"
    ]
    lines.on_event(AgentProgressed("s", "explore-1", "Reading view.py"))
    assert lines.live() == ["◇ explore-1 Reading view.py 0 s"]
    ended = lines.on_event(AgentEnded("s", "explore-1", "completed", "Found it", 3, 12_000, 0.02))
    assert ended == ["◆ explore-1 completed: Found it (3 turns, 12k tokens, $0.0200)"]
    assert lines.live() == []
    narrow = AgentLines(paint, clock=lambda: 7.0, columns=lambda: 40)
    assert narrow.on_event(AgentEnded("s", "explore-1", "completed", "Found it in the garden", 3, 12_000, 0.02)) == [
        "◆ explore-1 completed: Found it in the",
        "  garden (3 turns, 12k tokens, $0.0200)",
    ]
    for number in range(9):
        lines.on_event(AgentStarted("s", f"fork-{number}", "fork", "x"))
    assert len(lines.live()) == 7
    assert lines.live()[-1].strip() == "… 3 more agents"


def test_the_screen_shows_agents_and_the_footer_counts_them() -> None:
    written: list[str] = []
    transcript = Transcript(written.extend, paint=Paint(colour=False), cwd=Path("/"), size=lambda: (80, 24))
    transcript.show(AgentStarted("s", "explore-1", "explore", "look around"))
    assert any("explore-1 started" in line for line in written)
    assert any("explore-1" in line for line in transcript.live())
    transcript.show(AgentEnded("s", "explore-1", "killed", "it was stopped"))
    assert not any("explore-1" in line for line in transcript.live())
    status = Status("m", "default", 0, 1, 0, 0, None, None, (), agents=2)
    assert ("background", "2 agents") in footer_parts(status)


@pytest.mark.requirement("L7.5", "S7")
def test_the_screen_shows_a_message_to_the_user_with_its_sender_and_without_control_characters() -> None:
    written: list[str] = []
    transcript = Transcript(written.extend, paint=Paint(colour=False), cwd=Path("/"), size=lambda: (80, 24))
    transcript.show(UserMessaged("s", "general-1", "The build is red.\nLook \x1b[2Jat it."))
    assert written == ["✉ general-1: The build is red.", "Look at it."]
