"""Compaction on recorded and on random histories: it lands, it is valid, it loops never, it can be taken back."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, Settings, load_settings
from reverie.conversation.canonical import canonical
from reverie.conversation.decisions import Compacted
from reverie.conversation.request import build_request
from reverie.conversation.tokens import estimate_text
from reverie.conversation.validate import problems
from reverie.errors import CompactionError, ModelUnavailable, SessionError, WindowFull
from reverie.events import CompactionEnded, DecisionMade, Event
from reverie.importers import find_sessions, read_session
from reverie.layers.l4_compact import CompactPolicy
from reverie.layers.l4_compact.words import spoken_in
from reverie.ports import Capabilities, Piece, Reply
from reverie.replay.play import PlayedClock, played
from reverie.settings import Switches
from reverie.values import replace

MODEL = "claude-sonnet-4-5"
START = 1_790_000_000.0
QUICK, TORTURE = 500, 10_000
PARTS = 5
TOOLS: list[dict[str, Any]] = [{"name": name, "input_schema": {"type": "object"}} for name in ("Read", "Bash", "Grep")]


@pytest.mark.requirement("L4.2", "L4.7", "L4.14", "B2", "B5", "K8")
def test_every_recorded_session_compacts_from_local_notes_and_comes_back(corpus: Path):
    """Each is played into a small window, so that it must compact on its way, or is compacted at its end."""

    async def one(entries: Any, tools: list[dict[str, Any]]) -> int:
        clock, made = PlayedClock(), list[Event]()
        settings = replace(load_settings(), window_tokens=40_000)
        async with Session.open("s", storage=InMemoryStorage(), settings=settings, clock=clock) as session:
            session.listen(made.append)
            wrong: list[Any] = []
            try:
                async for _ in played(
                    *(entries, session, clock),
                    **{"model": MODEL, "system": "Be careful.", "tools": tools},
                    check=lambda request: wrong.extend(problems(request)),
                ):
                    pass
            except WindowFull:
                pass  # a recording of a larger window: turns that each fill this one
            assert wrong == []
            session.settings = replace(session.settings, window_tokens=None)
            before = canonical(build_request(session.view))
            try:
                report = await session.compact()
            except CompactionError as error:
                if session.view.counted.tokens >= 20_000:
                    pytest.fail(str(error))
                return len([event for event in made if isinstance(event, CompactionEnded)])
            assert report.model_calls == 0
            assert report.tokens_after < session.lines.auto_compact
            request = build_request(session.view)
            assert problems(request) == []
            _words_survive(session, report.decision, request)
            await session.undo()
            assert canonical(build_request(session.view)) == before
            ended = [event for event in made if isinstance(event, CompactionEnded)]
            assert all(event.model_calls == 0 and event.tokens_after < event.tokens_before for event in ended)
            return len(ended)

    async def steps() -> int:
        total = 0
        for found in sorted(find_sessions(corpus), key=str):
            for imported in read_session(str(getattr(found, "path", found))):
                if len(imported.messages) >= 4:
                    total += await one(imported.entries, imported.tools or [])
        return total

    assert anyio.run(steps) > 20


def _words_survive(session: Session, decision: Compacted, request: dict[str, Any]) -> None:
    """The user's messages are there byte for byte, newest first while the budget lasts, the rest by handle."""
    sent = "\n".join(_texts(request["messages"]))
    said = spoken_in(session.view.said)
    kept_handles = {piece.uuid for group in session.view.groups for piece in group.pieces}
    heads = {one.handle: decision.summary.find(f"[handle {one.handle}]\n{one.text}") for one in said}
    places = [heads[one.handle] for one in said if heads[one.handle] >= 0]
    assert places == sorted(places, reverse=True)  # newest first
    older = [one for one in said if one.handle not in kept_handles and heads[one.handle] < 0]
    assert not older or estimate_text("\n".join(one.text for one in said)) > 15_000
    for one in said:
        named = one.handle in sent or "still older ones" in sent
        assert one.text in sent or named, one.text[:80]


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]


class Summariser:
    """A model that misbehaves in one of the ways models do; it answers nothing but summaries and notes."""

    name = f"test:{MODEL}"
    model_id = MODEL
    capabilities = Capabilities(caching=True)

    def __init__(self, manner: str) -> None:
        self.manner = manner
        self.calls = 0

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[Piece | Reply, None]:
        self.calls += 1
        assert problems(dict(request)) == [], problems(dict(request))[0].text
        match self.manner:
            case "fails":
                raise ModelUnavailable("overloaded")
            case "hangs":
                await anyio.sleep_forever()
            case "calls tools":
                content: list[dict[str, Any]] = [{"type": "tool_use", "id": "x", "name": "Read", "input": {}}]
            case "says nothing":
                content = []
            case "says too much":
                content = [{"type": "text", "text": "<summary>" + str(request["messages"]) * 2 + "</summary>"}]
            case "damages headings":
                content = [{"type": "text", "text": "# Title lost\n\n<analysis>never closed"}]
            case _:
                content = [{"type": "text", "text": "<analysis>a</analysis><summary>All is well.</summary>"}]
        yield Piece("text", "...")
        usage = {"input_tokens": 10, "output_tokens": 10}
        yield Reply({"id": f"s{self.calls}", "role": "assistant", "model": MODEL, "content": content, "usage": usage})

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        raise AssertionError("never asked")

    async def aclose(self) -> None:
        pass


MANNERS = ("well", "fails", "hangs", "calls tools", "says nothing", "says too much", "damages headings", "nobody")


class History:
    """A random conversation in a small window, driven through the front door."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = START
        self.manner = rng.choice(MANNERS)
        self.model = None if self.manner == "nobody" else Summariser(self.manner)
        self.window = rng.choice((6_000, 12_000, 24_000))
        self.system = "Rules. " * rng.choice((10, 100, 100, 6_000 if rng.random() < 0.3 else 100))
        self.triggers = 0
        self.stopped = ""
        self.made: list[Event] = []

    def settings(self) -> Settings:
        rng = self.rng
        switches = Switches(
            notes=rng.random() < 0.5,
            compact_from_notes=rng.random() < 0.6,
            snip=rng.random() < 0.1,
            collapse=rng.random() < 0.05,
            priced_trim=rng.random() < 0.5,
            offload=rng.random() < 0.5,
        )
        policy = CompactPolicy(summary_seconds=0.01, wait_seconds=0.01, dead_after_seconds=0.01)
        return replace(load_settings(), window_tokens=self.window, switches=switches, compact=policy)

    async def play(self) -> None:
        rng = self.rng
        session = Session.open(
            "s", storage=InMemoryStorage(), settings=self.settings(), clock=lambda: self.now, model=self.model
        )
        async with session:
            session.noting.asks = None
            session.listen(self.made.append)
            await session.say("Begin. " + "word " * rng.choice((5, 50, self.window * 2 if rng.random() < 0.1 else 5)))
            for turn in range(rng.randrange(3, 16)):
                self.now += rng.choice((1.0, 30.0, 400.0, 4_000.0))
                before = self.model.calls if self.model else 0
                try:
                    request = await session.prepare(model=MODEL, max_tokens=200, system=self.system, tools=TOOLS)
                except WindowFull as full:
                    self.stopped = str(full)
                    return
                finally:
                    assert (self.model.calls if self.model else 0) - before <= 2, self.manner
                assert problems(request) == [], problems(request)[0].text
                await self.reply(session, turn)

    async def reply(self, session: Session, turn: int) -> None:
        rng = self.rng
        blocks: list[dict[str, Any]] = [{"type": "text", "text": f"Turn {turn}."}]
        for n in range(rng.choice((0, 1, 1, 2, 5))):
            blocks.append(
                {"type": "tool_use", "id": f"t{turn}_{n}", "name": "Read", "input": {"file_path": f"a/{n}.py"}}
            )
        usage = {"usage": {"input_tokens": session.view.tokens + 200, "output_tokens": 9}} if rng.random() < 0.7 else {}
        calls = await session.observe(
            {"id": f"m{turn}", "role": "assistant", "model": MODEL, "content": blocks, **usage}
        )
        for call in calls:
            if rng.random() < 0.95:
                await session.result(call.id, f"src/x_{turn}.py 12ab{turn:04d} " * rng.choice((1, 40, 300, 900)))
        if not calls or rng.random() < 0.2:
            await session.say(f"And {turn * 1_000 + 77}? " + "word " * rng.choice((1, 30, 500)))
        if rng.random() < 0.05:
            with contextlib.suppress(SessionError):
                await (session.undo() if rng.random() < 0.5 else session.compact())


@pytest.mark.requirement("L4.13", "L4.1", "K8", "B5")
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_the_history_and_the_summariser_there_is_a_valid_request_or_a_clear_stop(
    part: int, seed: int, torture: bool
):
    compactions = stops = 0

    async def steps() -> None:
        nonlocal compactions, stops
        for number in range(part, TORTURE if torture else QUICK, PARTS):
            history = History(Random(f"{seed}-{number}"))
            with anyio.fail_after(60):
                await history.play()
            stops += bool(history.stopped)
            for event in history.made:
                if isinstance(event, DecisionMade) and isinstance(event.decision, Compacted):
                    made = event.decision
                    assert made.tokens_after <= 0.75 * made.tokens_before, f"history {number}"
                    compactions += 1

    anyio.run(steps)
    assert compactions > 20
    assert stops > 0


@pytest.mark.requirement("L4.13")
def test_a_session_that_applies_what_frees_too_little_would_be_caught(seed: int):
    """The known-bad twin of the test above."""

    class Careless(History):
        def settings(self) -> Settings:
            given = super().settings()
            return replace(given, compact=replace(given.compact, least_freed=-9.0))

    async def steps() -> int:
        caught = 0
        for number in range(120):
            history = Careless(Random(f"{seed}-{number}"))
            await history.play()
            decisions = [one.decision for one in history.made if isinstance(one, DecisionMade)]
            made = [one for one in decisions if isinstance(one, Compacted)]
            caught += any(one.tokens_after > 0.75 * one.tokens_before for one in made)
        return caught

    assert anyio.run(steps) > 0
