"""Going back to an earlier prompt: conversation, files and memories, and taking that back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_stage import task, use
from marks import without_marks
from reverie import Settings
from reverie.conversation.log import parse_log
from reverie.errors import InputError
from reverie.events import QueryEnded
from reverie.models import ScriptedModel
from reverie.runtime.agent import parts
from reverie.runtime.agent.agent import Agent
from reverie.runtime.agent.rewind import RewindReport, rewind, sent_prompts, undo_rewind
from reverie.runtime.reports.measures import measure
from reverie.settings import Switches

MEMORY = {"action": "save", "type": "feedback", "name": "tabs", "description": "indent with tabs", "text": "Use tabs."}


class World:
    """A project with two files, and an agent that changes them in its second prompt."""

    def __init__(self, tmp_path: Path) -> None:
        self.home, self.project = tmp_path / "home", tmp_path / "project"
        self.project.mkdir()
        (self.project / "old.txt").write_bytes(b"one\r\ntwo\r\n")
        self.settings = Settings(self.home, switches=Switches(extraction=False, recall=False, dream=False))
        self.model = ScriptedModel(self.answer)

    def answer(self, request: Any) -> Any:
        if "another agent has started" in str(request["system"]):
            done = "tool_result" in str(request["messages"][-1])
            return "Written." if done else [use("Write", file_path="by_agent.txt", content="agent\n")]
        last = str(request["messages"][-1]["content"])
        if "tool_result" in last or "change them" not in last:
            return "Done."
        return [
            use("Read", file_path="old.txt"),
            use("Edit", file_path="old.txt", old_string="two", new_string="zwei"),
            use("Edit", file_path="old.txt", old_string="one", new_string="eins"),
            use("Write", file_path="sub/new.txt", content="new\n"),
            {"type": "tool_use", "name": "Memory", "input": MEMORY},
            task("general"),
            use("TodoWrite", todos=[{"content": "a step", "status": "pending"}]),
        ]

    def agent(self, session: str) -> Agent:
        return Agent(model=self.model, cwd=self.project, session=session, settings=self.settings, mode="bypass")

    def talk(self, session: str, *prompts: str) -> None:
        async def steps() -> None:
            async with self.agent(session) as agent:
                for prompt in prompts:
                    _ = [event async for event in agent.ask(prompt)]

        anyio.run(steps)

    def act(self, session: str, act: Any) -> Any:
        async def steps() -> Any:
            async with self.agent(session) as agent:
                return await act(agent)

        return anyio.run(steps)

    def back(self, session: str, number: int, **given: Any) -> RewindReport:
        async def act(agent: Agent) -> RewindReport:
            prompts = await sent_prompts(agent)
            return await rewind(agent, prompts[number].uuid, **given)

        return self.act(session, act)

    def state(self) -> dict[str, bytes]:
        found = {str(path.relative_to(self.project)): path.read_bytes() for path in self.project.rglob("*.txt")}
        return found | {path.name: path.read_bytes() for path in self.home.glob("projects/*/memory/*.md")}

    def sent(self) -> str:
        return str(self.model.requests[-1]["messages"])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_files_memories_and_conversation_go_back_to_a_prompt_and_forward_again(world: World) -> None:
    world.talk("first", "hello there")
    before, prefix = world.state(), without_marks(world.model.requests[-1])["messages"]
    world.talk("first", "now change them", "and a third thing")
    after = world.state()
    assert after["old.txt"] == b"eins\r\nzwei\r\n"
    assert {"sub/new.txt", "by_agent.txt", "feedback_tabs.md"} <= set(after)

    async def look(agent: Agent) -> list[tuple[str, int]]:
        return [(one.text, one.files) for one in await sent_prompts(agent)]

    assert world.act("first", look) == [("and a third thing", 0), ("now change them", 3), ("hello there", 3)]
    report = world.back("first", 1)
    assert report.problems == []
    assert sorted(Path(path).name for path in report.files) == ["by_agent.txt", "new.txt", "old.txt"]
    assert report.memories == 1
    assert world.state() == before

    # The new session is as the old one was: the model sees its first prompt and nothing later, not even its steps.
    world.talk(report.session, "something else")
    assert "hello there" in world.sent()
    assert "change them" not in world.sent()
    assert "a step" not in world.sent()
    assert without_marks(world.model.requests[-1])["messages"][: len(prefix)] == prefix

    # The old session is whole, and the rewind can be undone.
    undone = world.act(report.session, undo_rewind)
    assert (undone.session, undone.problems, undone.memories) == ("first", [], 1)
    assert world.state() == after
    world.talk("first", "go on")
    assert "and a third thing" in world.sent()
    with pytest.raises(InputError, match="there is none to undo"):
        world.act(report.session, undo_rewind)


def test_a_file_that_something_else_changed_is_left_alone_and_named(world: World) -> None:
    world.talk("first", "now change them")
    (world.project / "old.txt").write_text("by hand\n")
    (world.project / "sub" / "new.txt").unlink()
    report = world.back("first", 0)
    [problem] = report.problems
    assert "old.txt: something else has changed it since" in problem
    assert (world.project / "old.txt").read_text() == "by hand\n"
    assert not (world.project / "by_agent.txt").exists()


def test_only_the_conversation_can_go_back(world: World) -> None:
    world.talk("first", "now change them")
    after = world.state()
    report = world.back("first", 0, files=False)
    assert (report.files, report.memories) == ([], 0)
    assert world.state() == after


def test_without_kept_versions_nothing_would_come_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "keep_version", lambda storage, folder, data: None)
    world.talk("first", "now change them")
    assert world.back("first", 0).files == []


def test_costs_are_counted_once(world: World) -> None:
    world.talk("first", "hello there", "now change them")
    report = world.back("first", 0)

    def calls(session: str) -> int:
        [log] = world.home.glob(f"projects/*/{session}.jsonl")
        entries = parse_log(log.read_bytes()).entries
        return measure(entries, lambda model: None).calls

    assert calls("first") == 3
    assert calls(report.session) == 0


def test_the_cost_stays_and_the_budget_counts_it(world: World) -> None:
    world.model = ScriptedModel(world.answer, name="anthropic:claude-sonnet-5")

    async def figures(agent: Agent) -> tuple[float | None, float | None]:
        return agent.status().cost_usd, agent.status().cache_share

    world.talk("first", "hello there", "now change them")
    spent, share = world.act("first", figures)
    assert spent
    back = world.back("first", 0).session
    assert world.act(back, figures) == (spent, share)
    twice = world.back(back, 0).session
    assert world.act(twice, figures) == (spent, share)

    async def end(budget_usd: float) -> str:
        async with Agent(
            model=world.model, cwd=world.project, session=twice, settings=world.settings, budget_usd=budget_usd
        ) as agent:
            [ended] = [event.end async for event in agent.ask("go on") if isinstance(event, QueryEnded)]
            return ended

    assert anyio.run(end, spent) == "budget"
    assert anyio.run(end, 2 * spent) == "completed"
