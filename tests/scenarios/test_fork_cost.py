"""The cost of parallel forks on a server that bills like the provider; the full size is in ``benchmarks/forks.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, Settings
from reverie.cache.prices import prices_for
from reverie.cache.usage import Usage, usage_of
from reverie.conversation.wire.canonical import canonical
from reverie.models.anthropic import AnthropicModel
from reverie.runtime.session.forks import Forks
from reverie.settings import Switches
from reverie.testing.messages_server import ManualClock, MessagesServer

MODEL = "claude-sonnet-4-5"
TOOLS: list[dict[str, Any]] = [{"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}}]
PAGE = "The harbour master wrote down every ship that came in, the tide it came with, and what it carried. " * 80
FORKS = 8


def input_usd(used: Usage) -> float:
    """Return what the input of a call costs."""
    prices = prices_for(MODEL)
    assert prices is not None
    return prices.cost(used.read, used.write_5m, used.write_1h, used.uncached)


def answer(request: dict[str, Any]) -> Any:
    if "reverie-fork" in str(request["messages"][-1]["content"])[-400:]:
        return "Seven ships."
    return [{"type": "tool_use", "name": "Read", "input": {"page": len(request["messages"])}}]


def billed(tmp_path: Path, *, together: bool) -> tuple[float, list[dict[str, Any]]]:
    """Fork a cold session so many times; return the bill as a multiple of one write and one read, and what was sent."""

    async def steps() -> tuple[list[Usage], list[dict[str, Any]]]:
        clock = ManualClock(1.79e9)
        settings = Settings(tmp_path, switches=Switches(notes=False, compact=False, idle_trim=False, priced_trim=False))
        async with MessagesServer(answer, clock=clock) as server:
            model = AnthropicModel(MODEL, base_url=server.base_url, api_key="any")
            storage = InMemoryStorage()
            async with Session.open("s", storage=storage, settings=settings, clock=lambda: clock.now) as session:
                await session.say("Read the book.")
                for _ in range(6):
                    request = await session.prepare(model=MODEL, max_tokens=1_000, system="Careful.", tools=TOOLS)
                    for call in await session.observe((await model.complete(request)).body):
                        await session.result(call.id, PAGE)
                clock.advance(7_200)
                before = len(server.requests)
                questions = [f"How many on day {day}?" for day in range(FORKS)]
                if together:
                    replies = await session.fork(*questions, model=model, max_tokens=100)
                    assert [getattr(one, "text", one) for one in replies] == ["Seven ships."] * FORKS
                else:
                    for question in questions:  # the twin: each waits until the cache has forgotten the last
                        await Forks(session.parts.host, model).ask(question, source="fork", max_tokens=100)
                        clock.advance(7_200)
            await model.aclose()
            return [usage_of(used) for _, used in server.usages[before:]], server.requests[before:]

    usages, sent = anyio.run(steps)
    write = input_usd(usages[0])
    read = prices_for(MODEL).cost(read=usages[0].input)  # type: ignore[union-attr]
    return sum(map(input_usd, usages)) / (write + read), sent


@pytest.mark.requirement("L7.2")
def test_parallel_forks_of_a_cold_session_write_its_prefix_once_and_read_it_after(tmp_path: Path) -> None:
    ratio, sent = billed(tmp_path, together=True)
    blocks = [canonical(request) for request in sent]
    assert len({tuple(one[:-1]) for one in blocks}) == 1
    assert len({one[-1] for one in blocks}) == FORKS
    assert ratio <= 1.5


def test_forks_that_do_not_share_a_moment_pay_for_it_each(tmp_path: Path) -> None:
    ratio, _ = billed(tmp_path, together=False)
    assert ratio > 1.5
