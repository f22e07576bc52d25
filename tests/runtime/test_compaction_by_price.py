"""Compaction by price: decided from the log alone, by the preset, and never on thinking that a model checks."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Session
from reverie.cache.economics import CarryingMeter, SessionBill
from reverie.conversation.decisions import Compacted
from reverie.errors import InputError
from reverie.events import DecisionMade, Event
from reverie.layers.l4_compact import CompactPolicy
from reverie.replay.play import SimulatedProvider
from reverie.runtime.session.cache_plan import CachePlan
from reverie.settings import Preset, Settings, Switches
from reverie.storage.in_memory import InMemoryStorage

MODEL = "claude-sonnet-4-5"
TOOLS: list[dict[str, Any]] = [{"name": "Look", "description": "Look.", "input_schema": {"type": "object"}}]


class Desk:
    """An own loop with a simulated provider: each turn calls one tool and gets a result of some size."""

    def __init__(self, home: Path, *, preset: Preset = "balanced", model: str = MODEL, seed: int = 7) -> None:
        self.storage = InMemoryStorage()
        self.settings = Settings(
            home=home,
            preset=preset,
            window_tokens=1_000_000,
            switches=Switches(notes=False, offload=False),
            compact=CompactPolicy(tail_tokens=3_000, expected_tokens=3_000),
        )
        self.model = model
        self.random = random.Random(seed)
        self.provider = SimulatedProvider()
        self.now = 1_800_000_000.0
        self.turns = 0
        self.compactions: list[Compacted] = []
        self.compacted_at: list[int] = []
        self.long_writes: dict[int, int] = {}
        """The tokens that each request wrote with the long lifetime."""

    def note(self, event: Event) -> None:
        """Keep the compactions among the events of a session."""
        if isinstance(event, DecisionMade) and isinstance(event.decision, Compacted):
            self.compactions.append(event.decision)
            self.compacted_at.append(self.turns)

    def open(self) -> Session:
        """Return the session, to be entered."""
        return Session.open("desk", storage=self.storage, settings=self.settings, clock=lambda: self.now)

    async def turn(self, session: Session) -> None:
        """Send one request and log its reply and the result of the call in it."""
        self.turns += 1
        self.now += self.random.choice((5.0, 20.0, 60.0, 400.0))
        request = await session.prepare(model=self.model, max_tokens=4_000, system="S" * 20_000, tools=TOOLS)
        called = f"call-{self.turns}"
        content = [
            {"type": "text", "text": f"step {self.turns}"},
            {"type": "tool_use", "id": called, "name": "Look", "input": {"n": self.turns}},
        ]
        usage = self.provider.bill(request, self.now, output=60)
        self.long_writes[self.turns] = usage["cache_creation"]["ephemeral_1h_input_tokens"]
        await session.observe(
            {"id": f"msg-{self.turns}", "model": self.model, "role": "assistant", "content": content, "usage": usage}
        )
        size = self.random.choice((200, 2_000, 12_000))
        await session.result(called, f"result {self.turns}: " + "word " * (size // 5))


def play(desk: Desk, turns: int, *, each: Callable[[], int] | None = None) -> list[Compacted]:
    """Play a session of so many turns and return its compactions; with ``each``, open it anew after so many turns."""

    async def steps() -> None:
        async with desk.open() as session:
            await session.say("look at everything")
        while desk.turns < turns:
            async with desk.open() as session:
                session.listen(desk.note)
                for _ in range(min(each() if each is not None else turns, turns - desk.turns)):
                    await desk.turn(session)

    anyio.run(steps)
    return desk.compactions


@pytest.mark.requirement("L4.18", "U7")
def test_the_window_is_compacted_when_carrying_it_has_cost_enough(tmp_path: Path) -> None:
    made = play(Desk(tmp_path), 90)
    assert made
    assert all("carrying the window has cost" in one.cause.reason for one in made)
    assert all(one.tokens_before < 200_000 for one in made), "far below the threshold of a window of a million"
    assert play(Desk(tmp_path, preset="faithful"), 90) == []


@pytest.mark.requirement("L4.18")
def test_a_compaction_by_hand_begins_the_meter_anew_before_the_next_request(tmp_path: Path) -> None:
    """Otherwise the next request would compact again for a price that carried the removed messages."""
    desk = Desk(tmp_path)

    async def steps() -> None:
        async with desk.open() as session:
            await session.say("look at everything")
            for _ in range(24):
                await desk.turn(session)
            cuts, cache = session.view.cuts, session.parts.cache
            cache.meter = CarryingMeter(1e9, cache.meter.window)
            await session.compact()
            await session.say("go on: " + "word " * 12_000)
            await desk.turn(session)
            assert session.view.cuts == cuts + 1
            assert cache.meter.spent < 1e5

    anyio.run(steps)


@pytest.mark.requirement("L4.18", "K11")
def test_clearing_is_as_patient_after_a_resume_as_before(tmp_path: Path) -> None:
    """Clearing comes before compaction in a request, so it cannot wait for the first look at a compaction."""
    desk = Desk(tmp_path)
    found: list[tuple[float | None, float]] = []

    async def steps() -> None:
        for turns in (12, 0):
            async with desk.open() as session:
                await session.say("look at everything")
                for _ in range(turns):
                    await desk.turn(session)
                found.append((session.parts.cache.turns_left, session.parts.cache.patience))

    anyio.run(steps)
    assert found[0] == found[1]
    assert found[0][0] is not None
    assert found[0][1] > 1


@pytest.mark.requirement("C7", "C3")
@pytest.mark.parametrize("good", [True, False])
def test_the_rewrite_after_a_compaction_is_not_written_with_the_long_lifetime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: bool
) -> None:
    if not good:
        chosen = CachePlan.ttl
        monkeypatch.setattr(CachePlan, "ttl", lambda plan, *given, is_changed: chosen(plan, *given, is_changed=False))
    desk = Desk(tmp_path)
    play(desk, 90)
    assert any(desk.long_writes.values())
    assert any(desk.long_writes[turn] for turn in desk.compacted_at) is not good


@pytest.mark.requirement("L4.18")
def test_checked_thinking_is_not_lost_to_a_price(tmp_path: Path) -> None:
    # Without a model the provider cannot be asked for a summary, and ours would cost the thinking of kept turns.
    assert play(Desk(tmp_path, model="claude-opus-5-5"), 60) == []


def is_equal_after_resumes(home: Path, seed: int) -> bool:
    """Say whether a session that is opened anew again and again compacts before the same requests."""
    whole, parted, pick = Desk(home, seed=seed), Desk(home, seed=seed), random.Random(seed + 100)
    assert play(whole, 90)
    play(parted, 90, each=lambda: pick.randint(1, 6))
    return whole.compacted_at == parted.compacted_at


@pytest.mark.requirement("L4.18", "K11")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_resumed_session_compacts_before_the_same_request(tmp_path: Path, seed: int) -> None:
    assert is_equal_after_resumes(tmp_path, seed)


@pytest.mark.requirement("L4.18")
def test_a_meter_that_is_lost_on_resume_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resume = CachePlan.resume

    def forget(plan: CachePlan, messages: list[Any]) -> None:
        resume(plan, messages)
        plan.meter = CarryingMeter()

    monkeypatch.setattr(CachePlan, "resume", forget)
    assert not is_equal_after_resumes(tmp_path, 1)


@pytest.mark.requirement("U7")
def test_a_preset_is_set_for_the_session_and_kept_on_resume(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def steps() -> None:
        async with desk.open() as session:
            await session.set_preset("thrifty")
            with pytest.raises(InputError, match="faithful, balanced, thrifty"):
                await session.set_preset("generous")  # type: ignore[arg-type]
            assert session.parts.trim.policy.live
        async with desk.open() as session:
            assert session.settings.preset == "thrifty"
            assert session.parts.trim.policy.live

    anyio.run(steps)


@pytest.mark.requirement("C7", "L4.18")
@pytest.mark.parametrize("good", [True, False])
def test_tokens_that_an_undo_brings_back_are_no_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: bool
) -> None:
    if not good:
        after = SessionBill.after
        monkeypatch.setattr(SessionBill, "after", lambda bill, used, *, is_changed, **given: after(bill, used, **given))
    desk = Desk(tmp_path)
    removed: list[int] = []

    async def steps() -> None:
        async with desk.open() as session:
            await session.say("look at everything")
            for change in (session.compact, session.undo, None):
                for _ in range(9):
                    await desk.turn(session)
                removed.append(session.parts.cache.bill.removed)
                if change is not None:
                    await change()

    anyio.run(steps)
    assert removed[0] == 0
    assert removed[1] > 4_000, "the compaction frees tokens"
    assert (removed[2] == 0) is good
