"""Every field of an open agent has a class in ``state_fields.toml``; those of the log survive a resume."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from reverie import InMemoryStorage, Settings
from reverie.cache.watch import registered_by
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.settings import Switches

CLASSES = ("log", "cache", "irrelevant", "wiring")
ROOMS = ("reverie.runtime", "reverie.tools", "reverie.layers")
TABLE: dict[str, dict[str, list[str]]] = tomllib.loads(Path(__file__).with_name("state_fields.toml").read_text())

# Values that two processes hold in different objects, as values that can be compared.
COMPARED: Mapping[str, Callable[[Any], Any]] = {
    "LogWriter.view": lambda view: (view.messages(), view.facts, view.token_count, view.cuts, view.history, view.last),
    "SessionLog._since_request": registered_by,
    "Accounts._watch": lambda watch: (watch.readable, watch.sent_at, watch.long_lived),
    "CachePlan.placed": lambda placed: (
        placed and (placed.ttl, placed.end, placed.at, [(e.place, e.ttl) for e in placed.held or ()])
    ),
}


def class_of(kind: str, field: str) -> str:
    """Return the class of a field; empty if the table has none, or more than one."""
    found = [name for name in CLASSES if field in TABLE.get(kind, {}).get(name, ())]
    return found[0] if len(found) == 1 else ""


def fields_of(one: object) -> dict[str, Any]:
    """Return the fields of an object of ours that can change; none for another object."""
    kind = type(one)
    if not kind.__module__.startswith(ROOMS) or kind.__setattr__ is not object.__setattr__:
        return {}
    names = [*getattr(one, "__dict__", ())]
    for base in kind.__mro__:
        slots = cast("tuple[str, ...] | str", base.__dict__.get("__slots__", ()))
        names += [slots] if isinstance(slots, str) else slots
    return {name: getattr(one, name) for name in names if name != "__dict__" and hasattr(one, name)}


def live_fields(root: object) -> Iterator[tuple[str, str, Any]]:
    """Yield class, field and value of all that an object holds by its wiring; each object once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list | tuple | set | frozenset):
            waiting += cast("list[object]", list(cast("Any", one)))
        elif isinstance(one, dict):
            waiting += cast("dict[Any, object]", one).values()
        elif id(one) not in seen:
            seen.add(id(one))
            for field, value in fields_of(one).items():
                kind = type(one).__name__
                yield kind, field, value
                if class_of(kind, field) == "wiring":
                    waiting.append(value)


def problems(root: object) -> list[str]:
    """Return the fields without a class, and the rows of the table that no object has."""
    found = {(kind, field) for kind, field, _ in live_fields(root)}
    lacking = [f"{kind}.{field} has no class" for kind, field in found if not class_of(kind, field)]
    rows = {(kind, field) for kind, groups in TABLE.items() for fields in groups.values() for field in fields}
    return sorted([*lacking, *(f"{kind}.{field} does not exist" for kind, field in rows - found)])


def logged_values(root: object) -> dict[str, Any]:
    """Return the values of all fields that come from the log."""
    found: dict[str, Any] = {}
    for kind, field, value in live_fields(root):
        name = f"{kind}.{field}"
        if class_of(kind, field) == "log":
            found[name] = COMPARED.get(name, lambda same: same)(value)
    return found


class Desk:
    """An agent in a folder of its own; its log outlives it."""

    def __init__(self, tmp_path: Path) -> None:
        self.cwd = tmp_path / "work"
        self.cwd.mkdir()
        self.now = 1_790_000_000.0
        self.replies: list[Any] = []
        self.model = ScriptedModel(lambda _: self.replies.pop(0), capabilities=Capabilities(True, window=200_000))
        switches = Switches(extraction=False, dream=False, notes=False)
        settings = Settings(home=tmp_path / "home", switches=switches)
        self.given: dict[str, Any] = {"storage": InMemoryStorage(), "settings": settings, "mode": "accept-edits"}

    def agent(self) -> Agent:
        return Agent(model=self.model, cwd=self.cwd, session="s", clock=lambda: self.now, **self.given)

    async def ask(self, agent: Agent, *replies: Any) -> None:
        self.replies = [*replies, "Done."]
        _ = [event async for event in agent.ask("go on")]

    async def step(self, agent: Agent, kind: str, number: int) -> None:
        """Take one step that changes state of the log."""
        self.now += 40.0
        path = self.cwd / f"{number % 3}.txt"
        if not path.exists():
            path.write_text(f"text {number}\n" * 300)
        session = agent.session
        if kind == "read":
            await self.ask(agent, [call("Read", file_path=path.name)])
        elif kind == "part":
            await self.ask(agent, [call("Read", file_path=path.name, offset=number + 1, limit=3)])
        elif kind == "write":
            await self.ask(agent, [call("Write", file_path=f"new{number}.txt", content=f"{number}\n")])
        elif kind == "steps":
            todos = [{"content": f"Step {number}", "status": "pending", "activeForm": "Going"}]
            await self.ask(agent, [call("TodoWrite", todos=todos)])
        elif kind == "trim":
            await session.trim(0)
        elif kind == "reload":
            await session.reload()
        elif kind == "back":
            await session.read_back(session.view.history[-1].uuid)
            await self.ask(agent)
        else:
            self.replies = ["A long answer. " * 9_000, "Yes.", "<summary>All of it.</summary>"]
            for _ in range(2):
                _ = [event async for event in agent.ask("tell me more")]
            await session.compact(instructions="Be short.")


def call(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": given}


@pytest.mark.requirement("K1", "W5")
def test_every_field_of_an_open_agent_is_classified(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def main() -> None:
        async with desk.agent() as agent:
            await desk.ask(agent)
            assert problems(agent) == []

    anyio.run(main)


def test_known_bad_a_new_field_without_a_class_is_found(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def main() -> None:
        async with desk.agent() as agent:
            cast("Any", agent.session.parts.trim).invented = 3
            cast("Any", agent.parts.runs).also_invented = {}
            assert problems(agent) == ["ToolRuns.also_invented has no class", "Trimmer.invented has no class"]

    anyio.run(main)


STEPS = ("read", "part", "write", "steps", "trim", "reload", "back", "compact")


@pytest.mark.requirement("K1", "W5", "W7")
@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_a_resumed_agent_has_every_value_that_comes_from_the_log(
    number: int, tmp_path: Path, seed: int, torture: bool
) -> None:
    pick = random.Random(seed + number)
    desk = Desk(tmp_path)
    print(f"seed {seed + number}")

    async def main() -> None:
        before: dict[str, Any] = {}
        for at in range(60 if torture else 10):
            kind = STEPS[at] if at < len(STEPS) and number == 0 else pick.choice(STEPS)
            async with desk.agent() as agent:
                after = logged_values(agent)
                different = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
                assert not different, (at, different)
                await desk.step(agent, kind, at)
                before = logged_values(agent)
        assert before["ReadState.known"].count
        assert before["LogWriter.view"][-1] is not None

    anyio.run(main)
