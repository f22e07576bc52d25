"""The standing context of an agent: place, date, instructions, lists and hook context, before and after a cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_stage import Stage, plays
from marks import without_marks
from reverie import InMemoryStorage, Session
from reverie.conversation.decisions import Cause, Snipped
from reverie.runtime.agent.agent import Agent
from reverie.runtime.agent.context_sources import TextSource
from reverie.runtime.session import standing_context
from reverie.settings import HookCommand
from reverie.values import replace

ITEMS = ("Today is ", "Working directory: ", "RULES-VALUE", "Skills you can load", "- general", "HOOK-VALUE")


async def ask(agent: Agent, prompt: str) -> None:
    async for _ in agent.ask(prompt):
        pass


def prepared_stage(tmp_path: Path, answer: str, **roles: Any) -> Stage:
    """Return a stage with a hook, a skill and an instruction file."""
    stage = Stage(tmp_path, {"main": lambda turn, request: answer, **roles})
    stage.settings = replace(stage.settings, hooks={"session_start": (HookCommand("echo HOOK-VALUE"),)})
    skill = stage.home / "skills" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: Deploy it.\n---\nIn steps.\n")
    (stage.cwd / "AGENTS.md").write_text("RULES-VALUE: tie every boat.\n")
    return stage


def requests_around_a_cut(tmp_path: Path) -> list[dict[str, Any]]:
    """Ask before and after a cut that removes every message, and return both requests."""
    stage = prepared_stage(tmp_path, "Fine.")

    async def steps(agent: Agent) -> None:
        await ask(agent, "go")
        every = [piece.uuid for group in agent.session.view.groups for piece in group.pieces]
        await agent.session.log.decide(Snipped(Cause("test", "all of it leaves", moves_prefix=True), every))
        await ask(agent, "and?")

    stage.run(steps)
    return stage.requests("main")


@pytest.mark.requirement("W2", "W3", "W4")
def test_place_date_instructions_lists_and_hook_context_survive_a_cut_of_everything(tmp_path: Path) -> None:
    before, after = requests_around_a_cut(tmp_path)
    for request in (before, after):
        said = str(request["messages"])
        assert {item: said.count(item) for item in ITEMS} == dict.fromkeys(ITEMS, 1)
        fixed = f"{request['system']}{request['tools']}"
        assert [item for item in ITEMS if item in fixed] == []
    assert without_marks([after["system"], after["tools"]]) == without_marks([before["system"], before["tools"]])
    assert "Fine." not in str(after["messages"]), "the cut removed the whole conversation"


@pytest.mark.requirement("W2", "W4")
def test_the_twin_that_says_nothing_again_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say = standing_context.items_to_say
    monkeypatch.setattr(
        standing_context, "items_to_say", lambda table, fallen, *rest, **more: say(table, {}, *rest, **more)
    )
    _, after = requests_around_a_cut(tmp_path)
    assert [item for item in ITEMS if item in str(after["messages"])] == []


@pytest.mark.requirement("W3", "W5")
@pytest.mark.parametrize("old", [True, False])
def test_in_an_old_log_files_as_they_are_now_replace_the_text_that_opened_it(old: bool) -> None:
    async def main() -> str:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await session.attach("Leave every boat loose.", type="user_context" if old else "note")
            session.parts.standing.add(TextSource("instructions", "the instruction file", "Tie every boat."))
            await session.say("go")
            return str(await session.prepare(model="claude-sonnet-4-5", max_tokens=1_000))

    _, _, after = anyio.run(main).partition("Leave every boat loose.")
    assert "Tie every boat." in after
    assert ("The context that opened the session is older" in after.partition("Tie every boat")[0]) is old


@pytest.mark.requirement("L4.4")
def test_after_a_compaction_the_opening_comes_first_and_context_that_is_said_again_comes_last(tmp_path: Path) -> None:
    summary = plays("<summary>\nIt was done.\n</summary>")
    stage = prepared_stage(tmp_path, "It goes on. " + "There is much to say about it. " * 2_000, fork=summary)

    async def steps(agent: Agent) -> None:
        await agent.session.set_context("pier", "PIER-VALUE")
        for number in range(5):
            await ask(agent, f"PROMPT-{number}")
        await agent.session.compact()
        await ask(agent, "PROMPT-5")

    stage.run(steps)
    (*_, before, after) = stage.requests("main")
    assert after["messages"][0]["content"][:2] == before["messages"][0]["content"][:2], "the opening keeps its bytes"
    said = str(after["messages"])
    order = [said.index(one) for one in ("RULES-VALUE", "This session goes on", "PROMPT-5", "PIER-VALUE")]
    assert order == sorted(order)
    assert said.count("PIER-VALUE") == said.count("RULES-VALUE") == 1
    assert "It goes on" in said[order[1] : order[2]], "kept messages follow the summary"


@pytest.mark.requirement("W3", "W8")
def test_instructions_in_a_folder_whose_name_is_no_text_are_said_once(tmp_path: Path) -> None:
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    stage = prepared_stage(folder, "Fine.")

    async def steps(agent: Agent) -> None:
        for prompt in ("go", "and?", "and then?"):
            await ask(agent, prompt)

    stage.run(steps)
    said = str(stage.requests("main")[-1]["messages"])
    assert said.count("RULES-VALUE") == 1
    assert "no longer" not in said
