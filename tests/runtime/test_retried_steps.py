"""A step that a durable runtime retries changes nothing: observe and result are idempotent by message id."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session

MODEL = "claude-sonnet-5"
TOOL: dict[str, Any] = {"name": "Read", "description": "Read.", "input_schema": {"type": "object"}}


def reply(*blocks: dict[str, Any], id: str) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {"id": id, "role": "assistant", "content": list(blocks), "stop_reason": "end_turn", "usage": usage}


def call(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {}}


@pytest.mark.requirement("X4")
@pytest.mark.parametrize(
    "output", ["short", "line\n" * 30_000, {"a": 1}, None], ids=["text", "offloaded", "json", "none"]
)
def test_a_retried_step_changes_nothing(output: Any) -> None:
    async def steps() -> None:
        storage = InMemoryStorage()

        def stored() -> dict[str, bytes | None]:
            return {key: storage.load(key) for key in storage.list()}

        async with Session.open("s", storage=storage) as session:
            await session.say("go")
            await session.prepare(model=MODEL, max_tokens=9, tools=[TOOL])
            for number in range(3):
                first = await session.observe(reply(call(f"t{number}"), id=f"m{number}"))
                before = stored()
                assert await session.observe(reply(call(f"t{number}"), id=f"m{number}")) == first
                assert stored() == before
                entry = await session.result(f"t{number}", output)
                before = stored()
                assert (await session.result(f"t{number}", output)).uuid == entry.uuid
                await session.observe(reply(call(f"t{number}"), id=f"m{number}"))
                assert (await session.result(f"t{number}", "another run of the same tool")).uuid == entry.uuid
                assert stored() == before
                await session.prepare(model=MODEL, max_tokens=9, tools=[TOOL])
        async with Session.open("s", storage=storage) as session:  # the step is retried by another process
            before = stored()
            await session.result("t2", output)
            await session.observe(reply(call("t2"), id="m2"))
            assert stored() == before
            for number in range(3):  # the whole workflow is retried
                calls = await session.observe(reply(call(f"t{number}"), id=f"m{number}"))
                assert [one.id for one in calls] == [f"t{number}"]
                await session.result(f"t{number}", output)
            assert stored() == before

    anyio.run(steps)


def test_a_late_result_is_told_once_and_another_one_too() -> None:
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await session.say("go")
            await session.observe(reply(call("t"), id="m"))
            await session.prepare(model=MODEL, max_tokens=9, tools=[TOOL])  # a placeholder stands for the result
            for output in ("late", "late", "other", "late"):
                await session.result("t", output)
            shown = str(session.view.messages())
            assert (shown.count("'late'"), shown.count("'other'")) == (1, 1)

    anyio.run(steps)
