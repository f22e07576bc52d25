"""A host that compacts its own history: recalled memories and the memory index stay in the request, each once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Memory, Session, load_settings
from reverie.conversation.decisions import MemoriesSurfaced
from reverie.events import DecisionMade, Event
from reverie.integrations.host_session import HostSession

RULE = "Integration tests use the real Postgres database, never mocks"
WHY = "a mock hid a migration"
PROMPT = "how do we run integration tests against the database?"


def said(text: str) -> dict[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": text}


class Host:
    """A program with its own history in front of a session."""

    def __init__(self, host: HostSession, told: list[Event]) -> None:
        self.host, self.told = host, told
        self.history: list[dict[str, Any]] = []

    async def ask(self, prompt: str) -> str:
        """Ask with the whole history, log a reply, and return the text of the request."""
        self.history.append(said(prompt))
        body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": self.history}
        request = await self.host.prepare(body)
        number = len(self.history)
        content = [{"type": "text", "text": f"Answer {number}."}]
        reply = {"id": f"r{number}", "role": "assistant", "content": content, "stop_reason": "end_turn", "usage": {}}
        await self.host.observe(reply)
        self.history.append({"role": "assistant", "content": content})
        return str(request["messages"])

    def recalled(self) -> list[str]:
        """Return the memories that recall showed."""
        made = [event.decision for event in self.told if isinstance(event, DecisionMade)]
        return [name for one in made if isinstance(one, MemoriesSurfaced) for name in one.names]


def hosted(memory: Memory, act: Callable[[Host], Awaitable[None]], storage: InMemoryStorage | None = None) -> None:
    """Open a session for a host and act in it."""

    async def main() -> None:
        async with Session.open("s", storage=storage or InMemoryStorage(), settings=load_settings()) as session:
            told: list[Event] = []
            session.listen(told.append)
            await act(Host(HostSession(session, memory), told))

    anyio.run(main)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    """Return memories with one rule."""
    kept = Memory(tmp_path / "memory")
    kept.save(RULE, type="feedback", why=WHY, name="Real database")
    return kept


@pytest.mark.requirement("W6", "W4")
def test_a_memory_stays_in_view_when_the_host_replaces_its_history_by_a_summary(memory: Memory) -> None:
    async def act(host: Host) -> None:
        assert (await host.ask(PROMPT)).count(WHY) == 1
        await host.ask("and then?")
        host.history = [said("Summary of the conversation so far: tests were discussed.")]
        after = await host.ask("go on")
        assert after.count(WHY) == 1
        assert after.count("[Real database](") == 1
        assert (await host.ask(PROMPT)).count(WHY) == 1

    hosted(memory, act)


@pytest.mark.requirement("W6", "W4")
def test_a_memory_is_said_again_when_the_host_empties_its_history(memory: Memory) -> None:
    async def act(host: Host) -> None:
        assert (await host.ask(PROMPT)).count(WHY) == 1
        await host.host.remove_all()
        host.history = []
        after = await host.ask("a compacted past; go on")
        assert after.count(WHY) == 1
        assert after.count("[Real database](") == 1

    hosted(memory, act)


@pytest.mark.requirement("Q2", "W5")
def test_a_memory_from_elsewhere_is_told_to_the_host_at_its_next_prompt_and_after_a_resume(memory: Memory) -> None:
    storage = InMemoryStorage()
    history: list[dict[str, Any]] = []

    async def first(host: Host) -> None:
        await host.ask("hello")
        memory.save("The launch is on 2026-04-01", type="project", why="a fair", name="Launch")
        assert (await host.ask("go on")).count("[Launch](") == 1
        history.extend(host.history)

    async def second(host: Host) -> None:
        host.history = list(history)
        assert (await host.ask("go on")).count("[Depot](") == 1

    hosted(memory, first, storage)
    memory.save("The depot opens at nine", type="project", why="asked", name="Depot")
    hosted(memory, second, storage)


@pytest.mark.requirement("W6")
def test_an_erased_memory_is_not_said_again_after_the_hosts_compaction(memory: Memory) -> None:
    async def act(host: Host) -> None:
        await host.ask(PROMPT)
        [file] = host.recalled()
        memory.forget(file, erase=True)
        await host.host.remove_all()
        host.history = []
        assert WHY not in await host.ask("a compacted past; go on")

    hosted(memory, act)
