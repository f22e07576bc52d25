"""Recorded sessions played through a live one: the log that it wrote, and every request that ``prepare`` made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio

from reverie import FileStorage, Session, load_settings
from reverie.conversation.entries import Entry
from reverie.conversation.log import parse_log
from reverie.importers.import_result import ImportedSession
from reverie.replay.play import PlayedClock, SimulatedProvider, play_session
from reverie.storage.in_memory import InMemoryStorage

MODEL = "claude-sonnet-4-5"
TOOLS: list[dict[str, Any]] = [{"name": "Bash", "input_schema": {"type": "object"}}]


class ForgetfulProvider(SimulatedProvider):
    """A provider that loses its whole cache at every ``every``-th request."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every, self._count = every, 0

    def bill(self, request: Any, now: float, *, output: int = 0) -> dict[str, Any]:
        self._count += 1
        if self._count % self._every == 0:
            self._cache = SimulatedProvider()._cache
        return super().bill(request, now, output=output)


def played(
    entries: Sequence[Entry],
    *,
    system: str | None = None,
    tools: list[dict[str, Any]] | None = None,
    stored: bool = False,
    provider: SimulatedProvider | None = None,
) -> tuple[ImportedSession, list[str]]:
    """Return the session that playing these entries wrote, and its requests as JSON; ``stored`` writes to the home."""
    sent: list[str] = []
    log = b""

    async def play() -> None:
        nonlocal log
        clock, storage = PlayedClock(), None if stored else InMemoryStorage()
        async with Session.open("played", storage=storage, settings=load_settings(), clock=clock) as session:
            turns = play_session(
                entries,
                session,
                clock,
                model=MODEL,
                system=system or "You are careful. " * 400,
                tools=tools or TOOLS,
                provider=provider,
                check=lambda request: sent.append(json.dumps(request)),
            )
            async for _ in turns:
                pass
        held = storage or FileStorage(load_settings().home)
        log = held.load(next(key for key in held.list() if key.endswith("/played.jsonl"))) or b""

    anyio.run(play)
    return ImportedSession("reverie", "played", "A played session", "", MODEL, tuple(parse_log(log).entries)), sent
