"""Loaded skills are standing context: they survive cuts and resumes, as they are on disk, within their budget."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from reverie import InMemoryStorage, Settings
from reverie.conversation.decisions import Cause, Replacement, ResultsCleared
from reverie.conversation.tokens.estimate import estimate_text
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.runtime.agent.context_sources import LoadedSkillSource
from reverie.settings import Switches

pytestmark = pytest.mark.anyio

STEP = "Run `make ship` and read its last line."


def call(name: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "name": "Skill", "input": {"name": name}}]


class Desk:
    """An agent whose model loads the skills that the prompt names, and whose session can be opened again."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path / "user"))
        self.storage = InMemoryStorage()
        self.cwd = tmp_path / "work"
        self.cwd.mkdir()
        switches = Switches(extraction=False, recall=False, dream=False, notes=False)
        self.settings = Settings(home=tmp_path / "home", switches=switches)
        self.model = ScriptedModel(self._answer, capabilities=Capabilities(True, window=200_000))

    def write(self, name: str = "deploy", body: str = STEP) -> Path:
        place = self.settings.home / "skills" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Use {name} to {name}\n---\n{body}\n")
        return place

    def agent(self) -> Agent:
        return Agent(
            model=self.model, cwd=self.cwd, session="s", storage=self.storage, settings=self.settings, mode="bypass"
        )

    @staticmethod
    def _answer(request: dict[str, Any]) -> Any:
        content = request["messages"][-1]["content"]
        said = [content] if isinstance(content, str) else [str(block.get("text") or "") for block in content]
        wanted = [name for one in said if one.startswith("load ") for name in one.split()[1:]]
        return [each for name in wanted for each in call(name)] or "Done."

    async def compact(self, agent: Agent) -> None:
        """Talk at length and compact."""
        await self.ask(agent, "Talk. " * 12_000)
        await agent.session.compact()

    async def ask(self, agent: Agent, prompt: str = "go on") -> str:
        """Ask once and return the messages of the last request, as text."""
        async with aclosing(agent.ask(prompt)) as events:
            async for _ in events:
                pass
        return said_by(self.model.requests[-1]["messages"])


def said_by(messages: Iterable[dict[str, Any]]) -> str:
    """Return all texts and results of messages in order."""
    out: list[str] = []
    for message in messages:
        content = message["content"]
        for block in [{"text": content}] if isinstance(content, str) else content:
            out.append(str(block.get("text") or block.get("content") or ""))
    return "\n".join(out)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk(tmp_path, monkeypatch)
    made.write()
    return made


@pytest.fixture
async def loaded(desk: Desk) -> AsyncIterator[Agent]:
    """Yield an open agent that has loaded the skill ``deploy``."""
    async with desk.agent() as agent:
        assert (await desk.ask(agent, "load deploy")).count(STEP) == 1
        yield agent


@pytest.mark.requirement("W2", "L4.9")
async def test_a_skill_is_said_again_after_every_compaction_also_after_a_resume(desk: Desk) -> None:
    async with desk.agent() as agent:
        await desk.ask(agent, "load deploy")
        assert (await desk.ask(agent)).count(STEP) == 1
        await desk.compact(agent)
        for _ in range(2):
            assert (await desk.ask(agent)).count(STEP) == 1
    for _ in range(2):
        async with desk.agent() as agent:
            await desk.compact(agent)
            said = await desk.ask(agent)
            assert said.count(STEP) == 1
            assert "This still holds" in said


@pytest.mark.requirement("W2")
async def test_without_the_source_a_compaction_loses_the_skill(
    desk: Desk, loaded: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(LoadedSkillSource, "items", nothing)
    await desk.compact(loaded)
    assert STEP not in await desk.ask(loaded)


@pytest.mark.requirement("W2")
async def test_a_cleared_skill_is_said_again_and_an_undone_cut_shows_it_once(desk: Desk, loaded: Agent) -> None:
    [result] = [one for one in loaded.session.view.results if one.tool == "Skill"]
    cleared = ResultsCleared(Cause("trim", "test"), [Replacement(result.tool_use_id, "[cleared]")])
    await loaded.session.log.decide(cleared)
    said = await desk.ask(loaded)
    assert "[cleared]" in said
    assert said.count(STEP) == 1
    await desk.compact(loaded)
    assert (await desk.ask(loaded)).count(STEP) == 1
    await loaded.session.undo()
    assert (await desk.ask(loaded)).count(STEP) == 1


@pytest.mark.requirement("W2", "W8")
async def test_an_undone_compaction_brings_the_result_back_and_nothing_more_is_said(desk: Desk, loaded: Agent) -> None:
    await desk.compact(loaded)
    await desk.ask(loaded)
    await loaded.session.undo()
    for _ in range(2):  # the result is back, so the saying after the cut has left
        assert (await desk.ask(loaded)).count(STEP) == 1


@pytest.mark.requirement("W2")
async def test_a_skill_that_changed_on_disk_replaces_the_loaded_text(desk: Desk, loaded: Agent) -> None:
    desk.write(body="Run `make better` instead of anything else.")
    said = await desk.ask(loaded)
    assert said.count(STEP) == said.count("make better") == 1
    assert said.index(STEP) < said.index("This replaces the earlier text") < said.index("make better")
    desk.write()
    said = await desk.ask(loaded)
    assert said.rindex(STEP) > said.index("make better")
    assert "This replaces the earlier text about the skill deploy" in said
    assert (await desk.ask(loaded)).count(STEP) == 2
    await desk.compact(loaded)
    said = await desk.ask(loaded)
    assert (said.count(STEP), said.count("make better")) == (1, 0)


@pytest.mark.requirement("W2")
async def test_a_skill_that_was_deleted_ends(desk: Desk, loaded: Agent) -> None:
    await desk.compact(loaded)
    assert STEP in await desk.ask(loaded)
    place = desk.write()
    (place / "SKILL.md").unlink()
    place.rmdir()
    assert "This no longer holds: the skill deploy" in await desk.ask(loaded)
    await desk.compact(loaded)
    assert STEP not in await desk.ask(loaded)


@pytest.mark.requirement("W2")
async def test_a_skill_that_was_deleted_ends_where_only_its_result_is_in_view(desk: Desk, loaded: Agent) -> None:
    place = desk.write()
    (place / "SKILL.md").unlink()
    for _ in range(2):
        assert (await desk.ask(loaded)).count("This no longer holds: the skill deploy") == 1


@pytest.mark.requirement("W2")
async def test_a_skill_that_was_deleted_and_is_back_holds_again(desk: Desk, loaded: Agent) -> None:
    desk.write(body="Run `make better` instead of anything else.")
    await desk.ask(loaded)
    place = desk.write()
    (place / "SKILL.md").unlink()
    assert "This no longer holds: the skill deploy" in await desk.ask(loaded)
    desk.write()
    said = await desk.ask(loaded)
    assert said.rindex(STEP) > said.index("no longer holds")


@pytest.mark.requirement("W2")
async def test_a_skill_that_is_loaded_again_after_a_change_needs_no_saying(desk: Desk, loaded: Agent) -> None:
    await desk.compact(loaded)
    await desk.ask(loaded)
    desk.write(body="Run `make better` instead of anything else.")
    said = await desk.ask(loaded, "load deploy")
    assert said.count("make better") == 2  # at the prompt as a change, and as the result
    assert (await desk.ask(loaded)).count("make better") == 2


@pytest.mark.requirement("L4.9")
async def test_after_a_compaction_the_newest_skills_are_said_within_their_budget(desk: Desk) -> None:
    names = [f"skill-{number}" for number in range(9)]
    for name in names:
        desk.write(name, "\n".join(f"{name}: step {number} of the long way round" for number in range(900)))
    async with desk.agent() as agent:
        for name in names:
            await desk.ask(agent, f"load {name}")
        await agent.session.compact()
        await desk.ask(agent)
        table = agent.session.view.facts.standing
        rows = {name: table[f"skill:{name}"].item for name in names}
    shown = [name for name in reversed(names) if rows[name].state == "said"]
    assert 4 <= len(shown) < len(names)
    assert shown == list(reversed(names))[: len(shown)]
    sizes = [estimate_text(rows[name].value) for name in shown]
    assert max(sizes) <= 5_000
    assert sum(sizes) <= 25_000
    assert "load it with the tool Skill" in rows[shown[0]].value
    assert "load it with the tool Skill" in rows[names[0]].text
