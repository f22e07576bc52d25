"""The same random conversation twice: in one process, and with a new process after every step."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

from enforcing_model import EnforcingModel, enforcing_provider
from reverie import InMemoryStorage, Session, Settings
from reverie.conversation.entries import Entry
from reverie.conversation.log import parse_log
from reverie.errors import CompactionError, InputError, SessionError
from reverie.events import CacheBroken, Event
from reverie.layers.l4_compact import CompactPolicy
from reverie.settings import Switches

CHECKED = ("claude-opus-5-5", "claude-fable-5-1")
FREE = ("claude-sonnet-5", "claude-opus-5")
BETA = "context-management-2025-06-27"


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"{name}.", "input_schema": {"type": "object", "properties": {}}}


class TwinRun:
    """One conversation by a seed; ``resumes`` opens the session anew after every step."""

    def __init__(self, seed: int, *, resumes: bool) -> None:
        self.random = random.Random(seed)
        self.resumes = resumes
        self.now = 1_000_000.0
        self.storage = InMemoryStorage()
        names = self.random.choice([CHECKED, FREE, FREE])
        self.provider = enforcing_provider(200_000, (*CHECKED, *FREE))
        self.models = {
            name: EnforcingModel(name, self.provider, self.script, clock=lambda: self.now) for name in (*CHECKED, *FREE)
        }
        self.main, self.other = names
        self.writes = self.random.random() < 0.5
        fills = self.random.random() < 0.4  # nothing but layer 4 makes room
        switches = {name: not fills for name in ("priced_trim", "idle_trim", "offload")}
        switches |= {"snip": self.random.random() < 0.5, "budget_trim": not fills and self.random.random() < 0.2}
        self.settings = Settings(
            home=Path("nowhere"),
            preset="thrifty",  # it uses every means
            window_tokens=self.random.choice([12_000, 16_384]),
            switches=Switches(notes=not self.writes, extraction=False, dream=False, **switches),
            compact=CompactPolicy(in_background=False, patience=self.random.choice((0.0, 3.0))),
        )
        self.system = "Work with care. " * 200
        self.tools = [tool("Read"), tool("Bash")]
        self.betas = [BETA] if self.random.random() < 0.5 else []
        self.calls = 0
        self.requests: list[str] = []
        self.events: list[Event] = []
        self.session = self.opened()

    def script(self, request: dict[str, Any]) -> Any:
        if request.get("compaction") is not None or "summary" in repr(request["messages"][-1])[-4_000:]:
            return "<summary>The work goes on.</summary>"
        self.calls += 1
        content: list[dict[str, Any]] = [{"type": "thinking", "thinking": f"Thought {self.calls}. " * 5}]
        if self.calls % 3:
            call = {"type": "tool_use", "id": f"toolu_{self.calls:05}", "name": "Read", "input": {"n": self.calls}}
            return [*content, call]
        return [*content, {"type": "text", "text": f"Answer {self.calls}."}]

    def opened(self) -> Session:
        given: dict[str, Any] = {"storage": self.storage, "settings": self.settings, "clock": lambda: self.now}
        session = Session.open("run", model=self.models[self.main] if self.writes else None, **given)
        session.listen(self.events.append)
        return session

    async def play(self, steps: int) -> None:
        """Play some prompts, with ids by number, so that two runs write the same."""
        numbers = count(1)
        with patch("reverie.conversation.entries._uuid.uuid4", lambda: UUID(int=next(numbers))):
            await self._play(steps)

    async def _play(self, steps: int) -> None:
        await self.session.__aenter__()
        for _ in range(steps):
            self.now += self.random.choice([1, 20, 400, 4_000])
            if self.random.random() < 0.4:
                await self.change()
                await self.resume()
            await self.session.say(f"Prompt {self.random.random()} " * self.random.randrange(1, 40))
            await self.resume()
            for _ in range(self.random.randrange(1, 6)):
                if not await self.turn():
                    break
        await self.session.__aexit__(None, None, None)

    async def turn(self) -> bool:
        """Take one turn, with a new process after the reply and after the results; return whether a tool was called."""
        model = self.main if self.random.random() < 0.95 else self.other
        given: dict[str, Any] = {"betas": self.betas} if self.betas else {}
        request = await self.session.prepare(
            model=model, max_tokens=1_000, system=self.system, tools=list(self.tools), **given
        )
        self.requests.append(repr(request))
        reply = await self.models[model].complete(request)
        calls = await self.session.observe(reply.body)
        await self.resume()
        if self.random.random() < 0.2:
            calls = await self.session.observe(reply.body)  # once more, as after a call that was cut off
        for call in calls:
            await self.session.result(call.id, f"{call.id} {self.random.random()} " * self.random.choice([5, 60, 100]))
        await self.resume()
        return bool(calls)

    async def change(self) -> None:
        kind = self.random.choice(["system", "tool", "trim", "compact", "undo", "reload", "restore", "betas"])
        session = self.session
        try:
            if kind == "system":
                self.system += f"\nRule {self.random.random()}."
            elif kind == "tool":
                self.tools.append(tool(f"Tool{self.random.randrange(10_000)}"))
            elif kind == "trim":
                await session.trim(target_tokens=200)
            elif kind == "compact":
                await session.compact()
            elif kind == "undo":
                await session.undo()
            elif kind == "reload":
                self.system += f"\nReloaded {self.random.random()}."
                await session.reload()
            elif kind == "betas":
                self.betas = [] if self.betas else [BETA]
            else:
                await session.restore(list(session.view.overrides.results)[:2])
        except (SessionError, CompactionError, InputError):
            return

    async def resume(self) -> None:
        """End the process and open the session again, without changing anything."""
        if self.resumes:
            await self.session.__aexit__(None, None, None)
            self.session = self.opened()
            await self.session.__aenter__()

    def entries(self) -> list[Entry]:
        (key,) = [key for key in self.storage.list("") if key.endswith("run.jsonl")]
        return parse_log(self.storage.load(key) or b"").entries

    def seen(self) -> tuple[list[str], list[str], list[str]]:
        """Return the requests, the entries of the log and the cache breaks, as texts."""
        return self.requests, [repr(entry) for entry in self.entries()], self.breaks()

    def breaks(self) -> list[str]:
        return [f"{one.reason}: {one.tokens}" for one in self.events if isinstance(one, CacheBroken)]
