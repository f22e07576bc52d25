"""An agent's memory: saved on request, recalled in another session, extracted in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Memory, Settings
from reverie.conversation.decisions import MemoriesExtracted, MemoriesSurfaced
from reverie.errors import ModelRefused
from reverie.events import DecisionMade, Event, FellBack
from reverie.memories.recall.policy import RecallPolicy
from reverie.models import RetryingModel, ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.runtime.search.sessions import SessionSearch
from reverie.settings import Switches
from reverie.values import replace


class Home:
    """One user's machine: a project, a home, and sessions one after another."""

    def __init__(self, folder: Path, **switches: bool) -> None:
        self.cwd = folder / "project"
        self.cwd.mkdir()
        self.settings = Settings(home=folder / "home", switches=Switches(**switches))
        self.storage: InMemoryStorage | None = InMemoryStorage()
        self.asked: list[dict[str, Any]] = []

    def talk(self, session: str, prompt: str, *replies: Any) -> list[Event]:
        """Ask once in a session; side questions are refused, so that the local twins do their work."""
        left = list(replies)

        def answer(request: dict[str, Any]) -> Any:
            if not left:
                return ModelRefused("no side questions today")
            self.asked.append(request)
            return left.pop(0)

        async def main() -> list[Event]:
            heard: list[Event] = []
            model = RetryingModel(ScriptedModel(answer, capabilities=Capabilities(True, window=200_000)))
            given: dict[str, Any] = {"storage": self.storage, "settings": self.settings, "session": session}
            agent = Agent(model=model, cwd=self.cwd, **given)
            agent.listen(heard.append)
            async with agent:
                async for _ in agent.ask(prompt):
                    pass
            return heard

        return anyio.run(main)

    @property
    def memory(self) -> Memory:
        """What is kept."""
        return Memory.open(self.cwd, settings=self.settings)


def decisions(events: list[Event], kind: type[Any]) -> list[Any]:
    """Return the decisions of a kind."""
    return [event.decision for event in events if isinstance(event, DecisionMade) and isinstance(event.decision, kind)]


@pytest.mark.requirement("M8", "M9")
def test_rules_stand_in_the_system_prompt_the_index_in_the_first_message_and_the_tool_saves(tmp_path: Path) -> None:
    home = Home(tmp_path, extraction=False, recall=False)
    save = {"action": "save", "type": "feedback", "text": "Use the real database in tests.", "why": "a mock hid a bug"}
    call = {"type": "tool_use", "name": "Memory", "input": save}
    home.talk("one", "Please remember: use the real database in tests, a mock hid a bug.", [call], "Kept.")
    (kept,) = home.memory.list()
    assert kept.type == "feedback"
    home.talk("two", "Hello again.", "Hello.")
    first, last = home.asked[0], home.asked[-1]
    assert "# Memory" in repr(first["system"])
    assert "Before recommending from memory" in repr(first["system"])
    assert first["system"] == last["system"]  # what is kept is not in the prefix
    assert "(no memories yet)" in repr(first["messages"][0])
    assert kept.file in repr(last["messages"][0])
    assert "persists across conversations" in repr(last["messages"][0])


@pytest.mark.requirement("R5", "R7")
def test_a_memory_is_found_again_in_a_later_session(tmp_path: Path) -> None:
    home = Home(tmp_path, extraction=False)
    home.memory.save(
        "The staging database is reset every Monday at 06:00 by the ops team.",
        type="project",
        why="tests that run across the reset fail",
        name="Staging database reset",
        description="The staging database is reset every Monday at 06:00 UTC",
    )
    events = home.talk("later", "Why did the staging database tests fail on Monday?", "Because of the reset.")
    (shown,) = decisions(events, MemoriesSurfaced)
    assert "reset every Monday" in shown.text
    assert "reset every Monday at 06:00 by the ops" in repr(home.asked[0]["messages"])


@pytest.mark.requirement("R2", "R4")
def test_the_users_settings_say_how_much_is_recalled(tmp_path: Path) -> None:
    home = Home(tmp_path, extraction=False)
    for number in range(4):
        home.memory.save(
            f"The staging database {number} is reset every Monday by the ops team. " * 20,
            type="project",
            why="tests that run across the reset fail",
            name=f"Staging database {number}",
            description=f"The staging database {number} is reset every Monday",
        )
    prompt = "Why did the staging database tests fail on Monday?"
    (shown,) = decisions(home.talk("all", prompt, "Hm."), MemoriesSurfaced)
    assert len(shown.names) == 4
    home.settings = replace(home.settings, recall=RecallPolicy(most=2, file_bytes=200))
    (shown,) = decisions(home.talk("few", prompt, "Hm."), MemoriesSurfaced)
    assert len(shown.names) == 2
    assert len(shown.text) < 2_000


@pytest.mark.requirement("M10", "S4")
def test_the_index_of_the_team_is_shown_too_and_lines_that_nobody_confirmed_are_marked(tmp_path: Path) -> None:
    home = Home(tmp_path, extraction=False, recall=False)
    home.settings = replace(home.settings, team_memory=tmp_path / "shared")
    home.memory.save("Tickets are in Linear under HARBOUR", type="reference", name="tickets")
    said: dict[str, Any] = {"type": "project", "why": "x", "author": "extraction", "trust": "unconfirmed"}
    waiting = home.memory.save("Deploys are done with the harbour script", name="deploys", **said)
    home.talk("one", "Hello.", "Hello.")
    first = home.asked[0]["messages"][0]["content"]
    text = first if isinstance(first, str) else "".join(block.get("text", "") for block in first)
    assert f"({waiting.file}) — Deploys are done with the harbour script (unconfirmed)" in text
    assert 'scope="team"' in text
    assert "(reference_tickets.md) — Tickets are in Linear under HARBOUR\n" in text
    assert "scope: team" in home.asked[0]["system"][0]["text"]


@pytest.mark.requirement("L5.1")
def test_a_wish_of_two_sessions_is_proposed_after_the_query_even_where_no_model_helps(tmp_path: Path) -> None:
    home = Home(tmp_path, recall=False)
    first = home.talk("one", "Never cut the release branch without Dana.", "I will.")
    assert not decisions(first, MemoriesExtracted)
    events = home.talk("two", "Please wait, the release branch must not be cut without Dana.", "I will.")
    assert decisions(events, MemoriesExtracted)
    [kept] = home.memory.list()
    assert [source.split()[0] for source in kept.source] == ["one", "two"]
    assert "“Please wait, the release branch must not be cut without Dana.”" in home.memory.get(kept.file).body
    assert any(isinstance(event, FellBack) for event in events)


@pytest.mark.requirement("F1")
def test_memory_switched_off_leaves_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path, memory=False, extraction=False, recall=False)
    home.talk("one", "Remember that the release branch is cut on Thursdays by Dana.", "I will not.")
    assert "# Memory" not in repr(home.asked[0]["system"])
    assert not list((tmp_path / "home").rglob("*.md"))
    assert "Memory" not in [tool["name"] for tool in home.asked[0]["tools"]]


@pytest.mark.requirement("R2", "B5")
def test_memories_are_recalled_without_a_session_and_without_a_model(tmp_path: Path) -> None:
    memory = Home(tmp_path).memory
    for thing, where in (("dashboard", "grafana.example/ships"), ("tickets", "tracker.example/harbour")):
        memory.save(
            f"The {thing} of the harbour project is at https://{where}",
            type="reference",
            name=f"Where the {thing} is",
            description=f"The {thing} of the harbour project is at {where}",
        )
    asked = "where are the tickets of the harbour project?"
    assert [one.name for one in memory.recall(asked, limit=1)] == ["Where the tickets is"]
    memory.forget("Where the tickets is")
    assert "Where the tickets is" not in [one.name for one in memory.recall(asked)]


@pytest.mark.requirement("R2")
def test_an_expired_memory_is_found_but_not_recalled(tmp_path: Path) -> None:
    memory = Home(tmp_path).memory
    old = memory.save("Deploy on Tuesdays, ops is there", type="project", expires="2020-01-01")
    asked = "do we deploy on Tuesdays when ops is there?"
    assert memory.recall(asked) == []
    assert [one.file for one in memory.recall(asked, everything=True)] == [old.file]
    memory.update(old.file, expires="9999-12-31")
    assert [one.file for one in memory.recall(asked)] == [old.file]


@pytest.mark.requirement("R8")
def test_a_session_is_in_the_search_index_when_its_agent_has_ended(tmp_path: Path) -> None:
    home = Home(tmp_path, extraction=False)
    home.talk("in-memory", "Where is the harbour?", "In the north.")
    assert not (home.settings.home / "search.sqlite").exists()
    home.storage = None
    home.talk("on-disk", "Where is the harbour?", "In the north.")
    with SessionSearch(home.settings.home) as search:
        assert [hit.session for hit in search.search("harbour", refresh=False, limit=1)] == ["on-disk"]
        assert search.refresh().bytes == 0


@pytest.mark.requirement("R2")
@pytest.mark.parametrize("prompt", ["fix the typo in the tickets", "thanks, go on", "is the project done?"])
def test_recall_is_silent_about_a_match_by_one_word_unless_everything_is_asked_for(tmp_path: Path, prompt: str) -> None:
    memory = Home(tmp_path).memory
    saved = memory.save("The tickets of the harbour project are in Linear; go there first", type="reference")
    assert memory.recall(prompt) == []
    assert [one.file for one in memory.recall(prompt, everything=True)] == [saved.file]
