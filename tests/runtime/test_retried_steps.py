"""A step that a durable runtime retries changes nothing: observe and result are idempotent by message id."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie import InMemoryStorage, Session
from reverie.conversation.decisions import Cause, Snipped
from reverie.conversation.view import View

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


TEXTS = st.sampled_from(["Done.", "Done.", "I see.", "odd \ud800 text"])
OUTPUTS = st.sampled_from(["short", "line\n" * 30_000, {"a": 1}, None, 2.5])
TURNS = st.one_of(
    st.tuples(st.just("text"), TEXTS),
    st.tuples(st.just("call"), OUTPUTS),
    st.tuples(st.just("late"), OUTPUTS),
    st.tuples(st.just("cut"), st.none()),
)


async def a_turn(session: Session, number: int, kind: str, given: Any, *, again: bool = False) -> None:
    """Take a turn, or with ``again`` retry its steps ``observe`` and ``result``."""
    if kind == "cut":
        if not again and session.view.length > 4:
            gone = [item.uuid for item in session.view.items_in_view()[:-3]]
            await session.log.decide(Snipped(Cause("compact", "for room", moves_prefix=True), gone))
        return
    if not again:
        await session.say(f"Question {number}, which says enough to be worth some words.")
        await session.prepare(model=MODEL, max_tokens=9, tools=[TOOL])
    if kind == "text":
        await session.observe(reply({"type": "text", "text": given}, id=f"m{number}"))
        return
    await session.observe(reply(call(f"t{number}"), id=f"m{number}"))
    if kind == "late" and not again:
        await session.prepare(model=MODEL, max_tokens=9, tools=[TOOL])
    await session.result(f"t{number}", given)


async def changed_by_retries(turns: list[tuple[str, Any]], retried: list[int]) -> list[int]:
    """Take turns, retry some of them with a random delay and some in another process; return those that changed."""
    storage = InMemoryStorage()
    changed: list[int] = []

    def stored() -> dict[str, bytes | None]:
        return {key: storage.load(key) for key in storage.list()}

    async def retry(session: Session, number: int) -> None:
        before, view = stored(), session.view.messages()
        await a_turn(session, number, *turns[number], again=True)
        if stored() != before or session.view.messages() != view:
            changed.append(number)

    async with Session.open("s", storage=storage) as session:
        for number, turn in enumerate(turns):
            await a_turn(session, number, *turn)
            for one in retried[number : number + 1]:
                await retry(session, one % (number + 1))
        for number in range(len(turns)):
            await retry(session, number)
    async with Session.open("s", storage=storage) as session:
        for number in reversed(range(len(turns))):
            await retry(session, number)
    return changed


@pytest.mark.slow
@pytest.mark.requirement("X4")
@given(st.lists(TURNS, min_size=1, max_size=8), st.lists(st.integers(0, 7), max_size=8))
def test_a_step_that_is_retried_at_any_later_time_changes_nothing(
    turns: list[tuple[str, Any]], retried: list[int]
) -> None:
    assert anyio.run(changed_by_retries, turns, retried) == []


def test_the_check_above_detects_a_session_that_knows_no_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "may_have_reply", lambda *_: False)
    assert anyio.run(changed_by_retries, [("text", "Done."), ("text", "I see.")], [])


@pytest.mark.parametrize("ids", [["a"], ["a", "b"]], ids=["one", "two in turn"])
def test_a_provider_that_gives_ids_again_loses_no_reply(ids: list[str]) -> None:
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            for number, text in enumerate(("yes", "no", "yes", "no")):
                await session.say("and now?")
                made = reply({"type": "text", "text": text}, id=ids[number % len(ids)])
                await session.observe({**made, "usage": {"input_tokens": 10 * number, "output_tokens": 5}})
            assert [str(one).count("yes") for one in session.view.messages()].count(1) == 2
            assert session.view.length == 8

    anyio.run(steps)
