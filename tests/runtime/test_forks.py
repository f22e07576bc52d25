"""A fork: a side question on the cached prefix, outside the conversation, that shares every possible byte."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from prefixes import extends
from reverie import InMemoryStorage, Session, SessionError
from reverie.cache.usage import Usage, usage_of
from reverie.conversation.decisions import CallRecorded, decision_of
from reverie.conversation.entries import DECISION
from reverie.conversation.fork import PLACEHOLDER, ForkBase, before_directive
from reverie.conversation.log import parse_log
from reverie.conversation.wire.blocks import as_blocks
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.validate import problems
from reverie.errors import ModelUnavailable
from reverie.model_facts import facts_of
from reverie.models.anthropic import AnthropicModel
from reverie.ports import Capabilities, Reply, ReplyDelta
from reverie.runtime.places.projects import log_key, project_slug
from reverie.runtime.session.forks import DENIED, Forks, ForkState, ForkToolResult, forking
from reverie.runtime.session.replies import Call
from reverie.testing.messages_server import ManualClock, MessagesServer

MODEL = "claude-sonnet-4-5"
START = 1_790_000_000.0
TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": f"{name} something.", "input_schema": {"type": "object"}}
    for name in ("Read", "Agent")
]
SYSTEM = "You are careful and brief. " * 200
STORY = "The harbour master wrote down every ship that came in, and the tide it came with. " * 60


def run(steps: Callable[[], Any]) -> None:
    anyio.run(steps)


class Said:
    """A model that answers by a function and keeps what it was asked."""

    name = "said"
    model_id = MODEL
    capabilities = Capabilities(caching=True)

    def __init__(self, answer: Callable[[Mapping[str, Any]], Any]) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.order: list[str] = []

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        self.requests.append(dict(request))
        number = len(self.requests)
        self.order.append(f"asked {number}")
        content: Any = self.answer(request)
        if callable(content):
            content = await content()
        self.order.append(f"answers {number}")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "text":
                yield ReplyDelta("text", block["text"])
                await anyio.lowlevel.checkpoint()
        usage = {"input_tokens": 100, "cache_read_input_tokens": 900, "output_tokens": 10}
        yield Reply({"id": f"f{number}", "role": "assistant", "model": MODEL, "content": blocks, "usage": usage})

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        async for piece in self.stream(request):
            if isinstance(piece, Reply):
                return piece
        raise AssertionError

    async def aclose(self) -> None:
        pass


def call(id: str, name: str = "Read") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {"file_path": "/a"}}


def reply(*blocks: dict[str, Any], id: str = "m1") -> dict[str, Any]:
    usage = {"input_tokens": 1_000, "output_tokens": 5}
    return {"id": id, "role": "assistant", "model": MODEL, "content": list(blocks), "usage": usage}


async def asked(session: Session) -> dict[str, Any]:
    return await session.prepare(model=MODEL, max_tokens=1_000, system=SYSTEM, tools=TOOLS, temperature=0.5)


@pytest.mark.requirement("L7.1")
def test_a_fork_is_the_parents_request_and_one_directive():
    model = Said(lambda _: "An answer.")

    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage(), clock=lambda: START) as session:
            await session.say("Read /a.")
            sent = await asked(session)
            await session.observe(reply({"type": "text", "text": "Reading."}, call("t1")))
            await session.result("t1", "hello")
            before = session.view.messages()
            answer = await Forks(session.parts.host, model).ask("What was read?", source="test", max_tokens=300)
            forked = model.requests[0]
            parent = await asked(session)
            assert answer.text == "An answer."
            assert answer.cache_read_share == pytest.approx(0.9)
            assert extends(canonical(sent), canonical(forked))
            assert extends(canonical(parent), canonical(forked))
            assert len(canonical(forked)) == len(canonical(parent)) + 1  # the directive, and nothing else
            assert {key: forked[key] for key in ("model", "temperature")} == {"model": MODEL, "temperature": 0.5}
            assert forked["max_tokens"] == 300
            assert problems(forked) == []
            assert session.view.messages() == before  # nothing of it is in the parent's conversation

    run(steps)


@pytest.mark.requirement("L7.1")
def test_what_a_fork_used_is_recorded_under_its_source_and_its_words_are_not():
    model = Said(lambda _: "A secret answer.")
    storage = InMemoryStorage()

    async def steps() -> None:
        async with Session.open("s", storage=storage, clock=lambda: START) as session:
            await session.say("hello")
            await asked(session)
            await session.observe(reply({"type": "text", "text": "Hi."}))
            answer = await Forks(session.parts.host, model).ask(
                "Say something.", source="session_memory", max_tokens=100
            )
            assert answer.usage == Usage(read=900, uncached=100, output=10)
            assert answer.cost_usd is not None
            assert answer.cost_usd > 0
        log = storage.load(log_key(project_slug(Path(".")), "s")) or b""
        entries = parse_log(log).entries
        calls = [decision_of(entry.body) for entry in entries if entry.kind == DECISION]
        sources = [one.source for one in calls if isinstance(one, CallRecorded)]
        assert sources == ["main", "session_memory"]
        assert b"secret answer" not in log
        assert b"Say something" not in log

    run(steps)


@pytest.mark.requirement("L7.2")
def test_forks_of_one_moment_differ_in_their_directive_alone_and_the_first_one_starts_first():
    model = Said(lambda request: str(request["messages"][-1]["content"][-1]["text"])[-40:])

    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage(), clock=lambda: START) as session:
            await session.say("Read both.")
            await asked(session)
            await session.observe(reply({"type": "text", "text": "Reading."}, call("t1"), call("t2", "Agent")))
            answers = await Forks(session.parts.host, model).ask_many(
                ["One?", "Two?", "Three?"], source="test", max_tokens=100
            )
            assert [not isinstance(one, BaseException) and one.text.count("?") for one in answers] == [1, 1, 1]
        blocks = [canonical(request) for request in model.requests]
        assert [one[:-1] for one in blocks] == [blocks[0][:-1]] * 3
        assert len({one[-1] for one in blocks}) == 3
        results = model.requests[0]["messages"][-1]["content"][:-1]
        assert [(one["tool_use_id"], one["content"]) for one in results] == [("t1", PLACEHOLDER), ("t2", PLACEHOLDER)]
        assert all(problems(request) == [] for request in model.requests)
        assert model.order.index("answers 1") < model.order.index("asked 2")

    run(steps)


@pytest.mark.requirement("L7.3")
def test_a_fork_cannot_fork_and_the_tool_list_stays():
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage(), clock=lambda: START) as session:
            await session.say("hello")
            await asked(session)
            await session.observe(reply({"type": "text", "text": "Hi."}))
            refused: list[str] = []

            async def tools(one: Call, state: ForkState) -> ForkToolResult:
                assert forking() == "outer"
                assert state.source == "outer"
                with pytest.raises(SessionError, match="cannot fork") as found:
                    await Forks(session.parts.host, model).ask("Again?", source="inner", max_tokens=10)
                refused.append(str(found.value))
                return ForkToolResult("no", is_error=True, allowed=False)

            answers = iter([[call("a1", "Agent")], "Done."])
            model = Said(lambda _: next(answers))
            answer = await Forks(session.parts.host, model).ask(
                "Use an agent.", source="outer", max_tokens=100, tools=tools, max_turns=3
            )
            assert answer.text == "Done."
            assert answer.denied == ("Agent",)
            assert len(refused) == 1
            assert [tool["name"] for tool in model.requests[1]["tools"]] == ["Read", "Agent"]
            assert forking() == ""
            # The second check: the mark of a directive in the history itself.
            branch = ForkBase(session.view, MODEL, facts_of(MODEL), 10).branch("Do this.", source="outer")
            with pytest.raises(SessionError, match="cannot fork"):
                await Forks(session.parts.host, model, view=branch).ask("And this?", source="inner", max_tokens=10)

    run(steps)


@pytest.mark.requirement("L7.3")
def test_a_users_text_that_looks_like_a_directive_stops_no_fork():
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage(), clock=lambda: START) as session:
            await session.say('<reverie-fork source="x">\nWhat is this line of my log?\n</reverie-fork>')
            await asked(session)
            await session.observe(reply({"type": "text", "text": "A side question."}))
            model = Said(lambda _: "An answer.")
            answer = await Forks(session.parts.host, model).ask("Which log?", source="test", max_tokens=100)
            assert answer.text == "An answer."

    run(steps)


@pytest.mark.requirement("L7.1", "V9")
@pytest.mark.parametrize("ending", ["a reply", "a paused call", "a user's text"])
def test_only_the_directive_follows_the_conversation_and_the_breakpoint_stands_before_it(ending: str):
    model = Said(lambda _: "An answer.")
    paused = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}

    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage(), clock=lambda: START) as session:
            await session.say("hello")
            await asked(session)
            await session.observe(
                reply({"type": "text", "text": "Hi."}, *([paused] if ending == "a paused call" else []))
            )
            if ending == "a user's text":
                await session.say("And now?")
            await Forks(session.parts.host, model).ask("Who?", source="test", max_tokens=100)
            await session.say("Go on.")
            later = await asked(session)
        sent = model.requests[0]
        assert problems(sent) == []
        assert "Continue." not in str(sent["messages"])
        blocks = [block for message in sent["messages"] for block in as_blocks(message)]
        assert blocks[-1]["text"].startswith('<reverie-fork source="test">')
        marks = [at for at, block in enumerate(blocks) if "cache_control" in block]
        assert marks[-1] == len(blocks) - 2  # the last block that a later request also has
        assert extends(canonical({**sent, "messages": before_directive(sent["messages"])}), canonical(later))

    run(steps)


@pytest.mark.requirement("V9")
def test_a_reply_that_begins_with_blank_text_does_not_end_a_fork_on_a_real_server():
    """Claude writes such text before a call; a server refuses it when it is sent back."""
    replies = iter([[{"type": "text", "text": "\n\n"}, call("g1")], "Two files."])

    async def steps() -> None:
        async with MessagesServer(lambda _: next(replies), clock=ManualClock(START)) as server:
            model = AnthropicModel(MODEL, base_url=server.base_url, api_key="any")
            async with Session.open("s", storage=InMemoryStorage(), clock=lambda: START) as session:
                await session.say("hello")
                await asked(session)
                answer = await Forks(session.parts.host, model).ask("Look.", source="t", max_tokens=99, max_turns=2)
            await model.aclose()
            assert (answer.text, server.refusals) == ("Two files.", [])

    run(steps)


@pytest.mark.requirement("L7.1")
def test_tools_are_denied_unless_the_caller_runs_them_and_state_is_the_forks_own():
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage(), clock=lambda: START) as session:
            await session.say("Read /a.")
            await asked(session)
            await session.observe(reply(call("t1")))
            await session.result("t1", "hello")
            answers = iter([[call("x1")], [call("x2")], "That is all."])
            model = Said(lambda _: next(answers))
            forks = Forks(session.parts.host, model)
            seen: list[dict[str, str]] = []

            async def tools(one: Call, state: ForkState) -> ForkToolResult:
                seen.append(dict(state.reads))
                state.reads["/b"] = one.id
                return ForkToolResult("read it")

            answer = await forks.ask("Look.", source="test", max_tokens=50, tools=tools, max_turns=3)
            assert answer.turns == 3
            assert answer.denied == ()
            assert seen == [{"/a": "t1"}, {"/a": "t1", "/b": "x1"}]
            assert all(problems(request) == [] for request in model.requests)
            denying = iter([[call("y1")], "Fine."])
            model.answer = lambda _: next(denying)
            answer = await forks.ask("Look again.", source="test", max_tokens=50, max_turns=2)
            assert answer.denied == ("Read",)
            assert model.requests[-1]["messages"][-1]["content"][0]["content"] == DENIED

    run(steps)


@pytest.mark.requirement("L7.1")
def test_a_fork_that_hangs_is_given_up_in_time_by_its_caller_or_by_cancel():
    async def hang() -> str:
        await anyio.sleep_forever()
        return ""

    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage(), clock=lambda: START) as session:
            await session.say("hello")
            forks = Forks(session.parts.host, Said(lambda _: hang))
            with pytest.raises(ModelUnavailable, match="not answered within"):
                await forks.ask("Anything?", source="test", max_tokens=10, timeout_seconds=0.05)
            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    outcome: list[BaseException] = []

                    async def ask() -> None:
                        try:
                            await forks.ask("Anything?", source="test", max_tokens=10)
                        except ModelUnavailable as error:
                            outcome.append(error)

                    group.start_soon(ask)
                    await anyio.wait_all_tasks_blocked()
                    forks.cancel()
            assert len(outcome) == 1
            with anyio.move_on_after(0.05) as parent:  # the caller's own scope ends it as well
                await forks.ask("Anything?", source="test", max_tokens=10)
            assert parent.cancelled_caught
            assert forking() == ""

    run(steps)


@pytest.mark.requirement("L7.1", "L7.2")
def test_on_a_real_server_a_fork_reads_nearly_all_of_its_input_from_the_cache():
    def answer(request: dict[str, Any]) -> Any:
        last = request["messages"][-1]["content"]
        if isinstance(last, list) and "reverie-fork" in str(last[-1]):
            return "A short answer."
        turn = len(request["messages"]) // 2
        return [{"type": "text", "text": f"Turn {turn}."}, {"type": "tool_use", "name": "Read", "input": {"n": turn}}]

    async def steps() -> None:
        clock = ManualClock(START)
        async with MessagesServer(answer, clock=clock) as server:
            model = AnthropicModel(MODEL, base_url=server.base_url, api_key="any")
            async with Session.open("s", storage=InMemoryStorage(), clock=lambda: clock.now) as session:
                await session.say("Read the harbour book.")
                for _ in range(12):
                    body = (await model.complete(await asked(session))).body
                    for one in await session.observe(body):
                        await session.result(one.id, STORY)
                    clock.advance(10)
                answer_before = await Forks(session.parts.host, model).ask("What tide?", source="test", max_tokens=200)
                assert answer_before.cache_read_share >= 0.90  # the last result was never sent before
                await session.observe((await model.complete(await asked(session))).body)
                forks = Forks(session.parts.host, model)
                one = await forks.ask("What ship?", source="test", max_tokens=200)
                assert one.cache_read_share >= 0.95
                assert one.usage.read / one.usage.input == one.cache_read_share  # all of it, as the server bills it
                assert one.usage.input > 0.9 * session.view.tokens
                many = await forks.ask_many(["Who?", "When?", "Where?"], source="test", max_tokens=200)
                shares = [other.cache_read_share for other in many if not isinstance(other, BaseException)]
                assert len(shares) == 3
                assert min(shares) >= 0.95
                after = (await model.complete(await asked(session))).body
                used = usage_of(after["usage"])
                assert used.read / used.input >= 0.95  # the parent's own cache was not disturbed
            await model.aclose()

    run(steps)


@pytest.mark.requirement("V9")
def test_a_fork_before_the_first_request_asks_the_model_of_the_session():
    async def steps() -> None:
        model = Said(lambda request: "Nothing yet.")
        async with Session.open("f", storage=InMemoryStorage(), model=model) as session:
            await session.say("Hello.")
            [answer] = await session.fork("What was said?")
        assert not isinstance(answer, BaseException)
        assert [request["model"] for request in model.requests] == [MODEL]

    run(steps)
