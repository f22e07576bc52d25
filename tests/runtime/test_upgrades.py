"""A session that an older version of the program wrote goes on with the system prompt and tools of its log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixes import extends
from reverie import Session
from reverie.conversation.decisions import PrefixRendered, decision_of
from reverie.conversation.entries import DECISION
from reverie.conversation.log import parse_log
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.schemas import input_problem, takes_inputs_of
from reverie.conversation.wire.validate import problems
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent import parts
from reverie.runtime.agent.agent import Agent
from reverie.runtime.places.projects import project_slug
from reverie.settings import AgentPolicy, Settings, Switches
from reverie.tools import standard_tools
from reverie.tools.tool import Tool
from reverie.tools.web_fetch import WebFetch
from reverie.values import replace

CARE = "- Never publish a package without the user's word."


class World:
    """One home with one session of an agent."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.work.mkdir()
        self.settings = Settings(home=root / "home", switches=Switches(extraction=False, notes=False, dream=False))
        self.model = ScriptedModel(lambda request: "Fine.", capabilities=Capabilities(True, window=200_000))

    async def ask(self, *, compacts: bool = False, **options: Any) -> dict[str, Any]:
        """Ask the agent one question, after a compaction if that is asked for; return the request."""
        options = {"settings": self.settings, **options}
        async with Agent(model=self.model, cwd=self.work, session="talk", **options) as agent:
            if compacts:
                await agent.session.compact()
            async for _ in agent.ask("go on " + "and on " * 2_000):
                pass
        return self.model.requests[-1]

    def rendered(self) -> list[str]:
        """Return the reasons of all prefixes that the log has."""
        log = self.settings.home / "projects" / project_slug(self.work) / "talk.jsonl"
        decisions = [decision_of(entry.body) for entry in parse_log(log.read_bytes()).entries if entry.kind == DECISION]
        return [one.cause.reason for one in decisions if isinstance(one, PrefixRendered)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes the rest of the test a newer version of the program."""

    def upgraded(**input_schema: Any) -> None:
        prompt = parts._prompt  # pyright: ignore[reportPrivateUsage]

        def newer_prompt(name: str, tools: Any) -> str:
            text = prompt(name, tools).replace("- Short and plain.", "- As short as you can.")
            return text.replace("# Care\n", f"# Care\n{CARE}\n")

        def newer_tools(policy: AgentPolicy, only: Any = None) -> list[Tool]:
            read, *others = standard_tools(policy, only)
            monkeypatch.setattr(read, "description", f"{read.description} It is faster now.")
            monkeypatch.setattr(read, "input_schema", {**read.input_schema, **input_schema})
            return [read, *others, Novelty()]

        monkeypatch.setattr(parts, "_prompt", newer_prompt)
        monkeypatch.setattr(parts, "standard_tools", newer_tools)

    return upgraded


class Novelty(WebFetch):
    """A tool that the older version did not have."""

    name = "Novelty"


def _names(request: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in request["tools"]}


@pytest.mark.requirement("K11")
def test_an_upgrade_keeps_the_logged_prefix_until_the_next_compaction(
    world: World, upgrade: Callable[..., None]
) -> None:
    async def steps() -> list[dict[str, Any]]:
        first = await world.ask()
        upgrade()
        return [first, await world.ask(), await world.ask(), await world.ask(compacts=True), await world.ask()]

    first, second, third, cut, last = anyio.run(steps)
    for earlier, later in ((first, second), (second, third), (cut, last)):
        assert extends(canonical(earlier), canonical(later))
    assert [problems(one) for one in (second, third, cut, last)] == [[]] * 4
    assert str(second["messages"]).count(CARE) == str(third["messages"]).count(CARE) == 1
    assert "As short as you can" not in str(third)
    assert "As short as you can" in str(cut["system"])
    assert CARE in str(cut["system"])
    assert CARE not in str(cut["messages"])
    assert "It is faster now." in str(cut["tools"])
    assert "Novelty" in _names(cut) - _names(third)
    assert world.rendered() == ["first request", "the past was cut, so changes take effect"]


@pytest.mark.requirement("K11")
def test_without_the_rule_an_upgrade_rewrites_the_prefix(
    world: World, upgrade: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> bool:
        first = await world.ask()
        upgrade()
        monkeypatch.setattr("reverie.runtime.session.prefix.ProgramTexts.as_logged", lambda self, old, new, was: new)
        return extends(canonical(first), canonical(await world.ask()))

    assert not anyio.run(steps)


@pytest.mark.requirement("K11")
@pytest.mark.parametrize(
    "why", ["a tool refuses logged calls", "the user turned a tool on", "a timeout", "another model"]
)
def test_the_newer_prefix_holds_at_once_where_the_logged_one_cannot(
    world: World, upgrade: Callable[..., None], why: str
) -> None:
    async def steps() -> dict[str, Any]:
        await world.ask()
        upgrade(**({"required": ["file_path", "limit"]} if why == "a tool refuses logged calls" else {}))
        if why == "the user turned a tool on":
            world.settings = replace(world.settings, agent=AgentPolicy(web_fetch=True))
        if why == "a timeout":
            world.settings = replace(world.settings, agent=AgentPolicy(bash_timeout_seconds=77))
        if why == "another model":
            world.model = ScriptedModel(
                lambda request: "Fine.", name="scripted:other", capabilities=world.model.capabilities
            )
        return await world.ask()

    request = anyio.run(steps)
    assert "Novelty" in _names(request)
    assert "As short as you can" in str(request)
    assert "the tools changed, and this model takes new tools only in the prefix" in world.rendered()
    assert ("77 seconds" in str(request["tools"])) == (why == "a timeout")
    assert ("WebFetch" in _names(request)) == (why == "the user turned a tool on")


@pytest.mark.requirement("K11")
def test_an_agent_says_its_own_prompt_in_a_session_of_another_program(world: World) -> None:
    async def steps() -> dict[str, Any]:
        async with Session.open("talk", cwd=world.work, settings=world.settings) as session:
            await session.say("ahoy")
            await session.prepare(model="model", max_tokens=8000, system="You are a pirate.")
        return await world.ask()

    assert "You are Reverie" in str(anyio.run(steps)["system"])


def test_a_prompt_that_the_caller_wrote_changes_at_once(world: World) -> None:
    async def steps() -> dict[str, Any]:
        await world.ask(system="You are a pirate.")
        return await world.ask(system="You are a pirate.\nYou are polite.")

    assert "You are polite." in str(anyio.run(steps)["messages"])


_SCALARS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "description": "a name"},
        {"type": "string", "maxLength": 1},
        {"type": "integer"},
        {"enum": ["a", "b"]},
        {"enum": ["a"]},
        {"anyOf": [{"type": "integer"}, {"enum": ["a"]}]},
        {"anyOf": [{"type": "integer"}, {"enum": ["a", "b"]}]},
        {"type": "array", "items": {"type": "integer"}},
    ]
)
_SCHEMAS = st.builds(
    lambda properties, required, closed: {
        "type": "object",
        "properties": properties,
        "required": [name for name in required if name in properties],
        **({"additionalProperties": False} if closed else {}),
    },
    st.dictionaries(st.sampled_from("xyz"), _SCALARS),
    st.lists(st.sampled_from("xyz"), unique=True),
    st.booleans(),
)
_INPUTS = st.dictionaries(st.sampled_from("xyz"), st.sampled_from(["a", "b", "long", 1, [1], ["a"]]))


@given(_SCHEMAS, _SCHEMAS, st.lists(_INPUTS, min_size=1, max_size=20))
def test_a_schema_that_takes_the_inputs_of_an_older_one_refuses_none_of_them(
    new: dict[str, Any], old: dict[str, Any], inputs: list[dict[str, Any]]
) -> None:
    assert takes_inputs_of(old, old)
    if takes_inputs_of(new, old):
        for one in inputs:
            if _problem(old, one) is None:
                assert _problem(new, one) is None


def test_more_room_is_taken_and_less_room_is_refused() -> None:
    text, number = {"type": "string"}, {"type": "number"}
    old = {"type": "object", "properties": {"x": text}, "required": ["x"], "additionalProperties": False}
    more = {"type": "object", "properties": {"x": text, "y": number}, "additionalProperties": False}
    assert takes_inputs_of(more, old)
    assert not takes_inputs_of(old, more)
    assert not takes_inputs_of({**old, "properties": {"x": number}}, old)
    assert not takes_inputs_of({**old, "properties": {}}, old)


def _problem(schema: dict[str, Any], arguments: Any) -> str | None:
    return input_problem([{"name": "tool", "input_schema": schema}], "tool", arguments)
