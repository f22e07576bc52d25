"""OpenAI agents with our session, filter and hooks."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from reverie import InMemoryStorage, Memory, Session
from reverie.conversation.decisions import Cause, Replacement, ResultsCleared, Snipped
from reverie.errors import StorageError
from reverie.events import DecisionMade
from reverie.integrations.sync_session import sync_session
from reverie.testing.chat_server import ChatServer

if TYPE_CHECKING:  # the frameworks take seconds to import: only who runs these tests waits for them
    from agents import Agent
    from openai import AsyncOpenAI

    from reverie.integrations.openai_agents import ReverieSession

LOG = "\n".join(f"2026-03-02 08:{at % 60:02} row {at} locked" for at in range(4_000))
CALL = {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "cat log"}}


def first_call_then_words(request: Any) -> Any:
    said = json.dumps(request.get("messages") or request.get("input"))
    return "It was locked." if '"t1"' in said else [CALL]


def bash(command: str) -> str:
    """Run a command."""
    return LOG


def agent_of(client: AsyncOpenAI, kind: str = "OpenAIResponsesModel") -> Agent[Any]:
    import agents

    agents.set_tracing_disabled(True)
    model = getattr(agents, kind)("gpt-4.1", openai_client=client)
    return agents.Agent(name="helper", instructions="Help.", model=model, tools=[agents.function_tool(bash)])


def session_of(opened: Session, memory: Memory | None = None) -> ReverieSession:
    from reverie.integrations.openai_agents import ReverieSession

    return ReverieSession(opened, memory=memory)


async def ask(agent: Agent[Any], given: Any, ours: ReverieSession, kept: Any = None) -> str:
    from agents import Runner

    done = await Runner.run(agent, given, session=kept or ours, run_config=ours.run_config(), hooks=ours.hooks)
    return done.final_output


def client_of(server: ChatServer) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0)


@pytest.mark.parametrize("remembers", [True, False])
async def test_a_conversation_opens_with_the_index_of_memories_if_it_has_any(
    remembers: bool, tmp_path: Any, anyio_backend: str
) -> None:
    memory = Memory(tmp_path / "memory")
    memory.save("Deploys go to fly.io", type="project", why="the old host is closed")
    with ChatServer(lambda request: "ok") as server:
        async with client_of(server) as client, Session.open("index", storage=InMemoryStorage()) as opened:
            ours = session_of(opened, memory if remembers else None)
            await ask(agent_of(client), "hello", ours)
            await ask(agent_of(client), "hello again", ours)
        sent = [json.dumps(request["input"]) for request in server.requests]
        assert [one.count("<memory-index") for one in sent] == [int(remembers)] * 2
        assert [one.count("Deploys go to fly.io") > 0 for one in sent] == [remembers] * 2


@pytest.mark.parametrize("kind", ["OpenAIResponsesModel", "OpenAIChatCompletionsModel"])
async def test_the_items_keep_the_preview_and_the_log_the_whole(kind: str, anyio_backend: str) -> None:
    from agents import Session as SessionProtocol

    with ChatServer(first_call_then_words) as server:
        async with client_of(server) as client, Session.open("a", storage=InMemoryStorage()) as opened:
            session = session_of(opened)
            assert isinstance(session, SessionProtocol)
            agent = agent_of(client, kind)
            assert await ask(agent, "what happened?", session) == "It was locked."
            for text in ("sure?", "really?"):  # equal words of the model's, each with an id of its own
                assert await ask(agent, text, session) == "It was locked."
            items = await session.get_items()
            kinds = [item.get("type") or item.get("role") for item in items]
            assert kinds[:3] == ["user", "function_call", "function_call_output"]
            assert len(items[2]["output"]) < len(LOG) / 10
            assert await session.get_items(limit=1) == items[-1:]
            assert opened.parts.stored(opened.view, "t1").decode() == LOG
            assert server.refusals == []
            replies = [entry for entry in opened.view.history if entry.kind == "assistant"]
            assert len(replies) == 4
            assert all(entry.reply["usage"]["output_tokens"] > 0 for entry in replies)


async def test_items_are_taken_back_one_by_one_and_all_at_once(anyio_backend: str) -> None:
    call = {"type": "function_call", "call_id": "t1", "name": "bash", "arguments": '{"command": "ls"}'}
    output = {"type": "function_call_output", "call_id": "t1", "output": "a.txt"}
    said: list[Any] = [{"role": "user", "content": "list"}, {"role": "assistant", "content": "Looking."}, call, output]
    async with Session.open("pop", storage=InMemoryStorage()) as opened:
        session = session_of(opened)
        await session.add_items(said)
        await session.add_items([{"role": "user", "content": "and?"}])
        assert [item.get("content") or item["type"] for item in await session.get_items()][-1] == "and?"
        assert [(await session.pop_item() or {}).get("type", "message") for _ in range(3)] == [
            "message",
            "function_call_output",
            "function_call",
        ]
        assert await session.get_items() == said[:2]
        await session.add_items([call, output])
        assert len(await session.get_items()) == 4
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.add_items(said[:1])
        assert await session.get_items() == said[:1]


async def in_a_loop_of_its_own(server: ChatServer, session: ReverieSession, text: str) -> str:
    async with client_of(server) as client:
        return await ask(agent_of(client), text, session)


def test_a_session_on_a_thread_of_its_own_serves_runs_without_a_loop_and_is_found_again(tmp_path: Any) -> None:
    with ChatServer(first_call_then_words) as server:
        lengths: list[int] = []
        for text in ("what happened?", "sure?"):
            with sync_session(Session.open("kept", cwd=tmp_path)) as opened:
                assert asyncio.run(in_a_loop_of_its_own(server, session_of(opened), text)) == "It was locked."
                lengths.append(len(opened.view.history))
        assert lengths == [4, 6]
        assert server.refusals == []


async def test_the_filter_works_beside_another_session_and_fails_softly(anyio_backend: str) -> None:
    from agents import SQLiteSession

    class Full(InMemoryStorage):
        full = False

        def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
            if self.full:
                raise StorageError("the disk is full", path=key)
            super().append(key, line, expect=expect)

    storage, heard = Full(), list[Any]()
    with ChatServer(first_call_then_words) as server:
        async with client_of(server) as client, Session.open("b", storage=storage) as opened:
            opened.listen(heard.append)
            ours, theirs = session_of(opened), SQLiteSession("theirs")
            agent = agent_of(client)
            for storage.full in (False, True, False):
                assert await ask(agent, "what happened?", ours, theirs) == "It was locked."
            theirs.close()
            assert {one.why for one in heard if type(one).__name__ == "FellBack"} == {"the disk is full"}
            assert server.refusals == []
            assert LOG not in json.dumps(server.requests[-1]).replace("\\n", "\n")


async def test_images_and_notes_of_other_roles_are_sent_as_they_were(anyio_backend: str) -> None:
    from agents import Runner

    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
    said: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "what is this?"}, picture]},
    ]
    with ChatServer(lambda request: "a harbour") as server:
        async with client_of(server) as client, Session.open("i", storage=InMemoryStorage()) as opened:
            session = session_of(opened)
            await Runner.run(agent_of(client), said, run_config=session.run_config(), hooks=session.hooks)
            assert server.requests[-1]["input"] == said


async def test_an_image_is_found_again_in_the_history_also_by_one_who_comes_back(anyio_backend: str) -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
    said: Any = {"role": "user", "content": [{"type": "input_text", "text": "what is this?"}, picture]}
    storage = InMemoryStorage()
    with ChatServer(lambda request: "a harbour") as server:
        for given in ([said], "sure?"):
            async with client_of(server) as client, Session.open("i", storage=storage) as opened:
                assert await ask(agent_of(client), given, session_of(opened)) == "a harbour"
        assert [request["input"][0] for request in server.requests] == [said, said]
        assert (len(server.requests[-1]["input"]), server.refusals) == (3, [])


async def test_a_conversation_that_the_provider_holds_passes_and_it_is_said_why(anyio_backend: str) -> None:
    from agents import Runner

    heard: list[Any] = []
    with ChatServer(two_calls_then_words()) as server:
        async with client_of(server) as client, Session.open("held", storage=InMemoryStorage()) as opened:
            opened.listen(heard.append)
            options: Any = {"run_config": session_of(opened).run_config(), "auto_previous_response_id": True}
            done = await Runner.run(agent_of(client), "what happened?", **options)
            options["previous_response_id"] = done.last_response_id
            assert (await Runner.run(agent_of(client), "sure?", **options)).final_output == "Locked."
    assert server.refusals == []
    said = [one.why for one in heard if type(one).__name__ == "FellBack"]
    assert len(said) == 4
    assert all("keep the conversation in a session" in one for one in said)


def test_a_history_that_grows_is_told_and_found_again_from_where_it_grew(work: Any) -> None:
    from reverie.integrations.openai_items import OpenAITranslator

    wire, items, counted = OpenAITranslator(), list[Any](), list[int]()
    for number in range(60):
        call = {"type": "function_call", "call_id": f"t{number}", "name": "bash", "arguments": f'{{"at": {number}}}'}
        items += [call, {"type": "function_call_output", "call_id": f"t{number}", "output": f"out {number}"}]
        with work() as one:
            assert wire.continues(items)
            messages = wire.history(items)
            assert wire.translated_back(messages) == items
        counted.append(one.calls)
    assert messages == OpenAITranslator().history(items)
    assert max(counted[10:]) <= 1.2 * min(counted[10:])
    items[1]["output"] = "[redacted]"
    assert not wire.continues(items)


async def test_what_the_filter_took_back_is_not_counted_as_added(anyio_backend: str) -> None:
    from agents import Agent as AnyAgent
    from agents.run_config import CallModelData, ModelInputData

    said: list[Any] = [
        {"role": role, "content": f"{role} {number}"} for number in range(5) for role in ("user", "assistant")
    ]
    new: Any = {"role": "user", "content": "new"}
    output: Any = {"type": "function_call_output", "call_id": "t1", "output": "x"}
    async with Session.open("less", storage=InMemoryStorage()) as opened:
        session = session_of(opened)
        await session.add_items(said)
        shown = ModelInputData(input=[*said[-2:], new], instructions="Help.")
        await session.input_filter(CallModelData(shown, AnyAgent(name="helper", model="gpt-4.1"), None))
        await session.add_items([output])
        await session.add_items([new])
        assert [item.get("content") for item in await session.get_items()] == ["user 4", "assistant 4", None, "new"]


async def test_runs_that_are_shown_only_the_latest_items_go_on(anyio_backend: str) -> None:
    from agents import Runner, SessionSettings

    with ChatServer(lambda request: "fine") as server:
        async with client_of(server) as client, Session.open("limit", storage=InMemoryStorage()) as opened:
            session, agent = session_of(opened), agent_of(client)
            config = session.run_config(session_settings=SessionSettings(limit=4))
            for number in range(5):
                await Runner.run(agent, f"ask {number}", session=session, run_config=config, hooks=session.hooks)
            assert [entry.kind for entry in opened.view.history].count("assistant") == 5
        assert server.refusals == []


async def test_an_agent_that_is_a_tool_does_not_enter_the_conversation_of_the_one_that_calls_it(
    anyio_backend: str,
) -> None:
    from agents import Agent as AnyAgent

    def reply(request: Any) -> Any:
        items = request["input"]
        if request["instructions"] == "Part.":
            return "part done"
        if items[-1].get("type") == "function_call_output":
            return f"done {len(items)}"
        return [{"type": "tool_use", "id": f"t{len(items)}", "name": "part", "input": {"input": items[-1]["content"]}}]

    heard: list[Any] = []
    with ChatServer(reply) as server:
        async with client_of(server) as client, Session.open("parts", storage=InMemoryStorage()) as opened:
            opened.listen(heard.append)
            ours, agent = session_of(opened), agent_of(client)
            part = AnyAgent(name="part", instructions="Part.", model=agent.model)
            agent.tools = [part.as_tool("part", "Do a part.", hooks=ours.hooks)]
            for number in range(2):
                await ask(agent, f"ask {number}", ours)
            assert len(await ours.get_items()) == 2 * 4
            assert "part done" not in str([entry.message for entry in opened.view.history if entry.kind == "assistant"])
        assert server.refusals == []
        assert not [one for one in heard if isinstance(one, DecisionMade) and one.decision.cause.layer == "host"]


async def test_the_latest_items_are_read_from_the_end_and_are_the_hosts_own(work: Any, anyio_backend: str) -> None:
    async with Session.open("long", storage=InMemoryStorage()) as opened:
        session, counted = session_of(opened), list[int]()
        for number in range(40):
            said: list[Any] = [
                {"role": "user", "content": f"q{number}"},
                {"role": "assistant", "content": f"a{number}"},
            ]
            await session.add_items(said)
            with work() as one:
                shown = await session.get_items(limit=3)
            counted.append(one.calls)
        assert [item["content"] for item in shown] == ["a38", "q39", "a39"]
        assert max(counted[10:]) <= 1.2 * min(counted[10:])
        shown[0]["content"] = "written into"
        assert [item["content"] for item in await session.get_items(limit=3)] == ["a38", "q39", "a39"]
        assert len(await session.get_items()) == 80


class Compacting:
    """Runs with the SDK's compaction around our session: each calls a tool twice, and an old result is cleared."""

    def __init__(
        self, server: ChatServer, client: AsyncOpenAI, ours: ReverieSession, opened: Session, mode: Any = "input"
    ) -> None:
        from agents.memory import OpenAIResponsesCompactionSession

        self.opened, self.ours = opened, ours
        self.server, self.agent = server, agent_of(client)
        self.kept = OpenAIResponsesCompactionSession("c", ours, client=client, compaction_mode=mode)

    async def ask(self, text: str) -> str:
        said = await ask(self.agent, text, self.ours, self.kept)
        called = self.opened.view.results[0].tool_use_id if self.opened.view.results else ""
        if called:
            gone = [Replacement(called, "[cleared]", called)]
            await self.opened.log.decide(ResultsCleared(Cause("trim", "old", moves_prefix=True), gone))
        return said

    def compactions(self) -> list[int]:
        return [at for at, request in enumerate(self.server.requests) if not request.get("tools")]


def two_calls_then_words() -> Any:
    count = iter(range(10_000))

    def reply(request: Any) -> Any:
        if not request.get("tools"):
            return "Rows were locked."
        at = next(count)
        return "Locked." if at % 3 == 2 else [{**CALL, "id": f"t{at}", "input": {"command": f"cat log{at}"}}]

    return reply


@pytest.mark.requirement("B6")
async def test_the_sdks_own_compaction_shortens_what_was_sent_and_the_log_says_so(anyio_backend: str) -> None:
    storage, heard = InMemoryStorage(), list[Any]()
    with ChatServer(two_calls_then_words()) as server:
        async with client_of(server) as client, Session.open("c", storage=storage) as opened:
            opened.listen(heard.append)
            talk = Compacting(server, client, session_of(opened), opened)
            for number in range(3):
                assert await talk.ask(f"ask {number}") == "Locked."
            (at,) = talk.compactions()[:1]
            before, compacted, after = server.requests[at - 1 : at + 2]
            assert compacted["input"][: len(before["input"])] == before["input"]
            assert next(item["output"] for item in compacted["input"] if "output" in item) == "[cleared]"
            assert [item.get("type", "message") for item in compacted["input"][len(before["input"]) :]] == ["message"]
            assert [item.get("type", item.get("role")) for item in after["input"]][-2:] == ["compaction", "user"]
            assert len(json.dumps(after["input"])) < len(json.dumps(before["input"])) / 2
            emptied = [one.decision for one in heard if isinstance(one, DecisionMade)]
            assert [one.cause.layer for one in emptied if isinstance(one, Snipped)] == ["host"] * len(
                talk.compactions()
            )
            items = await talk.kept.get_items()
            sealed = [item["encrypted_content"] for item in items if item.get("type") == "compaction"]
            assert len(sealed) == 1
            assert "ask 0" in json.dumps(items)
        async with client_of(server) as client, Session.open("c", storage=storage) as opened:
            talk = Compacting(server, client, session_of(opened), opened)
            assert await talk.kept.get_items() == items
            await opened.compact()  # nothing of ours could be put in place of a summary that only the provider reads
            assert await talk.ask("and now?") == "Locked."
            sent = [one.get("encrypted_content") for one in server.requests[-1]["input"] if isinstance(one, dict)]
            assert sealed[0] in sent
        assert server.refusals == []
        assert not [one for one in heard if type(one).__name__ == "FellBack"]


@pytest.mark.parametrize(("mode", "stored"), [("auto", True), ("auto", False), ("previous_response_id", True)])
async def test_the_sdks_compaction_as_it_comes_goes_by_the_last_response_where_the_provider_keeps_it(
    mode: str, stored: bool, anyio_backend: str
) -> None:
    heard: list[Any] = []
    with ChatServer(two_calls_then_words()) as server:
        async with client_of(server) as client, Session.open("c", storage=InMemoryStorage()) as opened:
            opened.listen(heard.append)
            talk = Compacting(server, client, session_of(opened), opened, mode)
            talk.agent.model_settings.store = stored
            for number in range(3):
                assert await talk.ask(f"ask {number}") == "Locked."
            (at,) = talk.compactions()[:1]
            compacted, after = server.requests[at : at + 2]
            assert ("previous_response_id" in compacted, "input" in compacted) == (stored, not stored)
            assert [item.get("type", item.get("role")) for item in after["input"]][-2:] == ["compaction", "user"]
            assert "ask 0" in str(after["input"])
        assert server.refusals == []
        assert not [one for one in heard if type(one).__name__ == "FellBack"]


async def test_a_store_that_shows_its_log_instead_of_what_was_sent_is_not_compacted(anyio_backend: str) -> None:
    from reverie.integrations.openai_agents import ReverieSession

    class Bare(ReverieSession):
        _read_compaction_items: Any = None

    with ChatServer(two_calls_then_words()) as server:
        async with client_of(server) as client, Session.open("c", storage=InMemoryStorage()) as opened:
            talk = Compacting(server, client, Bare(opened), opened)
            for number in range(3):
                await talk.ask(f"ask {number}")
            assert talk.compactions() == []


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


pytestmark = pytest.mark.anyio
