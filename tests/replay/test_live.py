"""A compaction by price that a live session makes equals the one of a replay of the same log (L4.18)."""

from __future__ import annotations

import random
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Session
from reverie.cache.economics import CarryingMeter
from reverie.conversation.entries import ASSISTANT, USER, Entry, iso
from reverie.importers.import_result import ImportedSession
from reverie.layers.l4_compact import CompactionText, CompactPolicy
from reverie.replay import compactions as compactions_module
from reverie.replay.compare import compare
from reverie.replay.play import PlayedClock, SimulatedProvider, play_session
from reverie.replay.recording import Recording, recording_of
from reverie.runtime.session import log as log_module
from reverie.runtime.session import writer as writer_module
from reverie.runtime.session.cache_plan import CachePlan
from reverie.runtime.session.compact import draft as draft_module
from reverie.runtime.session.compact.summary import notes_summary
from reverie.settings import Settings, Switches
from reverie.storage.in_memory import InMemoryStorage
from reverie.values import record, replace

pytestmark = pytest.mark.slow

MODEL, SYSTEM = "claude-sonnet-4-5", "S" * 20_000
TOOLS: list[dict[str, Any]] = [{"name": "Look", "description": "Look.", "input_schema": {"type": "object"}}]


def uuid_of(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{number:012x}"


@pytest.fixture(autouse=True)
def counted_uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Number the entries of live sessions, so that handles in summaries have the same size in each run."""
    numbers = count()
    for module in (log_module, writer_module, draft_module):
        monkeypatch.setattr(module, "new_uuid", lambda: uuid_of(next(numbers)))


def log(seed: int, turns: int = 80, *, said: tuple[int, ...] = (1,), calls: float = 1.0) -> list[Entry]:
    """Return the log of a session that calls a tool in this share of its turns, and listens to its user in the others.

    Pauses, replies and results have random sizes.
    """
    rng, at = random.Random(seed), 1_800_000_000.0
    entries: list[Entry] = []

    def add(kind: str, content: list[dict[str, Any]], **more: Any) -> None:
        last = entries[-1].uuid if entries else None
        body = {"message": {"role": kind, "content": content}, **more}
        entries.append(Entry(uuid_of(len(entries)), last, iso(at), "log", kind, body))

    add(USER, [{"type": "text", "text": "look at everything"}])
    for turn in range(turns):
        called = {"type": "tool_use", "id": f"c{turn}", "name": "Look", "input": {"n": turn}}
        reply = {"id": f"m{turn}", "model": MODEL}
        is_call = rng.random() < calls
        text = {"type": "text", "text": f"step {turn}" + " so" * rng.choice(said)}
        add(ASSISTANT, [text, called] if is_call else [text], reply=reply)
        at += rng.choice((5.0, 20.0, 60.0, 400.0, 4_000.0))
        words = f"result {turn}: " + "word " * rng.choice((40, 400, 2_400))
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": words}
        add(USER, [result if is_call else {"type": "text", "text": words}])
    return entries


def settings(home: Path, *, keep_warm: bool = False) -> Settings:
    return Settings(
        home=home,
        keep_warm=keep_warm,
        window_tokens=1_000_000,
        switches=Switches(notes=False, offload=False),
        compact=CompactPolicy(tail_tokens=3_000, expected_tokens=3_000),
    )


@record
class Decided:
    """The requests before which a session compacted, and the number of its pings."""

    compactions: list[int]
    pings: int = 0


def recorded(entries: list[Entry]) -> Recording:
    """Return a log as a recording, with the size of the prefix that the live session sends."""
    given = ImportedSession("log", "log", "", "", MODEL, tuple(entries), system=SYSTEM, tools=TOOLS)
    provider, marked = SimulatedProvider(), [{**TOOLS[0], "cache_control": {"type": "ephemeral"}}]
    provider.bill({"model": MODEL, "system": SYSTEM, "tools": marked, "messages": []}, 0.0)
    return replace(recording_of(given, "log"), prefix=(provider.last.input,))


def replayed(entries: list[Entry], using: Settings) -> Decided:
    """Return the decisions of a replay of the log."""
    [outcome] = compare([recorded(entries)], policies=("reverie",), settings=using, check=False).outcomes
    return Decided([act.number for act in outcome.acts if act.layer == "compact"], outcome.pings)


def lived(entries: list[Entry], using: Settings, pick: random.Random | None = None) -> Decided:
    """Return the decisions of a live session; with ``pick`` it is opened anew again and again."""
    storage, provider, clock, found, pings = InMemoryStorage(), SimulatedProvider(), PlayedClock(), list[int](), 0
    nexts = [*(step.at for step in recorded(entries).steps[1:]), inf]

    async def idle(session: Session, until: float) -> int:
        for pings in count():
            if clock.now + session.seconds_to_ping() >= until:
                return pings
            clock.now += session.seconds_to_ping()
            request = session.warming_request()
            if request is None or await session.when_idle(pings) != "ping":
                return pings
            usage = provider.bill(request, clock.now)
            reply = {"id": f"ping-{clock.now}", "model": MODEL, "role": "assistant", "content": []}
            await session.record_ping({**reply, "usage": usage})
        raise AssertionError

    async def steps() -> None:
        nonlocal pings
        left, number, cuts = entries, 0, 0
        while left:
            size = 2 * pick.randint(1, 9) if pick is not None else len(left)
            now, left = left[:size], left[size:]
            async with Session.open("live", storage=storage, settings=using, clock=clock) as session:
                played = play_session(now, session, clock, model=MODEL, system=SYSTEM, tools=TOOLS, provider=provider)
                async for _ in played:
                    found.extend([number] * (session.view.cuts - cuts))
                    number, cuts = number + 1, session.view.cuts
                    pings += await idle(session, nexts[number - 1])

    anyio.run(steps)
    return Decided(found, pings)


@pytest.mark.requirement("L4.18", "K11")
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_live_session_compacts_by_price_before_the_same_requests_as_a_replay_of_its_log(tmp_path: Path, seed: int):
    entries, using = log(seed), settings(tmp_path)
    predicted = replayed(entries, using)
    assert predicted.compactions
    assert lived(entries, using) == predicted
    assert lived(entries, using, random.Random(seed)) == predicted, "also across many ends and resumes"


@pytest.mark.requirement("C9", "L4.18")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_live_session_that_is_kept_warm_pings_and_compacts_as_a_replay_of_its_log(tmp_path: Path, seed: int):
    entries, using = log(seed, said=(1, 20, 4_000), calls=0.5), settings(tmp_path, keep_warm=True)
    predicted = replayed(entries, using)
    assert predicted.compactions
    assert predicted.pings
    assert lived(entries, using) == predicted
    assert lived(entries, using, random.Random(seed)) == predicted


@pytest.mark.requirement("L4.18")
def test_a_replay_writes_the_summaries_of_the_live_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written: list[tuple[str, list[str]]] = []

    def noted(*given: Any, **more: Any) -> CompactionText:
        text = notes_summary(*given, **more)
        written.append((text.body, list(text.accounts.values())))
        return text

    for module in (draft_module, compactions_module):
        monkeypatch.setattr(module, "notes_summary", noted)
    entries, using = log(1), settings(tmp_path)
    replayed(entries, using)
    predicted, written[:] = list(written), []
    lived(entries, using)
    assert written == predicted != []


def test_a_live_session_that_forgets_its_meter_on_resume_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    entries, using = log(1), settings(tmp_path)
    predicted, resume = replayed(entries, using), CachePlan.resume

    def forget(plan: CachePlan, messages: list[Any]) -> None:
        resume(plan, messages)
        plan.meter = CarryingMeter()

    monkeypatch.setattr(CachePlan, "resume", forget)
    assert lived(entries, using, random.Random(1)) != predicted
