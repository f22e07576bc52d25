"""A short session with listeners."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from reverie import InMemoryStorage, Session, Settings
from reverie.conversation.decisions import Cause, Replacement, ResultsCleared
from reverie.events import Event, Listener

REPLY = {
    "id": "msg_1",
    "role": "assistant",
    "model": "claude-sonnet-4-5-20250929",
    "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}],
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 400,
        "cache_read_input_tokens": 2_000,
        "output_tokens": 7,
    },
}


@pytest.fixture
def watched_life(tmp_path: Path) -> Callable[..., list[Event]]:
    """Return a function that runs a session with these listeners and returns the events it told."""

    def live(*listeners: Listener) -> list[Event]:
        heard: list[Event] = []

        async def act() -> None:
            settings = Settings(home=tmp_path)
            session = Session.open("watched", cwd=tmp_path, storage=InMemoryStorage(), settings=settings)
            for listener in (heard.append, *listeners):
                session.listen(listener)
            async with session:
                await session.say("A secret: hunter2")
                await session.prepare(model="claude-sonnet-4-5", max_tokens=100)
                await session.observe(REPLY)
                await session.result("t1", "file content")
                cause = Cause("trim", "cache is cold", frees=120, moves_prefix=True)
                await session.log.decide(ResultsCleared(cause, [Replacement("t1", "[cleared]")]))
                await session.prepare(model="claude-sonnet-4-5", max_tokens=100)

        anyio.run(act)
        return heard

    return live
