"""For any change a host makes to its history, that history is sent, and the provider accepts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pictures import image_block, png
from reverie import InMemoryStorage, Memory, Session
from reverie.conversation.decisions import ThinkingDropped
from reverie.conversation.wire.validate import problems
from reverie.errors import SessionError
from reverie.integrations.history_pieces import HistoryReader
from reverie.integrations.host_session import HostSession
from thinking_desk import SHOWN, Desk

TOOL = {"name": "Bash", "description": "Run.", "input_schema": {"type": "object"}}


def asked(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-6", "max_tokens": 100, "tools": [TOOL], "messages": messages}


def reply(identity: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"id": identity, "model": "claude-sonnet-4-6", "role": "assistant", "content": list(blocks)}


def words(request: dict[str, Any]) -> list[str]:
    """Return what a request says, in order, without what stands in for results that never came."""
    said: list[str] = []
    for message in request["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "text" and block["text"]:
                said.append(block["text"])
            elif block["type"] == "tool_use":
                said.append(block["id"])
    return said


EDITS = st.lists(
    st.tuples(st.sampled_from(["say", "call", "drop", "rewrite", "empty", "cut", "fork"]), st.integers(0, 9)),
    min_size=1,
    max_size=14,
)


@settings(max_examples=20)
@given(EDITS, st.booleans())
def test_the_view_follows_a_host_that_edits_drops_and_branches(edits: list[tuple[str, int]], again: bool) -> None:
    """``follow`` asserts it after each edit."""
    anyio.run(follow, edits, again)


async def follow(edits: list[tuple[str, int]], again: bool) -> None:
    storage = InMemoryStorage()
    history: list[dict[str, Any]] = [{"role": "user", "content": "begin"}]
    branches: list[list[dict[str, Any]]] = []
    number = 0
    async with Session.open("edits", storage=storage) as first:
        hosted = HostSession(first)
        for kind, at in edits:
            number += 1
            branches.append(list(history))
            history = list(branches[at % len(branches)]) if kind == "fork" else history
            change(history, kind, at, number)
            request = await hosted.prepare(asked(history))
            assert problems(request) == []
            assert words(request) == words({"messages": history})
            made = reply(f"m{number}", *answer(kind, number))
            await hosted.observe(made)
            history.append({"role": "assistant", "content": made["content"]})
            if kind == "call":
                output = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"output {number}"}
                history.append({"role": "user", "content": [output]})
    if again:  # another process, which knows nothing but the log
        async with Session.open("edits", storage=storage) as second:
            history.append({"role": "user", "content": "back again"})
            before = len(second.view.history)
            request = await HostSession(second).prepare(asked(history))
            assert words(request) == words({"messages": history})
            assert len(second.view.history) - before <= 2


def answer(kind: str, number: int) -> list[dict[str, Any]]:
    if kind == "call":
        return [{"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": f"run {number}"}}]
    return [{"type": "text", "text": f"reply {number}"}]


def change(history: list[dict[str, Any]], kind: str, at: int, number: int) -> None:
    """Do to a history what hosts do, and end it with something to answer."""
    said = [one["role"] == "user" and isinstance(one["content"], str) and one["content"] != "" for one in history]
    spoken = [index for index, is_said in enumerate(said) if is_said]
    chosen = spoken[at % len(spoken)]
    if kind == "drop" and chosen:
        del history[:chosen]
    elif kind == "rewrite":
        history[chosen] = {"role": "user", "content": f"rather {number}"}
    elif kind == "empty" and chosen and chosen + 1 < len(history):
        history[chosen] = {"role": "user", "content": ""}
    elif kind == "cut":
        del history[chosen + 1 :]
    if history[-1]["role"] == "assistant" or not history[-1]["content"]:
        history.append({"role": "user", "content": f"say {number}"})


CHECKED = "claude-opus-5-5"
HOST_EDITS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "a summary in front": lambda history: history.__setitem__(0, {"role": "user", "content": "A summary of it."}),
    "another message in front": lambda history: history.insert(0, {"role": "user", "content": "Be brief."}),
    "another word in a reply": lambda history: history[1]["content"].append({"type": "text", "text": "Well."}),
}


@pytest.mark.requirement("V2")
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("edit", HOST_EDITS)
def test_thinking_in_replies_that_a_host_sends_behind_another_past_is_dropped_before_it_is_refused(
    edit: str, again: bool
) -> None:
    desk = Desk()
    history: list[dict[str, Any]] = []

    async def turn(hosted: HostSession, words: str) -> dict[str, Any]:
        history.append({"role": "user", "content": words})
        request = await hosted.prepare({**asked(history), "model": CHECKED, "thinking": SHOWN})
        made = (await desk.models[CHECKED].complete(request)).body
        await hosted.observe(made)
        history.append({"role": "assistant", "content": made["content"]})
        return request

    async def main() -> None:
        desk.calls = False
        async with desk.session(None) as session:
            hosted = HostSession(session)
            for number in range(3):
                await turn(hosted, f"say {number}")
            if not again:
                HOST_EDITS[edit](history)
                await turn(hosted, "go on")
        async with desk.session(None) as session:
            hosted = HostSession(session)
            if again:
                HOST_EDITS[edit](history)
            request = await turn(hosted, "and on")
            assert words(request) == words({"messages": history[:-1]})

    anyio.run(main)
    assert desk.refusals == []
    assert len(desk.decisions(ThinkingDropped)) == 1


@pytest.mark.parametrize("again", [False, True])
def test_an_image_with_which_a_host_replaces_a_result_is_sent(again: bool) -> None:
    storage, picture = InMemoryStorage(), image_block(png(2, 2))
    output: dict[str, Any] = {"type": "tool_result", "tool_use_id": "t1", "content": "pending"}
    history: list[dict[str, Any]] = [{"role": "user", "content": "begin"}]

    async def sent(hosted: HostSession) -> list[dict[str, Any]]:
        request = await hosted.prepare(asked(history))
        assert problems(request) == []
        return request["messages"]

    async def main() -> None:
        async with Session.open("pictures", storage=storage) as session:
            hosted = HostSession(session)
            for number in (1, 2):
                await sent(hosted)
                made = reply(f"m{number}", *answer("call", number))
                await hosted.observe(made)
                result = output if number == 1 else {**output, "tool_use_id": "t2", "content": "two"}
                history.extend(
                    [{"role": "assistant", "content": made["content"]}, {"role": "user", "content": [result]}]
                )
            await sent(hosted)
            output["content"] = [picture]
            if not again:
                assert (await sent(hosted))[2]["content"][0]["content"] == [picture]
        async with Session.open("pictures", storage=storage) as session:
            messages = await sent(HostSession(session))
            assert messages[2]["content"][0]["content"] == [picture]
            assert words({"messages": messages}) == words({"messages": history})
            history[2]["content"] = [output, {**output, "content": [image_block(png(3, 3))]}]
            await sent(HostSession(session))

    anyio.run(main)


async def work_of_each_turn(hosted: HostSession, turns: int, work: Any) -> list[int]:
    """Return how many of our functions each turn of a conversation that calls tools takes."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "begin"}]
    counted: list[int] = []
    for number in range(turns):
        with work() as one:
            await hosted.prepare(asked(history))
            made = reply(f"m{number}", *answer("call", number))
            await hosted.observe(made)
        counted.append(one.calls)
        output = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"output {number}"}
        history += [{"role": "assistant", "content": made["content"]}, {"role": "user", "content": [output]}]
    return counted


@pytest.mark.requirement("B6")
async def test_the_work_of_a_turn_does_not_grow_with_the_history(work: Any, anyio_backend: str) -> None:
    async with Session.open("long", storage=InMemoryStorage()) as session:
        counted = await work_of_each_turn(HostSession(session), 30, work)
        assert max(counted[10:]) <= 1.2 * min(counted[10:])


async def test_a_host_that_is_read_from_its_beginning_at_every_turn_would_be_seen(
    work: Any, anyio_backend: str
) -> None:
    class Forgetful(HostSession):
        async def prepare(self, body: Any) -> Any:
            self._reader = HistoryReader()
            return await super().prepare(body)

    async with Session.open("long", storage=InMemoryStorage()) as session:
        counted = await work_of_each_turn(Forgetful(session), 24, work)
        assert max(counted[10:]) > 1.5 * min(counted[10:])


async def test_what_a_host_writes_into_its_history_is_followed(anyio_backend: str) -> None:
    async with Session.open("written", storage=InMemoryStorage()) as session:
        hosted = HostSession(session)
        history: list[dict[str, Any]] = [{"role": "user", "content": "begin"}]
        await hosted.prepare(asked(history))
        made = reply("m1", *answer("call", 1))
        await hosted.observe(made)
        output = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "the key is 42"}]}
        history += [{"role": "assistant", "content": made["content"]}, {"role": "user", "content": [output]}]
        await hosted.prepare(asked(history))
        output["content"] = [{"type": "text", "text": "the key is [redacted]"}]
        history[0]["content"] = "begin again"
        sent = str((await hosted.prepare(asked(history)))["messages"])
        assert ("42" in sent, "[redacted]" in sent, "begin again" in sent) == (False, True, True)


async def test_marks_that_a_host_sets_later_do_not_leave_in_our_requests(anyio_backend: str) -> None:
    async with Session.open("marked", storage=InMemoryStorage()) as session:
        hosted = HostSession(session)
        history: list[dict[str, Any]] = []
        for number in range(4):
            history.append({"role": "user", "content": [{"type": "text", "text": f"say {number}"}]})
            await hosted.prepare(asked(history))
            made = reply(f"m{number}", *answer("call", number))
            await hosted.observe(made)
            output = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "out"}
            history += [{"role": "assistant", "content": made["content"]}, {"role": "user", "content": [output]}]
        for message in history[:-1]:
            message["content"][0]["cache_control"] = {"type": "ephemeral"}
        request = await hosted.prepare(asked(history))
        assert problems(request) == []
        assert [str(message).count("cache_control") for message in request["messages"][:6]] == [0] * 6


TITLE = {"model": "claude-haiku-4-5", "max_tokens": 100, "system": "Write a title."}


async def exchanged(hosted: HostSession, history: list[dict[str, Any]], number: int) -> None:
    """Ask one thing and hear the answer."""
    history.append({"role": "user", "content": f"say {number}"})
    await hosted.prepare(asked(history))
    made = reply(f"m{number}", *answer("say", number))
    await hosted.observe(made)
    history.append({"role": "assistant", "content": made["content"]})


@pytest.mark.parametrize("turns", [1, 5])
async def test_what_asks_the_first_question_again_for_a_title_passes(turns: int, anyio_backend: str) -> None:
    async with Session.open("titled", storage=InMemoryStorage()) as session:
        hosted, history = HostSession(session), list[dict[str, Any]]()
        for number in range(turns):
            await exchanged(hosted, history, number)
        before = len(session.view.history)
        loop = [history[0], {"role": "assistant", "content": "Let me see."}, {"role": "user", "content": "Well?"}]
        for messages in ([history[0]], loop, [{"role": "user", "content": "a title, please"}]):
            with pytest.raises(SessionError, match="passes unchanged"):
                await hosted.prepare({**TITLE, "messages": messages})
        await exchanged(hosted, history, turns)
        assert len(session.view.history) == before + 2


async def test_a_title_that_came_first_gives_way_and_an_answer_drawn_anew_is_followed(anyio_backend: str) -> None:
    async with Session.open("first", storage=InMemoryStorage()) as session:
        hosted, history = HostSession(session), [{"role": "user", "content": "say 0"}]
        await hosted.prepare({**TITLE, "messages": history})
        await hosted.observe(reply("m-title", {"type": "text", "text": "A title"}))
        for number in range(3):
            history = history[:-1] if number == 0 else history
            await exchanged(hosted, history, number)
        assert "A title" not in str(session.view.messages())
        again = [history[0], {"role": "assistant", "content": "Rather this."}, {"role": "user", "content": "And?"}]
        request = await hosted.prepare({**asked(again), "system": "It is Tuesday."})
        assert words(request) == words({"messages": again})


async def test_a_history_that_is_not_followed_would_be_seen(anyio_backend: str) -> None:
    async with Session.open("bad", storage=InMemoryStorage()) as session:
        await session.say("begin")
        await session.say("what the host has taken back")
        request = await session.prepare(model="claude-sonnet-4-6", max_tokens=100)
        assert words(request) != ["begin"]


async def test_memories_open_the_conversation_and_what_helps_is_recalled(tmp_path: Any, anyio_backend: str) -> None:
    memory = Memory(tmp_path / "memory")
    memory.save("Use the real database in tests", type="feedback", why="a mock hid a broken migration")
    async with Session.open("recalled", storage=InMemoryStorage()) as session:
        hosted = HostSession(session, memory)
        request = await hosted.prepare(asked([{"role": "user", "content": "which database do the tests use?"}]))
        said = "\n".join(words(request))
        assert said.index("feedback_") < said.index("which database do the tests use?")
        assert "a mock hid a broken migration" in said
        await hosted.observe(reply("m1", {"type": "text", "text": "the real one"}))
        said_so = reply("m1", {"type": "text", "text": "the real one"})
        longer = [{"role": "user", "content": "which database do the tests use?"}, said_so]
        again = await hosted.prepare(asked([*longer, {"role": "user", "content": "thanks"}]))
        assert words(again)[: len(words(request))] == words(request)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


pytestmark = pytest.mark.anyio
