"""Small windows: random conversations with results of any size never stop answering.

The load: 14 prompts a conversation of up to twice the window in characters, each with up to 3 rounds of up to 25
parallel calls, and results of 0 to 400,000 characters of prose, code, digits, Chinese, emoji and base64, as text or
blocks, some of them missing; system prompts of up to a quarter of the window; sessions that are resumed, or that know
the window from refusals only. The model refuses each request above its window, and writes long summaries or none.
The normal run takes 10 conversations; with ``--torture`` 500.
"""

from __future__ import annotations

import base64
import random
from collections import Counter
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, Settings, load_settings
from reverie.conversation.wire.validate import problems
from reverie.errors import CompactionError, PromptTooLong, WindowFull
from reverie.events import QueryEnded
from reverie.layers.l1_offload import OffloadPolicy
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.runtime.session import limits
from reverie.runtime.session.compact.breaker import Breaker
from reverie.settings import Switches
from reverie.tools.tool import Access, Output
from reverie.values import replace

PROMPTS = 14
SESSION_WINDOWS = (4_096, 8_192, 16_384, 32_768)
AGENT_WINDOWS = (16_384, 32_768)
TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": f"{name} something.", "input_schema": {"type": "object"}}
    for name in ("Read", "Bash", "look", "mcp__server__find")
]
WORDS = ["harbour", "ship", "tide", "master", "pier", "ledger", "rope", "anchor", "sail", "wind", "north"]


def text_of_any_kind(rng: random.Random, chars: int) -> str:
    """Return a text of this many characters: prose, code, digits, Chinese, emoji or base64."""
    kind = rng.randrange(6)
    if kind == 0:
        unit = " ".join(rng.choice(WORDS) for _ in range(50)) + "\n"
    elif kind == 1:
        unit = f"def part_{rng.randrange(999)}(x: int) -> int:\n    return x['{rng.choice(WORDS)}'] << {rng.random()}\n"
    elif kind == 2:
        unit = f"{rng.random()},{rng.randrange(10**9)};{rng.randrange(99)}|"
    elif kind == 3:
        unit = "".join(chr(rng.randrange(0x4E00, 0x9FA5)) for _ in range(60)) + "。"
    elif kind == 4:
        unit = "".join(chr(rng.randrange(0x1F300, 0x1F5FF)) for _ in range(40))
    else:
        unit = base64.b64encode(rng.randbytes(300)).decode()
    return (unit * (chars // len(unit) + 1))[:chars]


def any_size(rng: random.Random) -> int:
    """Return a number of characters from 0 to 400,000, as often small as large."""
    return int(10 ** rng.uniform(0, 5.6)) - 1


class Replies:
    """The replies of a model in a random conversation; side questions get a summary, a long one, or nothing."""

    def __init__(self, rng: random.Random, window: int, tools: tuple[str, ...]) -> None:
        self.rng, self.window, self.tools = rng, window, tools
        self.rounds = 0
        """Rounds of calls before the next answer."""
        self.call_counts: tuple[int, ...] = (1, 1, 1, 2, 2, 3, 3, 6, 25)

    def __call__(self, request: dict[str, Any]) -> Any:
        asked = str(request["messages"][-1])
        if any(word in asked for word in ("summary", "notes", "reverie-fork")) and "tides" not in asked:
            chars = self.rng.choice((0, 300, 2_000, self.window))
            return f"<summary>{text_of_any_kind(self.rng, chars)}</summary>" if chars else ""
        if self.rounds <= 0:
            return f"Answer: {text_of_any_kind(self.rng, self.rng.choice((10, 200, self.window // 3)))}"
        self.rounds -= 1
        return [self.call() for _ in range(self.rng.choice(self.call_counts))]

    def call(self) -> dict[str, Any]:
        name = self.rng.choice(self.tools)
        given = {"file_path": f"part_{self.rng.randrange(8)}.txt"} if name == "Read" else {"at": self.rng.random()}
        return {"type": "tool_use", "name": name, "input": given}


def model_of(rng: random.Random, window: int, tools: tuple[str, ...]) -> tuple[ScriptedModel, Replies]:
    replies = Replies(rng, window, tools)
    name = rng.choice(("m", "claude-opus-5-5", "claude-haiku-4-5"))  # unknown, with and without a check of thinking
    return ScriptedModel(replies, name=f"scripted:{name}", capabilities=Capabilities(True, window=window)), replies


class Talk:
    """A random conversation in an own loop."""

    def __init__(self, seed: int, window: int) -> None:
        self.rng = rng = random.Random(seed)
        self.window = window
        self.model, self.replies = model_of(rng, window, tuple(tool["name"] for tool in TOOLS))
        self.system = "You keep the ledger of the harbour. " * (window // rng.choice((1_024, 128, 40)))
        self.given: list[str] = []
        """Calls whose results the model has not seen."""
        self.seen: Counter[str] = Counter()

    async def run(self) -> str:
        """Run all prompts; return the reason why one got no answer, or an empty text."""
        rng, storage = self.rng, InMemoryStorage()
        own = self.model if rng.random() < 0.5 else None
        settings = replace(load_settings(), window_tokens=self.window if own or rng.random() < 0.7 else None)
        step = rng.choice((3, PROMPTS))
        for first in range(0, PROMPTS, step):
            async with Session.open("s", storage=storage, settings=settings, model=own) as session:
                for at in range(first, min(PROMPTS, first + step)):
                    size = rng.choice((10, 10, 300, self.window // 2, self.window * 2))
                    await session.say(f"The tides, part {at}. {text_of_any_kind(rng, size)}")
                    self.replies.rounds = rng.randrange(4)
                    try:
                        await self.answer(session)
                    except (WindowFull, CompactionError, PromptTooLong) as error:
                        return f"prompt {at}: {type(error).__name__}: {error}"
        return ""

    async def answer(self, session: Session) -> None:
        """Send requests until the model answers without a call; raise if none fits."""
        while True:
            model, tokens = self.model.model_id, self.window // 4
            request = await session.prepare(model=model, max_tokens=tokens, system=self.system, tools=TOOLS)
            assert problems(request) == []
            try:
                reply = await self.model.complete(request)
            except PromptTooLong as error:
                self.seen["refused"] += 1
                await session.compact_reactively(error)
                continue
            if 0 < len(self.given) <= 3:
                self.seen["rounds"] += 1
                self.seen["unseen"] += not any(called in str(request["messages"]) for called in self.given)
            calls = await session.observe(reply.body)
            self.given = [call.id for call in calls]
            if not calls:
                return
            for call in calls:
                if self.rng.random() < 0.97:  # a missing result is replaced by a placeholder
                    await self.give(session, call.id)

    async def give(self, session: Session, called: str) -> None:
        """Give the result of a call."""
        rng = self.rng
        output: Any = text_of_any_kind(rng, any_size(rng))
        if rng.random() < 0.2:
            output = [{"type": "text", "text": output or "."}, {"type": "text", "text": text_of_any_kind(rng, 50)}]
        limit = rng.choice((None, None, inf, 30_000.0, 1e9))
        await session.result(called, output, is_error=rng.random() < 0.1, max_chars=limit)


class FindTool:
    """A tool of the user's, whose results have any size."""

    name, description = "find", "Find something in the ledger."

    def __init__(self, rng: random.Random) -> None:
        self.input_schema: dict[str, Any] = {"type": "object", "properties": {"at": {"type": "number"}}}
        self.max_chars = rng.choice((None, inf, 30_000.0))
        self._rng = rng

    def access(self, input: Mapping[str, Any], context: Any) -> Access:
        return Access("none")

    async def preview(self, input: Mapping[str, Any], context: Any) -> str:
        return ""

    async def run(self, input: Mapping[str, Any], context: Any) -> Output:
        return Output(text_of_any_kind(self._rng, any_size(self._rng)))


async def agent_talk(seed: int, window: int, folder: Path) -> str:
    """Run a random conversation with an agent; return the reason why a prompt got no answer, or an empty text."""
    rng = random.Random(seed)
    own = rng.random() < 0.5  # the user's tool, or the agent's own tools on files of any size
    model, replies = model_of(rng, window, ("find",) if own else ("Read",))
    for at in range(8):
        (folder / f"part_{at}.txt").write_text(text_of_any_kind(rng, any_size(rng)))
    settings = Settings(home=folder / "home", switches=Switches(extraction=False, recall=False))
    given: dict[str, Any] = {"tools": [FindTool(rng)]} if own else {}
    storage = InMemoryStorage()
    agent = Agent(model=model, cwd=folder, storage=storage, settings=settings, session="s", mode="bypass", **given)
    async with agent:
        for at in range(PROMPTS):
            replies.rounds = rng.randrange(4)
            last = None
            async for event in agent.ask(f"The tides, part {at}. {text_of_any_kind(rng, rng.choice((10, 300)))}"):
                last = event
            assert isinstance(last, QueryEnded)
            if last.end != "completed":
                return f"prompt {at}: {last.end}: {last.detail}"
    return ""


def run_all(seed: int, count: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """Run ``count`` conversations, one window after the other; return counts and the conversations that died."""
    ran: Counter[str] = Counter()
    dead: list[str] = []
    kinds = [("Session", window) for window in SESSION_WINDOWS] + [("Agent", window) for window in AGENT_WINDOWS]

    async def steps() -> None:
        for number in range(count):
            kind, window = kinds[number % len(kinds)]
            if kind == "Session":
                talk = Talk(seed + number, window)
                why = await talk.run()
                ran.update(talk.seen)
            else:
                place = folder / str(number)
                place.mkdir()
                why = await agent_talk(seed + number, window, place)
            ran[f"{kind} {window:,}"] += 1
            if why:
                dead.append(f"{kind} {window:,}, seed {seed + number}: {why}")

    anyio.run(steps)
    return ran, dead


class PageTool(FindTool):
    """A tool whose results have one size, below the limit of a large window."""

    def __init__(self, chars: int) -> None:
        super().__init__(random.Random(chars))
        self.max_chars, self._chars = None, chars

    async def run(self, input: Mapping[str, Any], context: Any) -> Output:
        line = f"{self._rng.random()} the harbour master wrote down every ship that came in\n"
        return Output((line * (self._chars // len(line) + 1))[: self._chars])


@pytest.mark.requirement("V11", "L4.13", "V13")
@pytest.mark.parametrize(
    ("window", "calls", "chars"),
    [(8_192, 1, 30_000), (8_192, 2, 20_000), (16_384, 2, 40_000), (32_768, 4, 45_000), (200_000, 4, 49_000)],
)
def test_an_agent_answers_prompt_after_prompt_with_large_results(
    window: int, calls: int, chars: int, tmp_path: Path
) -> None:
    async def steps() -> list[str]:
        model, replies = model_of(random.Random(1), window, ("find",))
        replies.call_counts = (calls,)
        settings = Settings(home=tmp_path / "home", switches=Switches(extraction=False, recall=False))
        given: dict[str, Any] = {"tools": [PageTool(chars)], "storage": InMemoryStorage(), "mode": "bypass"}
        ends: list[str] = []
        async with Agent(model=model, cwd=tmp_path, settings=settings, **given) as agent:
            for at in range(8):
                replies.rounds = 1
                async for event in agent.ask(f"The tides, part {at}."):
                    ends += [event.end] if isinstance(event, QueryEnded) else []
            try:
                ends.append((await agent.session.compact()).decision.trigger)
            except CompactionError as error:
                ends.append("manual" if "free too little" in str(error) else str(error))
        return ends

    assert anyio.run(steps) == [*["completed"] * 8, "manual"]


@pytest.mark.requirement("V11", "L4.13", "Q5")
def test_no_sequence_of_results_leaves_a_session_that_answers_nothing(seed: int, torture: bool, tmp_path: Path) -> None:
    ran, dead = run_all(seed, 500 if torture else 10, tmp_path)
    print(dict(ran), f"{len(dead)} dead")
    assert dead == []
    assert ran["unseen"] < 0.05 * ran["rounds"]  # results of up to 3 calls reach the model, whole or as a preview


@pytest.mark.requirement("V11")
def test_the_known_bad_twin_with_limits_that_do_not_scale_hides_results_from_the_model(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unscaled(policy: OffloadPolicy, tokens: int) -> OffloadPolicy:
        return policy

    monkeypatch.setattr(limits, "fitted_policy", unscaled)
    ran, _ = run_all(seed, 6, tmp_path)
    assert ran["unseen"] > 0.1 * ran["rounds"]


@pytest.mark.requirement("L4.13")
def test_the_known_bad_twin_with_a_breaker_that_holds_in_a_full_window_stops_answering(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def holds(self: Breaker, policy: Any, now: float, *, blocked: bool) -> str | None:
        refilled = self.replies is not None and self.replies <= policy.refill_turns
        return "the window filled again" if refilled or self.failures >= policy.failures else None

    monkeypatch.setattr(Breaker, "why_not", holds)
    _, dead = run_all(seed, 12, tmp_path)
    assert any("WindowFull" in why or "blocking_limit" in why for why in dead)
