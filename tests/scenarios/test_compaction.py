"""Compaction on recorded and random histories: it succeeds, is valid, never loops, and can be undone."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, Settings, load_settings
from reverie.conversation.decisions import Compacted
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.request import build_request
from reverie.conversation.wire.validate import problems
from reverie.errors import CompactionError, ModelUnavailable, PromptTooLong, SessionError, WindowFull
from reverie.events import CompactionEnded, DecisionMade, Event
from reverie.importers import find_sessions, read_session
from reverie.layers.l4_compact import CompactPolicy, summary_budget
from reverie.layers.l4_compact.user_words import short_handle, user_messages
from reverie.ports import Capabilities, Reply, ReplyDelta
from reverie.replay.play import PlayedClock, play_session
from reverie.settings import Switches
from reverie.values import replace

MODEL = "claude-sonnet-4-5"
START = 1_790_000_000.0
QUICK, TORTURE = 240, 10_000
PARTS = 3
TOOLS: list[dict[str, Any]] = [{"name": name, "input_schema": {"type": "object"}} for name in ("Read", "Bash", "Grep")]


@pytest.mark.requirement("L4.2", "L4.7", "L4.14", "B2", "B5", "K8")
@pytest.mark.parametrize("window_tokens", [None, 40_000], ids=["default window", "small window"])
def test_every_recorded_session_compacts_from_local_notes_and_comes_back(
    corpus: Path, window_tokens: int | None, torture: bool
):
    """Each is played into a window, where a small one must compact on its way, and is compacted at its end.

    In the quick form every third session has the default window, and every third the small one.
    """
    told: Counter[str] = Counter()

    async def one(entries: Any, tools: list[dict[str, Any]]) -> None:
        clock, made = PlayedClock(), list[Event]()
        settings = replace(load_settings(), window_tokens=window_tokens)
        options: dict[str, Any] = {"model": MODEL, "system": "Be careful.", "tools": tools}
        async with Session.open("s", storage=InMemoryStorage(), settings=settings, clock=clock) as session:
            session.listen(made.append)
            wrong: list[Any] = []
            async for _ in play_session(
                *(entries, session, clock), **options, check=lambda request: wrong.extend(problems(request))
            ):
                pass
            assert wrong == []
            ended = [event for event in made if isinstance(event, CompactionEnded)]
            assert all(event.model_calls == 0 and event.method == "notes" for event in ended)
            assert all(event.tokens_after < session.thresholds.auto_compact for event in ended)
            told.update(sessions=1, on_the_way=len(ended))
            before, count = canonical(build_request(session.view)), session.view.token_count.tokens
            try:
                report = await session.compact()
            except CompactionError as error:
                if count >= 12_000 or "free too little" not in str(error):
                    pytest.fail(str(error))  # only of a short one is there too little to be worth a summary
                told.update(refused=1)
                return
            assert (report.model_calls, report.method) == (0, "notes")
            assert report.tokens_after <= 0.75 * report.tokens_before
            assert report.tokens_after < session.thresholds.auto_compact
            request = build_request(session.view)
            assert problems(request) == []
            told.update(await _words_survive(session, report.decision, request))
            await session.undo()
            assert canonical(build_request(session.view)) == before
            full = (
                session.view.token_count.tokens >= session.thresholds.blocking
            )  # only then another may come by itself
            count = len(session.view.facts.compactions)
            assert problems(await session.prepare(max_tokens=1_000, **options)) == []
            assert full or len(session.view.facts.compactions) == count
            told.update(undone=1, over_the_blocking_limit=full)

    async def steps() -> None:
        every = sorted(find_sessions(corpus), key=str)
        for found in every if torture else every[bool(window_tokens) :: 3]:
            for imported in read_session(str(getattr(found, "path", found))):
                await one(imported.entries, imported.tools or [])

    anyio.run(steps)
    print(dict(told))
    assert told["undone"] >= 0.8 * told["sessions"] > 0
    assert told["on_the_way"] > (1 if window_tokens else -1)


async def _words_survive(session: Session, decision: Compacted, request: dict[str, Any]) -> Counter[str]:
    """The user's messages are there byte for byte, the newest while the budget lasts, the rest by handle."""
    sent = "\n".join(_texts(request["messages"]))
    said = user_messages(session.view.history)
    kept = {piece.uuid for group in session.view.groups for piece in group.pieces}
    budget = summary_budget(session.settings.compact, session.thresholds.effective).words
    gone = [one for one in reversed(said) if one.handle not in kept]
    places = [decision.summary.find(f"[handle {short_handle(one.handle)}]: {one.text}") for one in gone]
    whole = [at for at in places if at >= 0]
    assert whole == sorted(whole, reverse=True)  # the oldest comes first in the text
    assert all(at >= 0 for at in places[: len(whole)]), "an older message is whole where a newer one is not"
    if len(whole) < len(gone):  # the next one did not fit beside single sentences, at whichever scale it was made
        assert sum(one.tokens + 24 for one in gone[: len(whole) + 1]) > budget // 5
    cut = await session.read_back(decision.handle)
    for one in said:
        if one.handle not in kept and one.text not in sent:
            assert short_handle(one.handle) in sent or ("still older messages" in sent and one.handle.encode() in cut)
        back = (await session.read_back(short_handle(one.handle))).decode()
        read = "\n\n".join(_texts(json.loads(back))) if back.startswith("[{") else back
        assert all(part in read for part in one.text.split("\n\n")), one.text[:80]
    return Counter(whole=len(whole), by_handle=len(gone) - len(whole))


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
        """Answers to requests for a summary that were begun."""
        self.refused = 0
        """Requests for a summary that were turned away as too long: nothing is computed, and nothing billed."""
        self.noted = 0

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        assert problems(dict(request)) == [], problems(dict(request))[0].text
        if "session_memory" in str(request["messages"][-1]):
            self.noted += 1
        elif self.manner == "finds it too long":
            self.refused += 1
            raise PromptTooLong("prompt is too long", tokens=9_000, limit=8_000)
        else:
            self.calls += 1
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
        yield ReplyDelta("text", "...")
        usage = {"input_tokens": 10, "output_tokens": 10}
        yield Reply(
            {
                "id": f"s{self.calls}-{self.noted}",
                "role": "assistant",
                "model": MODEL,
                "content": content,
                "usage": usage,
            }
        )

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        raise AssertionError("never asked")

    async def aclose(self) -> None:
        pass


MANNERS = (
    *("well", "fails", "hangs", "calls tools", "says nothing", "says too much", "damages headings"),
    *("finds it too long", "nobody"),
)


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
        patience = 0.01 if self.manner == "hangs" else 60.0  # who answers is heard, on a busy machine too
        policy = CompactPolicy(summary_seconds=patience, wait_seconds=patience, dead_after_seconds=0.01)
        return replace(load_settings(), window_tokens=self.window, switches=switches, compact=policy)

    async def play(self) -> None:
        rng = self.rng
        session = Session.open(
            "s", storage=InMemoryStorage(), settings=self.settings(), clock=lambda: self.now, model=self.model
        )
        async with session:
            if rng.random() < 0.7:
                session.parts.notes.forks = None  # else the same model takes notes, in the same manner
            session.listen(self.made.append)
            await session.say("Begin. " + "word " * rng.choice((5, 50, self.window * 2 if rng.random() < 0.1 else 5)))
            for turn in range(rng.randrange(3, 16)):
                self.now += rng.choice((1.0, 30.0, 400.0, 4_000.0))
                before = (self.model.calls, self.model.refused) if self.model else (0, 0)
                try:
                    request = await session.prepare(model=MODEL, max_tokens=200, system=self.system, tools=TOOLS)
                except WindowFull as full:
                    self.stopped = str(full)
                    return
                finally:
                    if self.model is not None:
                        assert self.model.calls - before[0] <= 2, self.manner
                        assert self.model.refused - before[1] <= 1 + 1 + CompactPolicy().retries
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

    async def is_caught() -> bool:
        for number in range(120):
            history = Careless(Random(f"{seed}-{number}"))
            await history.play()
            decisions = [one.decision for one in history.made if isinstance(one, DecisionMade)]
            made = [one for one in decisions if isinstance(one, Compacted)]
            if any(one.tokens_after > 0.75 * one.tokens_before for one in made):
                return True
        return False

    assert anyio.run(is_caught)
