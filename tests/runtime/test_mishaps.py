"""Failures between a session and its log, its caller and its provider, and the guarantees that still hold."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from prefixes import extends
from reverie import InMemoryStorage, InputError, Session, StorageError, load_settings
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.validate import problems
from reverie.events import CacheBroken, DecisionMade, Event, FellBack, RequestPrepared
from reverie.settings import Settings
from reverie.storage.files import FileStorage

MODEL = "claude-sonnet-4-5"
READ: dict[str, Any] = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, name: str = "Read") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {"file_path": "/a"}}


def reply(*blocks: dict[str, Any], id: str = "msg_1") -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {"id": id, "role": "assistant", "model": MODEL, "content": list(blocks), "usage": usage}


class Failing(InMemoryStorage):
    """A store whose append writes the line and then says that it could not, when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: set[str] = set()
        self.writes = True

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        for word in list(self.fails):
            if word.encode() in line:
                self.fails.discard(word)
                if self.writes:
                    super().append(key, line, expect=expect)
                raise StorageError("the disk failed", path=key)
        super().append(key, line, expect=expect)


@pytest.mark.requirement("K11", "K2")
def test_a_line_that_was_written_although_the_append_failed_is_in_the_view_too():
    async def steps() -> None:
        storage = Failing()
        async with Session.open("s", storage=storage) as session:
            await session.say("one")
            storage.fails = {"two"}
            with pytest.raises(StorageError):
                await session.say("two")
            sent = await session.prepare(model=MODEL, max_tokens=9)
            assert session.view.messages()[0]["content"] == [text("one"), text("two")]
        async with Session.open("s", storage=storage) as session:
            assert canonical(await session.prepare(model=MODEL, max_tokens=9)) == canonical(sent)

    anyio.run(steps)


@pytest.mark.requirement("K11")
def test_a_caller_that_gives_up_waiting_does_not_change_the_order_of_the_log(tmp_path: Path, home: Path):
    gate, reached = threading.Event(), threading.Event()

    class Slow(FileStorage):
        def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
            if b"FIRST" in line:
                reached.set()
                gate.wait(60)
            super().append(key, line, expect=expect)

    async def steps() -> None:
        storage = Slow(home)
        async with Session.open("s", cwd=tmp_path, storage=storage) as session:
            first = asyncio.create_task(session.say("FIRST"))
            await asyncio.to_thread(reached.wait, 60)
            first.cancel()
            second = asyncio.create_task(session.say("SECOND"))
            await asyncio.sleep(0)
            gate.set()
            await second
            with pytest.raises(asyncio.CancelledError):
                await first
            live = session.view.messages()
        async with Session.open("s", cwd=tmp_path, mode="read", storage=storage) as session:
            assert session.view.messages() == live == [{"role": "user", "content": [text("FIRST"), text("SECOND")]}]

    asyncio.run(steps())


@pytest.mark.requirement("L1.7")
def test_a_result_that_could_not_be_said_and_comes_again_is_shown_as_it_came_again():
    async def steps() -> None:
        storage = Failing()
        storage.writes = False
        async with Session.open("s", storage=storage) as session:
            await session.say("go")
            await session.prepare(model=MODEL, max_tokens=9, tools=[{**READ, "name": "Bash"}])
            await session.observe(reply(call("a1", "Bash")))
            storage.fails = {'"type":"tool_result"'}
            with pytest.raises(StorageError):
                await session.result("a1", "")
            await session.result("a1", "REAL OUTPUT")
            assert session.view.messages()[-1]["content"][0]["content"] == "REAL OUTPUT"

    anyio.run(steps)


@pytest.mark.requirement("C1")
def test_replies_that_all_have_one_id_do_not_change_what_was_sent():
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            sent: list[bytes] = []
            await session.say("go")
            for number in range(4):
                request = canonical(await session.prepare(model=MODEL, max_tokens=9))
                assert extends(sent, request)
                sent = request
                await session.observe(reply(text(f"answer {number}"), id="always-the-same"))

    anyio.run(steps)


@pytest.mark.requirement("C1", "K4")
@pytest.mark.parametrize("goes_on", ["the user", "the provider", "the provider with a call", "twice"])
def test_a_paused_server_call_that_is_given_up_is_a_logged_decision(goes_on: str):
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            events: list[Event] = []
            session.listen(events.append)
            await session.say("search")
            await session.prepare(model=MODEL, max_tokens=9, tools=[READ])
            paused = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}
            await session.observe(reply(text("looking"), paused))
            if goes_on == "twice":
                await session.prepare(model=MODEL, max_tokens=9, tools=[READ])
                await session.observe(reply({**paused, "id": "srv_2"}, id="msg_2"))
            sent = canonical(await session.prepare(model=MODEL, max_tokens=9, tools=[READ]))
            events.clear()
            if goes_on == "the user":
                await session.say("never mind")
            elif goes_on == "the provider with a call":
                await session.observe(reply(call("t1"), id="msg_3"))
                await session.result("t1", "x")
            else:
                await session.observe(reply(text("here it is"), id="msg_3"))
                await session.say("thanks")
            request = await session.prepare(model=MODEL, max_tokens=9, tools=[READ])
            assert problems(request) == []
            assert not extends(sent, canonical(request))  # the call became text
            moved = [event for event in events if isinstance(event, DecisionMade) and event.decision.cause.moves_prefix]
            assert len(moved) == 1
            sent = canonical(request)
            assert extends(sent, canonical(await session.prepare(model=MODEL, max_tokens=9, tools=[READ])))
            await session.say("and now?")
            assert extends(sent, canonical(await session.prepare(model=MODEL, max_tokens=9, tools=[READ])))

    anyio.run(steps)


@pytest.mark.requirement("C1", "K8", "V6")
def test_tools_known_only_from_their_calls_are_declared_once_by_a_logged_decision():
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            events: list[Event] = []
            session.listen(events.append)
            await session.say("go")
            first = await session.prepare(model=MODEL, max_tokens=9)
            await session.observe(reply(call("a", "Read"), id="m1"))
            await session.result("a", "x")
            second = await session.prepare(model=MODEL, max_tokens=9)
            await session.observe(reply(call("b", "Bash"), id="m2"))
            await session.result("b", "y")
            third = await session.prepare(model=MODEL, max_tokens=9)
            assert "tools" not in first
            assert [tool["name"] for tool in second["tools"]] == ["Read"]
            assert third["tools"] == second["tools"]
            moves = [event for event in events if isinstance(event, DecisionMade) and event.decision.cause.moves_prefix]
            assert len(moves) == 1
            assert [event.what for event in events if isinstance(event, FellBack)] == ["tools"]

    anyio.run(steps)


@pytest.mark.requirement("V6")
def test_a_session_that_began_without_tools_keeps_its_prefix_when_added_tools_are_called():
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await session.say("go")
            first = await session.prepare(model="claude-opus-5-5", max_tokens=9)
            await session.observe(reply(text("Yes?"), id="m1"))
            await session.say("read it")
            await session.prepare(model="claude-opus-5-5", max_tokens=9, tools=[READ])
            await session.observe(reply(call("a", "Read"), id="m2"))
            await session.result("a", "x")
            request = await session.prepare(model="claude-opus-5-5", max_tokens=9, tools=[READ])
            assert "tools" not in first
            assert "tools" not in request
            assert "tool_addition" in str(request["messages"])
            assert problems({key: value for key, value in request.items() if key != "extra_headers"}) == []

    anyio.run(steps)


@pytest.mark.requirement("C3")
def test_a_tool_that_is_loaded_later_carries_no_breakpoint_and_callers_place_none():
    async def steps() -> None:
        later = {**READ, "name": "Later", "defer_loading": True}
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await session.say("go")
            request = await session.prepare(model=MODEL, max_tokens=9, tools=[READ, later])
            assert "cache_control" not in request["tools"][1]
            with pytest.raises(InputError, match="breakpoints"):
                await session.prepare(model=MODEL, max_tokens=9, cache_control={"type": "ephemeral"})

    anyio.run(steps)


@pytest.mark.requirement("L1.3")
def test_two_late_results_of_one_call_can_both_be_read_back():
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await session.say("go")
            await session.prepare(model=MODEL, max_tokens=9, tools=[{**READ, "name": "Bash"}])
            await session.observe(reply(call("a1", "Bash")))
            await session.prepare(model=MODEL, max_tokens=9, tools=[{**READ, "name": "Bash"}])
            for letter in ("A", "B"):
                await session.result("a1", letter * 60_000)
            shown = str(session.view.messages())
            handles = sorted({word.strip("'\",.)(") for word in shown.replace("\\n", " ").split() if "-late-" in word})
            read = {await session.read_back(handle.rsplit("/", 1)[-1].removesuffix(".txt")) for handle in handles}
            assert {b"A" * 60_000, b"B" * 60_000} <= read

    anyio.run(steps)


@pytest.mark.requirement("L2.8")
def test_a_clearing_that_could_not_be_logged_is_done_the_next_time():
    async def steps() -> None:
        storage = Failing()
        storage.writes = False
        async with Session.open("s", storage=storage) as session:
            await session.say("go")
            for number in range(8):
                await session.observe(reply(call(f"a{number}"), id=f"m{number}"))
                await session.result(f"a{number}", f"{number} line of text\n" * 400)
            storage.fails = {"results_cleared"}
            with pytest.raises(StorageError):
                await session.trim(100)
            assert await session.trim(100) is not None
            assert len(session.view.overrides.results) >= 4

    anyio.run(steps)


def test_odd_calls_are_not_handed_out_and_a_reply_told_twice_counts_once():
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await session.say("go")
            odd = [{"type": "tool_use"}, {"type": "tool_use", "id": "functions.bash:0", "name": "Read", "input": {}}]
            answer = reply(text("hello"), *odd, call("a1"))
            assert [one.id for one in await session.observe(answer)] == ["a1"]
            entries = len(session.view.history)
            assert [one.id for one in await session.observe(answer)] == ["a1"]
            assert len(session.view.history) == entries
            with pytest.raises(InputError, match="not cleared"):
                await session.restore(["a1"])

    anyio.run(steps)


@pytest.mark.requirement("T1")
@pytest.mark.parametrize("factor", [0.6, 1.0, 1.6])
def test_the_count_after_a_clearing_is_what_the_bill_would_say(factor: float):
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await session.say("go")
            for number in range(12):
                bill = round(factor * (sum(len(str(message)) for message in session.view.messages()) / 4))
                usage = {"input_tokens": max(1, bill), "output_tokens": 20}
                await session.observe({**reply(call(f"a{number}"), id=f"m{number}"), "usage": usage})
                await session.result(f"a{number}", f"line {number} of some text that is read\n" * 150)
            await session.trim(1_000)
            true = factor * (sum(len(str(message)) for message in session.view.messages()) / 4)
            assert 0.6 * true <= session.view.token_count.tokens <= 1.5 * true

    anyio.run(steps)


def test_a_projects_own_file_can_turn_a_switch_off(tmp_path: Path):
    (tmp_path / ".reverie.toml").write_text("[switches]\noffload = false\n")
    settings: Settings = Session.open("s", cwd=tmp_path).settings
    assert not settings.switches.offload
    assert load_settings().switches.offload


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(
    ("options", "window"),
    [
        ({}, 200_000),
        ({"betas": ["context-1m-2025-08-07"]}, 1_000_000),
        ({"extra_headers": {"Anthropic-Beta": "other, context-1m-2025-08-07"}}, 1_000_000),
    ],
)
def test_a_beta_header_widens_the_window_of_the_request_it_goes_with(options: dict[str, Any], window: int):
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            events: list[Event] = []
            session.listen(events.append)
            await session.say("hello")
            request = await session.prepare(model="claude-haiku-4-5", max_tokens=9, **options)
            assert {key: request[key] for key in options} == options
            (prepared,) = [event for event in events if isinstance(event, RequestPrepared)]
            assert prepared.window == window

    anyio.run(steps)


@pytest.mark.requirement("C4")
def test_a_break_by_the_first_call_after_a_resume_is_named():
    async def steps() -> None:
        storage, now = InMemoryStorage(), [1_000.0]

        def read(tokens: int, written: int) -> dict[str, int]:
            return {"input_tokens": 5, "cache_read_input_tokens": tokens, "cache_creation_input_tokens": written}

        async with Session.open("s", storage=storage, clock=lambda: now[0]) as session:
            await session.say("hello")
            await session.prepare(model=MODEL, max_tokens=9, system="Be kind.")
            await session.observe({**reply(text("hi")), "usage": read(0, 50_000)})
            await session.say("more")
        now[0] += 20
        for system, told in (("Be kind.", []), ("Be terse.", ["system[0] changed"])):
            async with Session.open("s", storage=storage, clock=lambda: now[0]) as session:
                events: list[Event] = []
                session.listen(events.append)
                await session.prepare(model=MODEL, max_tokens=9, system=system)
                used = read(50_000, 10) if not told else read(0, 50_020)
                await session.observe({**reply(text("so"), id=f"m{len(told)}"), "usage": used})
                await session.say("go on")
                assert [event.reason for event in events if isinstance(event, CacheBroken)] == told

    anyio.run(steps)
