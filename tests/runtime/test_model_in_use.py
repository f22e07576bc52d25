"""The model in use: its window and where that comes from, its prices, and a change to another model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Agent, InMemoryStorage, Session, Settings
from reverie.errors import ModelRefused, ModelUnavailable
from reverie.events import Event, FellBack, ModelChanged, QueryEnded
from reverie.layers.l4_compact import CompactPolicy
from reverie.models import RetryingModel, RetryPolicy, ScriptedModel
from reverie.models.anthropic import AnthropicModel
from reverie.ports import Capabilities
from reverie.runtime.agent import parts as agent_parts
from reverie.settings import Switches
from reverie.testing.messages_server import MessagesServer
from reverie.values import replace

ALONE = Switches(extraction=False, recall=False)
OVERLOADED = ModelUnavailable("overloaded", status=529)


def settings_of(tmp_path: Path, **given: Any) -> Settings:
    return Settings(home=tmp_path / "home", switches=ALONE, **given)


def thought(text: str, model: str, tokens: int = 40_000) -> dict[str, Any]:
    """Return a reply with thinking."""
    return {
        "id": f"msg_{text}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [
            {"type": "thinking", "thinking": f"about {text}", "signature": f"signed {text}"},
            {"type": "text", "text": text},
        ],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": tokens, "output_tokens": 10},
    }


def plain(request: dict[str, Any]) -> list[Any]:
    """Return the messages of a request without cache marks."""

    def bare(message: Any) -> Any:
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        return {**message, "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in content]}

    return [bare(message) for message in request["messages"]]


@pytest.mark.requirement("V15")
@pytest.mark.parametrize(
    ("model", "read", "least", "window"),
    [
        ("claude-haiku-4-5", 0.1, 4_096, 200_000),
        ("claude-opus-5-5", 0.05, 512, 1_000_000),
        ("claude-fable-5-1", 0.025, 512, 1_000_000),
        ("claude-fable-5-2", 0.025, 512, 1_000_000),
    ],
)
def test_decisions_know_prices_and_window_of_the_model_before_its_first_reply(
    tmp_path: Path, model: str, read: float, least: int, window: int
) -> None:
    async def main() -> None:
        async with Session.open("s", storage=InMemoryStorage(), settings=settings_of(tmp_path)) as session:
            await session.say("hello")
            await session.prepare(model=model, max_tokens=100)
            cache = session.parts.cache
            assert (cache.rates.read, cache.least_cached) == (pytest.approx(read), least)
            assert session.thresholds.window == window

    anyio.run(main)


@pytest.mark.requirement("V15")
def test_an_alias_of_a_gateway_gets_the_prices_of_the_model_that_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with Session.open("s", storage=InMemoryStorage(), settings=settings_of(tmp_path)) as session:
            await session.say("hello")
            await session.prepare(model="our-best", max_tokens=100)
            assert session.parts.cache.rates.read == pytest.approx(0.1)
            await session.observe(thought("one", "claude-opus-5-5"))
            assert session.parts.cache.rates.read == pytest.approx(0.05)

    anyio.run(main)


@pytest.mark.requirement("T5")
def test_settings_refusals_the_provider_and_corrections_decide_the_window(tmp_path: Path) -> None:
    async def window(model: str, *, learned: int = 0, reported: int | None = None, **given: Any) -> int:
        name = f"scripted:{model}"
        asked = ScriptedModel([], name=name, capabilities=Capabilities(window=reported)) if reported else None
        settings = settings_of(tmp_path, **given)
        async with Session.open("s", storage=InMemoryStorage(), settings=settings, model=asked) as session:
            if learned:
                session.parts.policy.learn_window(model, learned)
            await session.say("hello")
            await session.prepare(model=model, max_tokens=100)
            return session.thresholds.window

    async def main() -> None:
        corrected = {"claude-*": {"window_tokens": 300_000}}
        assert await window("claude-opus-5-5") == 1_000_000
        assert await window("claude-opus-5-5", models=corrected) == 300_000
        assert await window("claude-opus-5-5", models=corrected, reported=400_000) == 400_000
        assert await window("claude-opus-5-5", models=corrected, reported=400_000, learned=150_000) == 150_000
        assert await window("claude-opus-5-5", learned=150_000, window_tokens=90_000) == 90_000
        assert await window("claude-opus-5-5", window_tokens=2_000_000) == 1_000_000
        assert await window("nobody-knows-it") == 200_000
        assert await window("nobody-knows-it", reported=16_000) == 16_000

    anyio.run(main)


@pytest.mark.slow
@pytest.mark.requirement("T5")
def test_the_provider_is_asked_once_for_the_limits_of_a_model_while_the_first_query_runs(tmp_path: Path) -> None:
    async def main() -> None:
        with MessagesServer(lambda request: "hello", window=150_000) as server:
            model = AnthropicModel("claude-opus-5-5", base_url=server.base_url, api_key="k")
            agent = Agent(model=model, cwd=tmp_path, storage=InMemoryStorage(), settings=settings_of(tmp_path))
            async with agent:
                assert agent.status().window == 1_000_000
                async for event in agent.ask("hello"):
                    with anyio.fail_after(60):
                        while agent.status().window != 150_000 and not isinstance(event, QueryEnded):
                            await anyio.sleep(0.01)
                assert agent.session.thresholds.window == 150_000
                await agent.parts.ask_limits()
                assert len(agent.parts.asked_models) == 1

    anyio.run(main)


@pytest.mark.requirement("V16")
def test_a_change_of_model_strips_nothing_and_says_what_it_reads_and_costs(tmp_path: Path) -> None:
    async def main() -> None:
        seen: list[Event] = []
        session = Session.open("s", storage=InMemoryStorage(), settings=settings_of(tmp_path))
        session.listen(seen.append)
        async with session:
            await session.say("one")
            await session.prepare(model="claude-opus-4-8", max_tokens=100)
            await session.observe(thought("one", "claude-opus-4-8"))
            await session.say("two")
            await session.prepare(model="claude-fable-5", max_tokens=100)
            await session.observe(thought("two", "claude-fable-5", 50_000))
            await session.say("three")
            there = await session.prepare(model="claude-haiku-4-5", max_tokens=100)
            back = await session.prepare(model="claude-opus-4-8", max_tokens=100)
            assert plain(there) == plain(back)
            kinds = [block["type"] for message in plain(there) for block in message["content"]]
            assert kinds.count("thinking") == 2
        changes = [event for event in seen if isinstance(event, ModelChanged)]
        assert [(one.before, one.after) for one in changes] == [
            ("claude-opus-4-8", "claude-fable-5"),
            ("claude-fable-5", "claude-haiku-4-5"),
            ("claude-haiku-4-5", "claude-opus-4-8"),
        ]
        assert [(one.readable, one.thinking) for one in changes] == [(1, 1), (1, 2), (1, 2)]
        cold = changes[1]
        assert cold.tokens >= 50_000
        assert cold.cost_usd == pytest.approx(cold.tokens * 1.25 * 1.0 / 1e6)  # $1 for a million tokens of input
        assert "reads the thinking of 1 of 2 replies" in cold.line
        assert f"{cold.tokens:,} tokens" in cold.line
        assert "\n" not in cold.line

    anyio.run(main)


@pytest.mark.requirement("V16")
def test_models_that_check_thinking_keep_it_over_a_change_and_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with Session.open("s", storage=InMemoryStorage(), settings=settings_of(tmp_path)) as session:
            sent: list[list[Any]] = []
            for number, model in enumerate(("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-4-5") * 2):
                await session.say(f"Step {number}.")
                sent.append(plain(await session.prepare(model=model, max_tokens=100, system="Be brief.")))
                await session.observe(thought(f"done {number}", model))
            for earlier, later in pairwise(sent):
                assert later[: len(earlier)] == earlier
            assert str(sent[-1]).count("'thinking': 'about") == 5

    anyio.run(main)


@pytest.mark.requirement("V16")
def test_a_resumed_session_tells_the_change_and_one_without_a_change_is_silent(tmp_path: Path) -> None:
    storage = InMemoryStorage()

    async def ask(model: str) -> list[Event]:
        seen: list[Event] = []
        session = Session.open("s", storage=storage, settings=settings_of(tmp_path))
        session.listen(seen.append)
        async with session:
            await session.say("go on")
            await session.prepare(model=model, max_tokens=100)
            await session.observe(thought("fine", model))
        return [event for event in seen if isinstance(event, ModelChanged)]

    async def main() -> None:
        assert await ask("claude-opus-5") == []
        assert await ask("claude-opus-5") == []
        assert [one.after for one in await ask("claude-sonnet-5")] == ["claude-sonnet-5"]

    anyio.run(main)


def answered(first: Any, spare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Event], Any, Any]:
    """Ask an agent with a fallback model twice; return the events and both models."""
    main_model, other = ScriptedModel(first, name="scripted:first"), ScriptedModel(spare, name="scripted:spare")
    open_model: Callable[..., Any] = lambda name, **given: other  # noqa: E731
    monkeypatch.setattr(agent_parts, "open_model", open_model)

    async def no_wait(seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def main() -> list[Event]:
        asked = RetryingModel(main_model, policy=RetryPolicy(attempts=2), sleep=no_wait, is_replaceable=True)
        settings = settings_of(tmp_path, fallback_model="spare")
        async with Agent(model=asked, cwd=tmp_path, storage=InMemoryStorage(), settings=settings) as agent:
            return [event for prompt in ("one", "two") async for event in agent.ask(prompt)]

    return anyio.run(main), main_model, other


@pytest.mark.requirement("V16")
def test_an_overloaded_model_is_replaced_for_the_query_through_the_builder_and_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = [OVERLOADED, OVERLOADED, "I am back."]
    events, first, spare = answered(replies, ["The spare answers."], tmp_path, monkeypatch)
    told = [event.why for event in events if isinstance(event, FellBack) and event.what == "model"]
    assert told == ["scripted:first is unavailable (overloaded); scripted:spare is asked"]
    assert [event.end for event in events if isinstance(event, QueryEnded)] == ["completed", "completed"]
    assert [request["model"] for request in spare.requests] == ["spare"]
    assert len(first.requests) == 3


@pytest.mark.requirement("V16")
def test_an_outage_is_waited_for_once_and_a_spare_that_refuses_ends_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, first, _ = answered([OVERLOADED] * 3, ["one", "two"], tmp_path, monkeypatch)
    assert len(first.requests) == 3  # two tries, then one for the second query
    assert [event.end for event in events if isinstance(event, QueryEnded)] == ["completed", "completed"]
    events, *_ = answered([OVERLOADED] * 3, [ModelRefused("no such model")] * 2, tmp_path, monkeypatch)
    assert [event.end for event in events if isinstance(event, QueryEnded)] == ["model_error", "model_error"]


@pytest.mark.requirement("V16")
def test_a_refused_answer_goes_to_the_fallback_and_stays_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = {"content": [], "stop_reason": "refusal"}
    events, first, spare = answered([refusal], ["one", "two"], tmp_path, monkeypatch)
    told = [event.why for event in events if isinstance(event, FellBack) and event.what == "model"]
    assert told == ["scripted:first declined; scripted:spare is asked"]
    assert (len(first.requests), len(spare.requests)) == (1, 2)


@pytest.mark.requirement("V15", "C7")
@pytest.mark.parametrize(
    ("model", "step", "compacts"),
    [
        ("claude-haiku-5-5", 100_000, True),  # a model that checks thinking: the provider is asked for a summary
        ("claude-opus-5-5", 100_000, False),
        ("claude-sonnet-4-5[1m]", 200_000, True),  # another one: a cold session is compacted from its notes
        ("claude-sonnet-4-6", 200_000, False),
    ],
)
def test_a_session_above_a_price_step_is_compacted_long_before_its_window_is_full(
    tmp_path: Path, model: str, step: int, compacts: bool
) -> None:
    now = [1_790_000_000.0]

    async def main() -> list[bool]:
        settings = replace(settings_of(tmp_path), compact=CompactPolicy(patience=1e9))  # only for a step of the price
        async with Session.open("s", storage=InMemoryStorage(), settings=settings, clock=lambda: now[0]) as session:
            asked: list[bool] = []
            for turn in range(1, 31):
                await session.say(f"Step {turn} of the plan: {'look at the parser again. ' * 600}")
                await session.prepare(model=model, max_tokens=100)
                reply = thought(f"done {turn}", model, step // 25 * turn)
                await session.observe({**reply, "content": reply["content"][1:]})
                asked.append(await session.background_request() is not None)
                now[0] += 10
            assert not any(asked[:23])  # never before the last request below the step
            now[0] += 7_200
            await session.say("Go on.")
            await session.prepare(model=model, max_tokens=100)
            assert session.thresholds.window == 1_000_000
            return [any(asked), bool(session.view.facts.compactions)]

    assert any(anyio.run(main)) is compacts
