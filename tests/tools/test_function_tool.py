"""``@tool``: a typed function as a tool, in an agent and in an own loop."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import msgspec
import pytest

from reverie import Agent, InMemoryStorage, InputError, Session, Settings, tool
from reverie.events import Event, PermissionDecided, ToolFinished
from reverie.models import ScriptedModel
from reverie.runtime.guard.permissions import Approval, ApprovalAnswer
from reverie.tools.function_tool import FunctionTool

MODEL = "claude-sonnet-4-5"


class Item(msgspec.Struct):
    """One line of an order."""

    name: str
    number: int = 1


@tool
def lookup(order: str, kind: Literal["open", "paid"] = "open") -> str:
    """Return the state of an order."""
    if order == "lost":
        raise LookupError("no such order")
    return f"{order} is {kind} in {threading.current_thread() is threading.main_thread()}"


@tool(name="add_items", access="none")
async def add(items: list[Item], limit: Annotated[int, msgspec.Meta(ge=1)] = 3) -> dict[str, int]:
    """Count items."""
    return {item.name: min(item.number, limit) for item in items}


def call(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"t{len(str(given))}", "name": name, "input": given}


@pytest.mark.requirement("U2")
def test_name_description_and_schema_come_from_the_function() -> None:
    assert (lookup.name, lookup.description, lookup("a")) == (
        "lookup",
        "Return the state of an order.",
        "a is open in True",
    )
    assert lookup.input_schema == {
        "type": "object",
        "properties": {"order": {"type": "string"}, "kind": {"enum": ["open", "paid"], "default": "open"}},
        "required": ["order"],
        "additionalProperties": False,
    }
    assert add.name == "add_items"
    assert add.input_schema["properties"]["items"] == {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    assert add.input_schema["properties"]["limit"] == {"type": "integer", "minimum": 1, "default": 3}
    assert list(add.input_schema["$defs"]) == ["Item"]


def test_a_function_without_a_schema_is_refused_where_it_is_defined() -> None:
    def anything(*words: str) -> None: ...
    def strange(lock: threading.Thread) -> None: ...

    with pytest.raises(InputError, match="anything cannot be a tool"):
        tool(anything)
    with pytest.raises(InputError, match="strange cannot be a tool"):
        tool(strange)


async def own_loop(*calls: dict[str, Any]) -> list[tuple[Any, bool]]:
    """Let a model make these calls in one reply of an own loop; return the logged results."""
    tools: list[FunctionTool[..., Any]] = [lookup, add]
    async with Session.open("s", storage=InMemoryStorage()) as session:
        await session.say("go")
        request = await session.prepare(model=MODEL, max_tokens=99, tools=tools)
        assert [one["name"] for one in request["tools"]] == ["lookup", "add_items"]
        for one in await session.observe({"role": "assistant", "content": list(calls)}):
            await session.run(one, tools)
        blocks = [block for one in session.view.messages()[2:] for block in one["content"]]
        return [(block["content"], block.get("is_error", False)) for block in blocks]


@pytest.mark.requirement("U2")
def test_an_own_loop_runs_functions_and_every_failure_is_a_readable_result() -> None:
    found = anyio.run(
        own_loop,
        call("lookup", order="42", kind="paid"),
        call("add_items", items=[{"name": "cup", "number": 9}]),
        call("lookup", order=["x"]),
        call("lookup", order="lost"),
        call("nobody", a="a"),
    )
    assert found[0] == ("42 is paid in False", False), "a plain function does not block the event loop"
    assert found[1] == ('{"cup":3}', False)
    assert [is_error for _, is_error in found[2:]] == [True, True, True]
    told = [text for text, _ in found[2:]]
    assert "order" in told[0]
    assert "no such order" in told[1]
    assert "lookup, add_items" in told[2]


@pytest.mark.requirement("U2")
def test_an_input_that_passes_the_schema_check_of_a_provider_is_still_checked() -> None:
    output = anyio.run(add.run, {"items": [{"name": 3}]})
    assert (output.is_error, "`str`" in output.content, "items[0].name" in output.content) == (True, True, True)


async def agent_run(tmp_path: Path, effect: Any, **options: Any) -> tuple[list[bool], list[str]]:
    """Let an agent call a function with this access; return the decisions and the tools that ran."""

    @tool(access=effect)
    def act() -> str:
        """Do something."""
        return "done"

    seen: list[Event] = []
    model = ScriptedModel([[call("act")], "Done."])
    agent = Agent(model=model, tools=[act], cwd=tmp_path, settings=Settings(home=tmp_path / "home"), **options)
    async for event in agent.ask("go"):
        seen.append(event)
    decided = [one.allowed for one in seen if isinstance(one, PermissionDecided)]
    return decided, [one.text for one in seen if isinstance(one, ToolFinished)]


@pytest.mark.requirement("U2")
@pytest.mark.parametrize(
    ("effect", "mode", "ran"),
    [
        ("own", "default", True),
        ("own", "plan", False),
        ("none", "plan", True),
        ("other", "default", False),
        ("other", "bypass", True),
    ],
)
def test_an_agent_runs_a_function_by_its_access_and_the_mode(tmp_path: Path, effect: str, mode: Any, ran: bool) -> None:
    async def steps() -> None:
        assert await agent_run(tmp_path, effect, mode=mode) == ([ran], ["done"] if ran else [])

    anyio.run(steps)


def test_the_function_that_approves_is_asked_and_sees_the_call(tmp_path: Path) -> None:
    asked: list[str] = []

    async def approve(approval: Approval) -> ApprovalAnswer:
        asked.append(f"{approval.tool} {approval.access.kind}")
        return ApprovalAnswer("once")

    async def steps() -> None:
        assert await agent_run(tmp_path, "other", approve=approve) == ([True], ["done"])

    anyio.run(steps)
    assert asked == ["act other"]
