"""A random session against a simulated provider that validates its requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from random import Random
from typing import Any, cast

import pytest

from pictures import image_block, png
from prefixes import extends
from reverie import InMemoryStorage, Session, Settings, load_settings
from reverie.cache.simulator import CacheRules, CacheSimulator, Mark, SimBlock
from reverie.cache.usage import Usage
from reverie.conversation.decisions import Cause, Collapsed, Compacted, Decision, PrefixRendered, Snipped
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.validate import problems
from reverie.errors import WindowFull
from reverie.events import CacheBroken, DecisionMade, Event, ResultsTrimmed
from reverie.layers.l2_trim import TrimPolicy
from reverie.settings import Switches
from reverie.values import record, replace

MODEL = "claude-sonnet-4-5"
SYSTEM = "You are careful. " * 400
NAMES = ("Read", "Bash", "Grep", "Edit", "Write", "Glob", "mcp__tracker__search", "Task")
TOOLS: list[dict[str, Any]] = [{"name": name, "input_schema": {"type": "object"}} for name in NAMES]
GAPS = (0.5, 4.0, 20.0, 60.0, 200.0, 299.0, 300.0, 400.0, 1_500.0, 3_599.0, 3_600.0, 90_000.0)
SIZES = (0, 3, 40, 300, 900, 4_000, 9_000, 30_000)
PIXEL = image_block(png(1, 1))
FAR = CacheRules(look_back_positions=10**9)


@record
class Finding:
    """Something a provider would not have expected."""

    request: int
    what: str


class Witness:
    """Stands where the provider stands: every request passes, and what is wrong with it is written down.

    The second cache looks back for ever: whatever it reads and the first does not was there and was not found.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.moved: list[str] = []
        self.requests = 0
        self.cuts = 0
        self.reads = 0
        self.rendered = 0
        self.trims: dict[str, int] = {}
        self._sent: list[bytes] = []
        self._sent_at = 0.0
        self._opening: list[bytes] | None = None
        self._cache, self._far = CacheSimulator(), CacheSimulator(FAR)
        self._held = 0
        self._returned = False

    def hear(self, event: Event) -> None:
        """Take note of decisions that say they move the prefix, and of breaks that were reported."""
        if isinstance(event, DecisionMade) and isinstance(event.decision, PrefixRendered):
            self.rendered += 1
        if isinstance(event, DecisionMade) and event.decision.cause.moves_prefix:
            self.moved.append(type(event.decision).__name__)
        elif isinstance(event, ResultsTrimmed):
            self.trims[event.trigger] = self.trims.get(event.trigger, 0) + 1
            if not event.tokens_after < event.tokens_before:
                self.found(f"a clearing that freed nothing: {event}")
        elif isinstance(event, CacheBroken) and event.reason == "server":
            self.found(f"a break nobody announced: {event}")

    def found(self, what: str) -> None:
        self.findings.append(Finding(self.requests, what))

    def bill(self, request: Mapping[str, Any], now: float) -> dict[str, Any]:
        """Check a request against the last one and return its usage."""
        self.requests += 1
        if wrong := problems(request):
            self.found(f"invalid: {wrong[0].text}")
        sent = canonical(request)
        moved, self.moved = self.moved, []
        if not moved and not extends(self._sent, sent):
            at = next((n for n, (a, b) in enumerate(zip(self._sent, sent, strict=False)) if a != b), len(sent))
            self.found(f"block {at} changed and no decision says so")
        blocks = [SimBlock(blake2b(said, digest_size=12).digest(), 1 + len(said) // 4) for said in sent]
        marks = marks_of(request)
        used = self._cache.request(blocks, marks, model=MODEL, now=now)
        far = self._far.request(blocks, marks, model=MODEL, now=now)
        live = self.requests > 1 and now - self._sent_at < 300.0
        if live and used.read < self._held and not moved:
            self.found(f"{self._held - used.read} live tokens not read, and nothing was announced")
        # What was brought back may match an entry from before it was cleared; nobody promises to know of those.
        self._returned = self._returned or "ResultsRestored" in moved
        if live and used.read < far.read and not self._returned:
            self.found(f"{far.read - used.read} live tokens beyond the look-back")
        self.reads += used.read
        self._sent, self._sent_at, self._held = sent, now, used.read + used.write
        return usage_of(used)


def marks_of(request: Mapping[str, Any]) -> list[Mark]:
    """Return the breakpoints of a request by the position of their block."""
    parts: list[Any] = [*(request.get("tools") or ())]
    system: Any = request.get("system")
    parts += system if isinstance(system, list) else [system] if system else []
    for message in request["messages"]:
        parts += message["content"] if isinstance(message["content"], list) else [message["content"]]
    found = [(at, part.get("cache_control")) for at, part in enumerate(parts) if isinstance(part, dict)]
    return [Mark(at, cast("dict[str, str]", control).get("ttl", "5m")) for at, control in found if control]


def usage_of(used: Usage) -> dict[str, Any]:
    return {
        "input_tokens": used.uncached,
        "cache_creation_input_tokens": used.write,
        "cache_read_input_tokens": used.read,
        "cache_creation": {"ephemeral_5m_input_tokens": used.write_5m, "ephemeral_1h_input_tokens": used.write_1h},
        "output_tokens": 50,
    }


def small_settings(rng: Random) -> Settings:
    """Return settings under which the layers act often."""
    trim = TrimPolicy(
        keep_cold=rng.choice((1, 2, 5)),
        keep_priced=rng.choice((1, 2, 3)),
        keep_budget=rng.choice((0, 1, 3)),
        budget_tokens=rng.choice((800, 3_000)),
        need=rng.choice((1 / 400, 1 / 40)),
        forced_share=0.02,
    )
    return replace(
        load_settings(),
        preset="thrifty",
        trim=trim,
        switches=Switches(budget_trim=rng.random() < 0.25),
        offload_limits=dict.fromkeys(NAMES, rng.choice((500, 5_000))),
        window_tokens=rng.choice((None, None, 16_000)),
    )


class Drive:
    """One random conversation through the front door."""

    def __init__(self, rng: Random, *, cuts: bool = True, kind: type[Session] = Session) -> None:
        self.rng = rng
        self.now = 1_767_225_600.0
        self.storage = InMemoryStorage()
        self.settings = small_settings(rng)
        self.witness = Witness()
        self.kind = kind
        self.system = SYSTEM
        self.serial = 0
        self.outputs: list[Any] = []
        self.given: dict[str, Any] = {}
        self.said: dict[str, str] = {}
        self.cuts = cuts
        self.full = False

    def open(self) -> Session:
        opened = self.kind.open("s", storage=self.storage, settings=self.settings, clock=lambda: self.now)
        opened.listen(self.witness.hear)
        return opened

    async def play(self, turns: int, *, check: Callable[[Session], Any] | None = None) -> None:
        """Talk for so many turns, in one or several processes."""
        left = turns
        while left > 0 and not self.full:
            part = left if self.rng.random() < 0.6 else self.rng.randrange(1, left + 1)
            async with self.open() as session:
                if left == turns:
                    await self.say(session)
                for _ in range(part):
                    await self.turn(session)
                    if check is not None:
                        await check(session)
            left -= part

    async def say(self, session: Session) -> None:
        self.serial += 1
        words = f"message {self.serial} " * self.rng.choice((1, 30, 400))
        self.said[(await session.say(words)).uuid] = words

    async def turn(self, session: Session) -> None:
        """Ask, answer, run the tools, and now and then do something else."""
        rng = self.rng
        if not self.full:
            await self.ask(session)
        if self.full:
            return
        if rng.random() < 0.15:
            await self.say(session)
        if rng.random() < 0.1:
            await session.attach(f"The date is {self.serial}.", type="date")
        if rng.random() < 0.12:
            await self.meddle(session)
        self.now += rng.choice(GAPS) if rng.random() < 0.25 else rng.choice(GAPS[:4])

    async def ask(self, session: Session) -> None:
        """Send one request, log the reply and give the results of its calls."""
        rng = self.rng
        try:
            request = await session.prepare(model=MODEL, max_tokens=1_000, system=self.system, tools=TOOLS)
        except WindowFull:  # turns that fill a small window again and again: a clear stop, and the end of it
            self.full = True
            return
        usage = self.witness.bill(request, self.now)
        self.serial += 1
        blocks: list[dict[str, Any]] = [{"type": "text", "text": f"reply {self.serial} " * rng.choice((1, 20))}]
        if rng.random() < 0.2:
            blocks.insert(0, {"type": "thinking", "thinking": "hm " * 20, "signature": f"s{self.serial}"})
        blocks += [self.call() for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 7, 25)))]
        calls = await session.observe(
            {"id": f"m{self.serial}", "role": "assistant", "model": MODEL, "content": blocks, "usage": usage}
        )
        for one in calls:
            if rng.random() > 0.03:
                output = self.given[one.id] = self.output()
                await session.result(one.id, output, is_error=isinstance(output, str) and rng.random() < 0.1)
        if not calls:
            await self.say(session)

    def call(self) -> dict[str, Any]:
        self.serial += 1
        name = self.rng.choice(NAMES)
        path = f"/src/{self.rng.randrange(4)}.py"
        return {"type": "tool_use", "id": f"t{self.serial}", "name": name, "input": {"file_path": path}}

    def output(self) -> Any:
        if self.outputs and self.rng.random() < 0.15:
            return self.rng.choice(self.outputs)
        self.serial += 1
        size = self.rng.choice(SIZES)
        text = (f"line {self.serial} of the output\n" * (size // 20 + 1))[:size]
        made: Any = [{"type": "text", "text": text or "seen"}, PIXEL] if self.rng.random() < 0.05 else text
        self.outputs.append(made)
        return made

    async def meddle(self, session: Session) -> None:
        """Do what users and later layers do: clear by hand, bring back, cut, change the system prompt."""
        rng = self.rng
        gone = [one.tool_use_id for one in session.view.results if one.tool_use_id in session.view.overrides.results]
        match rng.randrange(6 if self.cuts else 3):
            case 0:
                await session.trim(rng.choice((0, 2_000)))
            case 1 if gone:
                await session.restore(rng.sample(gone, 1))
            case 2:
                self.system = f"{SYSTEM} Version {self.serial}."
            case 3 | 4 | 5:
                await session.log.decide(some_cut(session, rng))
            case _:
                pass


def some_cut(session: Session, rng: Random) -> Decision:
    """Return a cut as later layers will make them: handles stand in the view or are the cut's own uuid."""
    shown = [piece.uuid for group in session.view.groups for piece in group.pieces]
    cause = Cause("test", "a cut", moves_prefix=True)
    first, last = sorted(rng.sample(range(len(shown)), 2)) if len(shown) > 1 else (0, 0)
    match rng.randrange(3):
        case 0:
            return Compacted(cause, "auto", "full", "A summary.", 10, shown[-1], rng.choice((None, *shown[-6:])))
        case 1:
            return Collapsed(cause, shown[first], shown[last], "[a finished part]")
        case _:
            return Snipped(cause, shown[first:last])


@pytest.fixture(scope="session")
def make_drive() -> Callable[..., Drive]:
    return Drive


@pytest.fixture(scope="session")
def make_witness() -> Callable[..., Witness]:
    return Witness
