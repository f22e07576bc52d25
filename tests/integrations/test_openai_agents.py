"""Agents of OpenAI's with our session, filter and hooks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents import Session as SessionProtocol
from openai import AsyncOpenAI

from reverie import InMemoryStorage, Session
from reverie.errors import StorageError
from reverie.integrations.door import running
from reverie.integrations.openai_agents import ReverieSession
from reverie.testing.chat_server import ChatServer

LOG = "\n".join(f"2026-03-02 08:{at % 60:02} row {at} locked" for at in range(4_000))
CALL = {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "cat log"}}

set_tracing_disabled(True)


@function_tool
def bash(command: str) -> str:
    """Run a command."""
    return LOG


def first_call_then_words(request: Any) -> Any:
    said = json.dumps(request.get("messages") or request.get("input"))
    return "It was locked." if '"t1"' in said else [CALL]


def agent_of(client: AsyncOpenAI, kind: Any = OpenAIResponsesModel) -> Agent[Any]:
    return Agent(name="helper", instructions="Help.", model=kind("gpt-4.1", openai_client=client), tools=[bash])


async def ask(agent: Agent[Any], text: str, session: ReverieSession) -> str:
    done = await Runner.run(agent, text, session=session, run_config=session.run_config(), hooks=session.hooks)
    return done.final_output


def client_of(server: ChatServer) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0)


@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
async def test_the_items_keep_the_preview_and_the_log_the_whole(kind: Any, anyio_backend: str) -> None:
    with ChatServer(first_call_then_words) as server:
        async with client_of(server) as client, Session.open("a", storage=InMemoryStorage()) as opened:
            session = ReverieSession(opened)
            assert isinstance(session, SessionProtocol)
            agent = agent_of(client, kind)
            assert await ask(agent, "what happened?", session) == "It was locked."
            assert await ask(agent, "sure?", session) == "It was locked."
            items = await session.get_items()
            kinds = [item.get("type") or item.get("role") for item in items]
            assert kinds[:3] == ["user", "function_call", "function_call_output"]
            assert len(items[2]["output"]) < len(LOG) / 10
            assert await session.get_items(limit=1) == items[-1:]
            assert opened.stored("t1").decode() == LOG
            assert server.refusals == []
            replies = [entry for entry in opened.view.said if entry.kind == "assistant"]
            assert len(replies) == 3
            assert all(entry.reply["usage"]["output_tokens"] > 0 for entry in replies)


async def test_items_are_taken_back_one_by_one_and_all_at_once(anyio_backend: str) -> None:
    call = {"type": "function_call", "call_id": "t1", "name": "bash", "arguments": '{"command": "ls"}'}
    output = {"type": "function_call_output", "call_id": "t1", "output": "a.txt"}
    said: list[Any] = [{"role": "user", "content": "list"}, {"role": "assistant", "content": "Looking."}, call, output]
    async with Session.open("pop", storage=InMemoryStorage()) as opened:
        session = ReverieSession(opened)
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
            with running(Session.open("kept", cwd=tmp_path)) as opened:
                assert asyncio.run(in_a_loop_of_its_own(server, ReverieSession(opened), text)) == "It was locked."
                lengths.append(len(opened.view.said))
        assert lengths == [4, 6]
        assert server.refusals == []


async def test_the_filter_works_beside_another_session_and_fails_softly(anyio_backend: str) -> None:
    class Full(InMemoryStorage):
        full = False

        def append(self, key: str, line: bytes) -> None:
            if self.full:
                raise StorageError("the disk is full", path=key)
            super().append(key, line)

    storage, heard = Full(), list[Any]()
    with ChatServer(first_call_then_words) as server:
        async with client_of(server) as client, Session.open("b", storage=storage) as opened:
            opened.listen(heard.append)
            ours, theirs = ReverieSession(opened), SQLiteSession("theirs")
            agent = agent_of(client)
            for storage.full in (False, True, False):
                done = await Runner.run(
                    agent, "what happened?", session=theirs, run_config=ours.run_config(), hooks=ours.hooks
                )
                assert done.final_output == "It was locked."
            theirs.close()
            assert {one.why for one in heard if type(one).__name__ == "FellBack"} == {"the disk is full"}
            assert server.refusals == []
            assert LOG not in json.dumps(server.requests[-1]).replace("\\n", "\n")


async def test_images_and_notes_of_other_roles_are_sent_as_they_were(anyio_backend: str) -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
    said: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "what is this?"}, picture]},
    ]
    with ChatServer(lambda request: "a harbour") as server:
        async with client_of(server) as client, Session.open("i", storage=InMemoryStorage()) as opened:
            session = ReverieSession(opened)
            await Runner.run(agent_of(client), said, run_config=session.run_config(), hooks=session.hooks)
            assert server.requests[-1]["input"] == said


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


pytestmark = pytest.mark.anyio
