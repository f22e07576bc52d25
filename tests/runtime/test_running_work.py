"""Running agents and commands in the background: said when the model does not know of them, and after every cut."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_stage import Stage, plays, task, use
from reverie.conversation.decisions import AgentSpawned, Cause, ContextSaid, Replacement, ResultsCleared
from reverie.runtime.agent.agent import Agent
from reverie.runtime.agent.running_work import _VisibleSigns

AGENTS = "Agents that you started in the background"
LONG = "It goes on. " + "There is much to say about it. " * 2_000
START = "Start it now."
SUMMARY = plays("<summary>\nThe user asked for something, and it was done.\n</summary>")


def starting(*calls: Any) -> Any:
    """Return a role that makes these calls for the prompt START, and has much to say to everything else."""
    return lambda turn, request: list(calls) if f"'text': {START!r}" in str(request["messages"][-1]) else LONG


def sayings(stage: Stage, key: str) -> list[Any]:
    """Return what was said about an item, in order."""
    said = [item for decision in stage.decisions(ContextSaid) for item in decision.items]
    return [item for item in said if item.key == key]


def last_message(stage: Stage) -> str:
    """Return the last message of the last request to the main agent as text."""
    return str(stage.requests("main")[-1]["messages"][-1])


async def ask(agent: Agent, prompt: str) -> None:
    async for _ in agent.ask(prompt):
        pass


class Waiting:
    """A main agent that starts an agent in the background, which waits until it is released."""

    def __init__(self, tmp_path: Path) -> None:
        self.released = anyio.Event()

        async def general(turn: int, request: Any) -> Any:
            await self.released.wait()
            return "Found it."

        main = starting(task("general", background=True))
        self.stage = Stage(tmp_path, {"main": main, "general": general, "fork": SUMMARY})


@pytest.mark.requirement("W2", "W3")
def test_a_start_that_the_model_sees_as_a_result_is_not_said(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)

    async def steps(agent: Agent) -> None:
        await ask(agent, START)
        await ask(agent, "and?")
        waiting.released.set()
        await agent.wait_agents()
        await ask(agent, "and now?")

    waiting.stage.run(steps)
    assert sayings(waiting.stage, "agents") == []
    assert "Found it." in last_message(waiting.stage)


@pytest.mark.requirement("W8")
def test_after_an_undone_cut_a_running_agent_stands_in_the_result_that_started_it(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)

    async def steps(agent: Agent) -> None:
        await ask(agent, START)
        await ask(agent, "and?")
        await agent.session.compact()
        await ask(agent, "go on")
        await agent.session.undo()
        await ask(agent, "and on")
        waiting.released.set()
        await agent.wait_agents()

    waiting.stage.run(steps)
    after_cut, after_undo = (str(request) for request in waiting.stage.requests("main")[3:5])
    assert (after_cut.count(AGENTS), after_undo.count(AGENTS)) == (1, 0)
    assert "works in the background" in after_undo


@pytest.mark.requirement("W2", "W4")
def test_a_running_agent_is_said_after_a_cut_and_its_end_only_as_its_result(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    stage = waiting.stage

    async def steps(agent: Agent) -> None:
        await ask(agent, START)
        await agent.session.compact()
        await ask(agent, "and?")
        (spawned,) = stage.decisions(AgentSpawned)
        assert f"- {spawned.agent} (general): a task: running" in last_message(stage)
        await ask(agent, "more")
        assert len(sayings(stage, "agents")) == 1
        waiting.released.set()
        await agent.wait_agents()
        await ask(agent, "and now?")
        assert len(sayings(stage, "agents")) == 1  # the result itself tells the end
        assert "Found it." in last_message(stage)
        await agent.session.compact()
        await ask(agent, "later")
        assert AGENTS not in str(stage.requests("main")[-1]["messages"])

    stage.run(steps)


@pytest.mark.requirement("W2", "W5")
def test_agents_of_a_process_that_died_are_told_as_ended_and_not_as_running(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    stage = waiting.stage

    async def steps(agent: Agent) -> None:
        await ask(agent, START)
        await agent.session.compact()
        await ask(agent, "and?")
        assert "running" in last_message(stage)

    stage.run(steps)
    stage.ask("after the crash")
    request = str(stage.requests("main")[-1]["messages"])
    (spawned,) = stage.decisions(AgentSpawned)
    assert f'id="{spawned.agent}"' in request
    assert "killed" in request.partition(f'id="{spawned.agent}"')[2][:80]
    _, _, after = request.rpartition(f"- {spawned.agent} (general)")
    assert f'id="{spawned.agent}"' in after  # the end comes after every list that has it as running


@pytest.mark.requirement("W2", "W3", "W4")
def test_a_command_is_said_after_a_cut_and_when_it_ended_unseen(tmp_path: Path) -> None:
    main = starting(use("Bash", command="cat fifo", run_in_background=True))
    stage = Stage(tmp_path, {"main": main, "fork": SUMMARY})
    os.mkfifo(stage.cwd / "fifo")

    async def steps(agent: Agent) -> None:
        await ask(agent, START)
        await ask(agent, "and?")
        assert sayings(stage, "shells") == []
        assert "shell_1" in agent.status().background
        await agent.session.compact()
        await ask(agent, "after the cut")
        assert "- shell_1: `cat fifo`: running" in last_message(stage)
        (stage.cwd / "fifo").write_text("done\n")
        shell = agent.parts.context.shells.get("shell_1")
        assert shell is not None
        assert await shell.wait(60)
        assert "shell_1" not in agent.status().background
        await ask(agent, "and now?")
        assert "This replaces" in last_message(stage)
        assert "- shell_1: `cat fifo`: exit code 0; its last output is not read yet" in last_message(stage)
        await ask(agent, "again")
        assert len(sayings(stage, "shells")) == 2

    stage.run(steps)


@pytest.mark.requirement("W2", "W3")
@pytest.mark.parametrize("after_cut", [False, True])
def test_an_end_that_a_tool_returned_is_not_said(tmp_path: Path, after_cut: bool) -> None:
    start = use("Bash", command="sleep 1000", run_in_background=True)

    def main(turn: int, request: Any) -> Any:
        last = str(request["messages"][-1])
        return [use("KillShell", shell_id="shell_1")] if "'Stop it.'" in last else starting(start)(turn, request)

    stage = Stage(tmp_path, {"main": main, "fork": SUMMARY})

    async def steps(agent: Agent) -> None:
        await ask(agent, START)
        if after_cut:
            await agent.session.compact()
            await ask(agent, "and?")
        await ask(agent, "Stop it.")
        await ask(agent, "and now?")

    stage.run(steps)
    assert "shell_1 was stopped." in str(stage.requests("main")[-1]["messages"])
    assert len(sayings(stage, "shells")) == after_cut


@pytest.mark.requirement("W4")
def test_a_list_that_counts_as_known_without_a_look_at_the_view_is_missed_after_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show that the tests above detect a source that trusts the first saying for ever."""
    monkeypatch.setattr(_VisibleSigns, "all_visible", lambda *_: True)
    waiting = Waiting(tmp_path)

    async def steps(agent: Agent) -> None:
        await ask(agent, START)
        await agent.session.compact()
        await ask(agent, "and?")

    waiting.stage.run(steps)
    assert "(general): a task: running" not in last_message(waiting.stage)


@pytest.mark.requirement("W2", "W5")
def test_commands_of_an_earlier_process_are_told_as_ended_and_their_ids_are_not_used_again(tmp_path: Path) -> None:
    start = [use("Bash", command="sleep 1000", run_in_background=True)]
    stage = Stage(tmp_path, {"main": plays(start, "Started.", start, "Started another.")})
    stage.ask("go")

    async def steps(agent: Agent) -> None:
        await ask(agent, "after the resume")

    stage.run(steps)
    resumed = stage.requests("main")[2]
    assert "- shell_1: `sleep 1000`: ended with the process that ran it" in str(resumed["messages"][-1])
    assert "Running in the background as shell_2." in str(stage.requests("main")[-1]["messages"])
    assert len(sayings(stage, "shells")) == 1  # the start of shell_2 was seen


@pytest.mark.requirement("W2", "W5")
@pytest.mark.parametrize("said_before", [True, False])
def test_commands_whose_start_a_cut_removed_are_told_as_ended_once_after_a_resume(
    tmp_path: Path, said_before: bool
) -> None:
    start = use("Bash", command="sleep 1000", run_in_background=True)
    stage = Stage(tmp_path, {"main": starting(start), "fork": SUMMARY})

    async def first(agent: Agent) -> None:
        await ask(agent, START)
        await agent.session.compact()
        if said_before:
            await ask(agent, "and?")

    async def later(agent: Agent) -> None:
        await ask(agent, "after the resume")

    stage.run(first)
    assert len(sayings(stage, "shells")) == said_before
    stage.run(later)
    assert "- shell_1: `sleep 1000`: ended with the process that ran it" in last_message(stage)
    stage.run(later)
    assert len(sayings(stage, "shells")) == 1 + said_before
    stage.ask(START)
    assert "Running in the background as shell_2." in str(stage.requests("main")[-1]["messages"])


@pytest.mark.requirement("W4")
def test_a_start_whose_result_was_cleared_is_said(tmp_path: Path) -> None:
    calls = [use("Bash", command="sleep 1000", run_in_background=True)]
    stage = Stage(tmp_path, {"main": plays(calls, "Started.")})

    async def steps(agent: Agent) -> None:
        await ask(agent, "go")
        (called,) = [
            block["id"]
            for message in agent.session.view.messages()
            if message["role"] == "assistant" and isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_use"
        ]
        await agent.session.log.decide(ResultsCleared(Cause("trim", "old"), [Replacement(called, "[cleared]")]))
        await ask(agent, "and?")

    stage.run(steps)
    assert "- shell_1: `sleep 1000`: running" in last_message(stage)
