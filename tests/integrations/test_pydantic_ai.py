"""A Pydantic AI agent with our capability: previews in its history, unchanged images, a fallback for every failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pictures import png
from reverie import InMemoryStorage, Session
from reverie.errors import StorageError
from reverie.events import DecisionMade
from reverie.testing.messages_server import MessagesServer

if TYPE_CHECKING:  # the frameworks take seconds to import: only who runs these tests waits for them
    from anthropic import AsyncAnthropic
    from pydantic_ai import Agent

LOG = "\n".join(f"2026-03-02 08:{at % 60:02} row {at} locked" for at in range(4_000))
CALL = {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "cat log"}}


def first_call_then_words(request: dict[str, Any]) -> Any:
    asked = [block for message in request["messages"] for block in message["content"] if isinstance(block, dict)]
    return "It was locked." if any(block["type"] == "tool_result" for block in asked) else [CALL]


def agent_of(client: AsyncAnthropic, session: Any) -> Agent[None, str]:
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    from reverie.integrations.pydantic_ai import ReverieCapability

    model = AnthropicModel("claude-sonnet-4-6", provider=AnthropicProvider(anthropic_client=client))
    ours = session if isinstance(session, ReverieCapability) else ReverieCapability(session)
    agent = Agent(model, instructions="Help.", capabilities=[ours])

    @agent.tool_plain
    def bash(command: str) -> str:
        return LOG

    return agent


def client_of(server: MessagesServer) -> AsyncAnthropic:
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(base_url=server.base_url, api_key="any", max_retries=0)


async def test_the_history_keeps_the_preview_and_the_log_the_whole(anyio_backend: str) -> None:
    from pydantic_ai.messages import ToolReturnPart

    with MessagesServer(first_call_then_words) as server:
        async with client_of(server) as client, Session.open("a", storage=InMemoryStorage()) as session:
            done = await agent_of(client, session).run("what happened?")
            parts = [part for message in done.all_messages() for part in message.parts]
            (kept,) = [part for part in parts if isinstance(part, ToolReturnPart)]
            assert len(str(kept.content)) < len(LOG) / 10
            assert session.parts.stored(session.view, "t1").decode() == LOG
            assert done.output == "It was locked."
            sent = server.requests[-1]
            assert sent["messages"][-1]["content"][-1]["cache_control"]["type"] == "ephemeral"
            assert server.refusals == []
            assert [entry.kind for entry in session.view.history] == ["user", "assistant", "user", "assistant"]
            assert session.view.history[1].reply["usage"]["output_tokens"] > 0


async def test_an_image_is_sent_as_it_was_and_conversations_do_not_meet(anyio_backend: str) -> None:
    from pydantic_ai import BinaryContent

    pixel = BinaryContent(png(1, 1), media_type="image/png")
    with MessagesServer(lambda request: "seen") as server:
        one, two = (Session.open(name, storage=InMemoryStorage()) for name in ("one", "two"))
        async with client_of(server) as client, one, two:
            agent = agent_of(client, {"1": one, "2": two}.__getitem__)
            first = await agent.run(["what is this?", pixel], conversation_id="1")
            await agent.run("another thing", conversation_id="2")
            await agent.run("and now?", message_history=first.all_messages(), conversation_id="1")
            images = [[block["type"] for block in server.requests[at]["messages"][0]["content"]] for at in (0, 2)]
            assert images == [["text", "image"], ["text", "image"]]
            assert (len(one.view.history), len(two.view.history)) == (4, 2)
            assert server.refusals == []


async def test_a_history_with_images_is_known_again_from_disk_and_one_that_was_written_into_is_not(
    anyio_backend: str,
) -> None:
    from pydantic_ai import BinaryContent, ImageUrl
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    storage, heard, linked = InMemoryStorage(), list[Any](), ImageUrl("https://example.com/a.png")
    stored: Any = b"[]"
    with MessagesServer(lambda request: "seen") as server:
        async with client_of(server) as client:
            for given in (("look", linked, BinaryContent(png(1, 1), media_type="image/png")), "and?"):
                async with Session.open("disk", storage=storage) as session:
                    session.listen(heard.append)
                    history = ModelMessagesTypeAdapter.validate_json(stored)
                    done = await agent_of(client, session).run(given, message_history=history)
                    stored = done.all_messages_json()
            assert moved(heard) == 0
            async with Session.open("written", storage=InMemoryStorage()) as session:
                session.listen(heard.append)
                agent = agent_of(client, session)
                done = await agent.run(["look", linked])
                linked.url = "https://example.com/b.png"
                await agent.run("and?", message_history=done.all_messages())
            assert moved(heard) == 1
            assert "b.png" in str(server.requests[-1])
            assert server.refusals == []


def moved(heard: list[Any]) -> int:
    """Return how many decisions say that the host moved the prefix."""
    return sum(isinstance(one, DecisionMade) and one.decision.cause.layer == "host" for one in heard)


async def test_what_answers_a_request_that_passed_is_not_logged(anyio_backend: str) -> None:
    from pydantic_ai import Agent

    from reverie.integrations.pydantic_ai import ReverieCapability

    heard: list[Any] = []
    with MessagesServer(lambda request: "fine") as server:
        async with client_of(server) as client, Session.open("shared", storage=InMemoryStorage()) as session:
            session.listen(heard.append)
            ours = ReverieCapability(session)
            agent, history = agent_of(client, ours), list[Any]()
            for text in ("one", "two"):
                history = (await agent.run(text, message_history=history)).all_messages()
            titles = Agent(agent.model, instructions="Write a title.", capabilities=[ours])
            await titles.run("a title, please")
            assert len(session.view.history) == 4
            await agent.run("three", message_history=history)
            assert len(session.view.history) == 6
            assert moved(heard) == 0


async def test_a_session_that_fails_leaves_the_run_as_it_was(anyio_backend: str) -> None:
    class Full(InMemoryStorage):
        def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
            if b'"kind":"meta"' not in line:
                raise StorageError("the disk is full", path=key)
            super().append(key, line, expect=expect)

    heard: list[Any] = []
    with MessagesServer(first_call_then_words) as server:
        async with client_of(server) as client, Session.open("f", storage=Full()) as session:
            session.listen(heard.append)
            assert (await agent_of(client, session).run("hm?")).output == "It was locked."
            assert LOG in str(server.requests[-1]["messages"][-1]["content"][0]["content"]).replace("\\n", "\n")
            assert {one.why for one in heard if type(one).__name__ == "FellBack"} == {"the disk is full"}


async def test_errors_are_the_runs_and_a_refusal_sends_its_own_request(anyio_backend: str) -> None:
    from pydantic_ai.exceptions import ModelHTTPError

    heard: list[Any] = []
    with MessagesServer(lambda request: "fine") as server:
        async with client_of(server) as client, Session.open("e", storage=InMemoryStorage()) as session:
            session.listen(heard.append)
            agent = agent_of(client, session)
            server.fail(529)
            with pytest.raises(ModelHTTPError):
                await agent.run("one")
            server.fail(400, message="messages.0: something new is required")
            assert (await agent.run("two")).output == "fine"
            assert any("something new" in one.why for one in heard if type(one).__name__ == "FellBack")


async def test_a_prompt_that_is_too_long_is_compacted_and_sent_again(anyio_backend: str) -> None:
    with MessagesServer(lambda request: "fine " * 600, window=6_000) as server:
        async with client_of(server) as client, Session.open("long", storage=InMemoryStorage()) as session:
            agent, history = agent_of(client, session), []
            for number in range(8):
                done = await agent.run(f"{number}: " + "tell me more about the harbour. " * 20, message_history=history)
                history = done.all_messages()
            assert {status for status, _ in server.refusals} == {400}
            assert len(server.usages) == 8


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


pytestmark = pytest.mark.anyio
