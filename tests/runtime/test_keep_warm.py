"""Keeping the cache warm: the last request is sent again in time, priced, logged, and never without being asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Session, StorageError
from reverie.cache.economics import CarryingMeter
from reverie.conversation.decisions import CallRecorded
from reverie.events import BackgroundChanged, DecisionMade, Event, QueryEnded
from reverie.layers.l4_compact import expected_compaction
from reverie.models import ScriptedModel
from reverie.replay.play import SimulatedProvider
from reverie.runtime.agent.agent import Agent
from reverie.runtime.agent.idle_cache import IdleCache
from reverie.runtime.session import session as session_module
from reverie.settings import Settings, Switches
from reverie.storage.in_memory import InMemoryStorage
from reverie.values import replace

MODEL = "claude-opus-5-5"


class Stage:
    """A session whose clock moves only when something waits, a provider that bills, and the pings it got."""

    def __init__(self, home: Path, *, keep_warm: bool = True, model: str = MODEL) -> None:
        self.storage = InMemoryStorage()
        self.model = model
        self.settings = Settings(home=home, keep_warm=keep_warm, switches=Switches(notes=False))
        self.now = 1_800_000_000.0
        self.provider = SimulatedProvider()
        self.calls: list[CallRecorded] = []

    def open(self) -> Session:
        """Return the session, to be entered."""
        session = Session.open("warm", storage=self.storage, settings=self.settings, clock=lambda: self.now)
        session.listen(self.note)
        return session

    def note(self, event: Event) -> None:
        """Keep the recorded calls."""
        if isinstance(event, DecisionMade) and isinstance(event.decision, CallRecorded):
            self.calls.append(event.decision)

    async def sleep(self, seconds: float) -> None:
        """Move the clock instead of waiting."""
        self.now += seconds
        await anyio.sleep(0)

    async def turn(self, session: Session, **options: Any) -> dict[str, Any]:
        """Send one request and log its reply; return the request."""
        await session.say("go on")
        request = await session.prepare(model=self.model, max_tokens=4_000, system="S" * 40_000, tools=[], **options)
        usage = self.provider.bill(request, self.now, output=20)
        reply = {"role": "assistant", "content": [{"type": "text", "text": "done"}]}
        await session.observe({"id": f"m{self.now}", "model": self.model, "usage": usage, **reply})
        return request

    def answer(self, request: Any) -> dict[str, Any]:
        """Return the provider's reply to a ping."""
        usage = self.provider.bill(request, self.now)
        return {"id": f"p{self.now}", "model": self.model, "role": "assistant", "content": [], "usage": usage}

    async def wait(
        self, session: Session, *, model: Any = None, may_spend: Callable[[], bool] = lambda: True
    ) -> list[dict[str, Any]]:
        """Let the session idle until it sends no more pings; return the requests that it sent."""
        sent: list[dict[str, Any]] = []

        def answered(request: Any) -> dict[str, Any]:
            sent.append(request)
            return self.answer(request)

        async with anyio.create_task_group() as tasks:
            IdleCache(session, tasks, sleep=self.sleep).start(
                model or ScriptedModel(answered, name=f"scripted:{self.model}"), may_spend
            )
        return sent


@pytest.mark.requirement("C9")
def test_pings_repeat_the_last_request_and_keep_its_cache_until_they_cost_a_third_of_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def steps() -> None:
        async with stage.open() as session:
            request = await stage.turn(session)
            sent = await stage.wait(session)
            assert len(sent) == 8
            assert all(one == {**request, "max_tokens": 0} for one in sent)
            pings = [one for one in stage.calls if one.source == "keep_warm"]
            assert len(pings) == 8
            assert all(one.usage["cache_read_input_tokens"] and not one.usage["input_tokens"] for one in pings)
            assert all(one.cost_usd for one in pings)
            stage.now += 2.0  # 44 minutes after the last prompt, the next request still reads its cache
            await stage.turn(session)
            assert stage.provider.last.read > 9_000
            assert stage.calls[-1].cause.reason == "reply", "no cache break is reported"

    anyio.run(steps)


class Desk:
    """An agent that pings at once, and a model that answers with a script, notes the pings and calls ``on_ping``."""

    def __init__(
        self,
        home: Path,
        replies: list[str | list[dict[str, Any]] | Callable[[], Awaitable[Any]]],
        on_ping: Callable[[int], None],
        **options: Any,
    ) -> None:
        self.replies, self.on_ping, self.pings = iter(replies), on_ping, 0
        self.events: list[Event] = []
        self.shown: set[str] = set()
        self.settings = Settings(
            home=home / "home", keep_warm=True, switches=Switches(notes=False, extraction=False, recall=False)
        )
        self.agent = Agent(
            model=ScriptedModel(self.answer, name=f"scripted:{MODEL}"), cwd=home, mode="bypass",
            storage=InMemoryStorage(), settings=self.settings, **options,
        )  # fmt: skip
        self.agent.listen(self.events.append)

    async def answer(self, request: dict[str, Any]) -> Any:
        """Act as the model."""
        if request["max_tokens"]:
            reply = next(self.replies)
            return await reply() if callable(reply) else reply
        self.pings += 1
        self.shown.update(self.agent.status().background)
        self.on_ping(self.pings)
        return ""

    def ends(self) -> list[str]:
        """Return how the queries so far ended."""
        return [one.end for one in self.events if isinstance(one, QueryEnded)]


@pytest.mark.requirement("C9")
def test_the_cache_is_kept_while_a_tool_runs_and_the_footer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "PING_SECONDS", 0.01)
    wait = {"type": "tool_use", "name": "Bash", "input": {"command": "until [ -e done ]; do sleep 0.05; done"}}
    desk = Desk(tmp_path, [[wait], "Done."], lambda pings: (tmp_path / "done").touch() if pings == 2 else None)

    async def steps() -> None:
        async with desk.agent as agent:
            assert [event async for event in agent.ask("wait for it")]

    anyio.run(steps)
    assert desk.ends() == ["completed"]
    made = [one.decision for one in desk.events if isinstance(one, DecisionMade)]
    sources = [one.source for one in made if isinstance(one, CallRecorded)]
    assert sources[:3] == ["main", "keep_warm", "keep_warm"]
    assert sources.count("main") == 2
    assert desk.shown == {"keep_warm"}
    states = [one.state for one in desk.events if isinstance(one, BackgroundChanged)]
    assert states[:2] == ["started", "completed"]


@pytest.mark.requirement("C9")
@pytest.mark.parametrize("during", ["a reply", "a tool"])
def test_the_cache_is_kept_after_the_user_stopped_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    monkeypatch.setattr(session_module, "PING_SECONDS", 0.01)
    pinged = anyio.Event()

    async def stopped() -> Any:
        desk.agent.interrupt()
        await anyio.sleep_forever()

    def on_ping(_: int) -> None:
        if desk.ends():
            pinged.set()
        else:
            desk.agent.interrupt()

    endless = {"type": "tool_use", "name": "Bash", "input": {"command": "sleep 100"}}
    desk = Desk(tmp_path, [stopped if during == "a reply" else [endless]], on_ping)

    async def steps() -> None:
        async with desk.agent as agent:
            assert [event async for event in agent.ask("go")]
            assert desk.ends() == ["aborted"]
            with anyio.fail_after(60):
                await pinged.wait()

    anyio.run(steps)


@pytest.mark.requirement("C9")
def test_a_ping_that_cannot_be_logged_ends_the_pings_and_not_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)

    async def full(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is full", path="x")

    async def steps() -> None:
        async with stage.open() as session:
            await stage.turn(session)
            with monkeypatch.context() as patched:
                patched.setattr(session.log, "decide", full)
                assert len(await stage.wait(session)) == 1
            await stage.turn(session)

    anyio.run(steps)


@pytest.mark.requirement("C9", "L4.18")
@pytest.mark.parametrize("counts", [True, False])
def test_pings_count_as_carrying_and_a_compaction_that_becomes_due_while_idle_is_made_instead(
    tmp_path: Path, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With pings left out of the meter, as a known-bad twin does, the idle session is pinged to the end."""
    if not counts:
        monkeypatch.setattr(CarryingMeter, "kept_warm", lambda meter, *_, **__: meter)
    stage = Stage(tmp_path, model="claude-sonnet-4-5")
    cuts: list[int] = []

    async def steps() -> None:
        async with stage.open() as session:
            for number in range(32):
                stage.now += 5.0
                await session.say(f"{number} " + "word " * 2_000)
                await stage.turn(session)
            cache = session.parts.cache
            assert await session.when_idle(99) == "let go"
            option = expected_compaction(
                session.view,
                session.settings.compact,
                session.thresholds.effective,
                live=cache.live_tokens(session.view, stage.now),
                calls=1,
                rates=cache.rates,
            )
            almost = 3.0 * cache.compaction_due(session.view, option, 3.0).cost - 1_500.0
            cache.meter = CarryingMeter(almost, cache.meter.window)
            assert cache.max_pings() == 0, "an entry of an hour keeps the prompt"
            cache.bill = replace(cache.bill, kept=0, plain=2 * cache.bill.plain)  # savings that cover its risk
            sent = await stage.wait(session)
            cuts.extend((len(sent), session.view.cuts))

    anyio.run(steps)
    assert cuts == ([1, 1] if counts else [3, 0])


@pytest.mark.requirement("C9")
def test_nothing_is_sent_unless_asked_for_or_where_the_provider_would_refuse_it(tmp_path: Path) -> None:
    async def pings(stage: Stage, **options: Any) -> int:
        async with stage.open() as session:
            await stage.turn(session, **options)
            return len(await stage.wait(session))

    assert anyio.run(pings, Stage(tmp_path, keep_warm=False)) == 0
    forced = Stage(tmp_path)

    async def with_format() -> int:
        return await pings(forced, output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}})

    assert anyio.run(with_format) == 0


@pytest.mark.requirement("C9")
def test_pings_end_with_the_budget(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def steps() -> None:
        async with stage.open() as session:
            await stage.turn(session)
            left = iter((True, True, False))
            assert len(await stage.wait(session, may_spend=lambda: next(left))) == 2

    anyio.run(steps)


@pytest.mark.requirement("C9")
def test_a_ping_that_would_come_too_late_is_not_sent(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def oversleep(seconds: float) -> None:
        stage.now += seconds + 60.0  # the machine slept

    stage.sleep = oversleep  # type: ignore[method-assign]

    async def steps() -> None:
        async with stage.open() as session:
            await stage.turn(session)
            assert await stage.wait(session) == []

    anyio.run(steps)


@pytest.mark.requirement("C9")
def test_a_resumed_session_knows_that_its_cache_was_kept(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def steps() -> None:
        async with stage.open() as session:
            await stage.turn(session)
            await stage.wait(session)
        async with stage.open() as session:
            assert session.parts.cache.life(stage.now + 2) == "live"
            assert session.warming_request() is None, "another process sent that request"

    anyio.run(steps)
