"""A coding session on the test server, a Reverie session, and the bill of the whole run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from prefixes import extends
from reverie import InMemoryStorage, Session
from reverie.cache.prices import prices_for
from reverie.cache.usage import usage_of
from reverie.conversation.wire.canonical import canonical
from reverie.events import DecisionMade, Event, FellBack
from reverie.testing.messages_server import MessagesServer
from tool_script import ToolScript

NEEDED = {
    "test_langchain.py": "langchain_anthropic",
    "test_pydantic_ai.py": "pydantic_ai",
    "test_openai_agents.py": "agents",
}
collect_ignore = [file for file, package in NEEDED.items() if find_spec(package) is None]


class Scene:
    """One conversation with a scripted model: the script, the server, and what was heard of a session."""

    def __init__(self, script: ToolScript, server: MessagesServer) -> None:
        self.script = script
        self.server = server
        self.events: list[Event] = []
        self.sent_at: list[int] = []

    def open(self, name: str = "hosted", storage: Any = None) -> Session:
        """Return a session on the script's clock that tells us everything."""
        storage = storage or InMemoryStorage()
        session = Session.open(name, storage=storage, clock=lambda: self.script.clock.now)
        session.listen(self.events.append)
        return session

    @property
    def fallbacks(self) -> list[str]:
        return [f"{one.what}: {one.why}" for one in self.events if isinstance(one, FellBack)]

    @property
    def usd(self) -> float:
        """What the server charged."""
        return sum(prices_for(model).cost_of(usage_of(usage)) for model, usage in self.server.usages)

    def main_requests(self) -> list[dict[str, Any]]:
        return [request for request in self.server.requests if request.get("tools")]

    def breaks(self) -> int:
        """Return how many requests do not extend the one before."""
        found, last = 0, list[bytes]()
        for request in self.main_requests():
            now = canonical(request)
            found, last = found + (not extends(last, now)), now
        return found

    def moves(self) -> int:
        """Return how many decisions said that they move the prefix."""
        return sum(isinstance(one, DecisionMade) and one.decision.cause.moves_prefix for one in self.events)


@pytest.fixture
def scene() -> Iterator[Callable[..., Scene]]:
    """Start conversations with the scripted model; each has a server of its own."""
    started: list[MessagesServer] = []

    def start(replies: int, seed: int = 1, **options: Any) -> Scene:
        script = ToolScript(seed, replies)
        options.setdefault("window", 1_000_000)
        server = MessagesServer(script.reply, clock=script.clock, **options)
        server.__enter__()
        started.append(server)
        return Scene(script, server)

    yield start
    for server in started:
        server.__exit__(None, None, None)


class Work:
    """Counts the calls of our functions while it is entered."""

    def __enter__(self) -> Work:
        self.calls = 0
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: Any, event: str, _: Any) -> None:
        self.calls += event == "call" and f"{os.sep}integrations{os.sep}" in frame.f_code.co_filename


@pytest.fixture
def work() -> type[Work]:
    """Return what counts the calls of our functions."""
    return Work
