"""A project with memories, and agents that talk in one session of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from reverie import InMemoryStorage, Memory, Settings
from reverie.conversation.decisions import MemoriesSurfaced
from reverie.errors import ModelRefused
from reverie.events import DecisionMade, Event, FellBack
from reverie.memories.recall.policy import RecallPolicy
from reverie.models import RetryingModel, ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.settings import Switches


class Home:
    """A project with memories, and agents that talk in one session of it."""

    def __init__(self, folder: Path, *, window: int = 200_000, recall: RecallPolicy | None = None) -> None:
        self.cwd = folder / "project"
        self.cwd.mkdir()
        switches = Switches(extraction=False, notes=False, dream=False)
        self.settings = Settings(home=folder / "home", switches=switches, recall=recall or RecallPolicy())
        self.storage = InMemoryStorage()
        self.window = window
        self.told: list[Event] = []
        self.requests: list[dict[str, Any]] = []

    @property
    def memory(self) -> Memory:
        return Memory.open(self.cwd, settings=self.settings)

    def run(self, act: Callable[[Talk], Awaitable[None]]) -> None:
        """Open the session and act in it; side questions of layers are refused, so that the local ones work."""

        async def main() -> None:
            with anyio.fail_after(120):
                async with self.opened() as talk:
                    await act(talk)

        anyio.run(main)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Talk]:
        replies: list[Any] = []

        def answer(request: dict[str, Any]) -> Any:
            if "tools" not in request or not request["tools"]:
                return ModelRefused("no side questions today")
            self.requests.append(request)
            return replies.pop(0) if replies else "Fine."

        model = RetryingModel(ScriptedModel(answer, capabilities=Capabilities(caching=True, window=self.window)))
        agent = Agent(model=model, cwd=self.cwd, session="s", settings=self.settings, storage=self.storage)
        agent.listen(self.told.append)
        async with agent:
            yield Talk(self, agent, replies)

    def recalled(self) -> list[str]:
        made = [event.decision for event in self.told if isinstance(event, DecisionMade)]
        return [name for one in made if isinstance(one, MemoriesSurfaced) for name in one.names]

    def fallbacks(self) -> list[str]:
        return [event.why for event in self.told if isinstance(event, FellBack) and event.what == "recall"]


class Talk:
    """One open agent of the session."""

    def __init__(self, home: Home, agent: Agent, replies: list[Any]) -> None:
        self.home, self.agent, self.session, self.replies = home, agent, agent.session, replies

    async def ask(self, prompt: str, *replies: Any) -> str:
        """Ask, and return the text of the last request's messages."""
        self.replies[:] = replies
        async for _ in self.agent.ask(prompt):
            pass
        return text_of(self.home.requests[-1])

    async def cut(self) -> None:
        """Compact everything that can be compacted."""
        for number in range(3):
            await self.ask(f"carry on with step {number} of the unrelated work", "Nothing to see here. " * 1_500)
        await self.session.compact()


def text_of(request: dict[str, Any]) -> str:
    """Return all text of a request's messages."""
    out: list[str] = []
    for message in request["messages"]:
        content = message["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        out += [str(block.get("text") or block.get("content") or "") for block in blocks]
    return "\n".join(out)
