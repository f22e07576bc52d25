"""Every door that shows the model a handle has a tool that opens it, one level at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, InputError, Session
from reverie.integrations.sync_session import sync_session
from reverie.testing.chat_server import ChatServer
from reverie.testing.messages_server import MessagesServer

LOG = "\n".join(f"2026-03-02 08:{at % 60:02} row {at} locked" for at in range(4_000))
UNKNOWN = "is no handle of this session"
_HANDLE = re.compile(r"read it back by its handle: (\S+)")


def bash(command: str) -> str:
    """Run a command."""
    return LOG


class OpeningModel:
    """A model that runs a command, opens the handle that it is shown, then one that does not exist, and ends."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        """The result of each call, by its id."""
        self.tools: set[str] = set()

    def __call__(self, request: Mapping[str, Any]) -> Any:
        self.tools = {tool.get("function", tool)["name"] for tool in request.get("tools", ())}
        for message in request["messages"]:
            if message["role"] == "tool":
                self.answers[message["tool_call_id"]] = text_in(message["content"])
            for block in message["content"] if isinstance(message["content"], list) else ():
                if block["type"] == "tool_result":
                    self.answers[block["tool_use_id"]] = text_in(block["content"])
        if "t1" not in self.answers:
            return [self.call("t1", "Bash", command="cat log")]
        if "t2" not in self.answers:
            (handle,) = _HANDLE.findall(self.answers["t1"])
            return [self.call("t2", "expand", handle=handle)]
        if "t3" not in self.answers:
            return [self.call("t3", "expand", handle="toolu_nothing")]
        return "done"

    def call(self, id: str, name: str, **given: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": id, "name": name, "input": given}

    def check(self) -> None:
        """Assert that the handle was opened and that the unknown one was refused in words."""
        assert self.answers["t2"].startswith(LOG[:1_000])
        assert "go on with offset" in self.answers["t2"]
        assert UNKNOWN in self.answers["t3"]
        assert "expand" in self.tools


def text_in(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)


@pytest.fixture
def model() -> OpeningModel:
    return OpeningModel()


@pytest.fixture
def server(model: OpeningModel) -> Iterator[MessagesServer]:
    with MessagesServer(model) as server:
        yield server


@pytest.fixture
def session() -> Iterator[Session]:
    with sync_session(Session.open("a", storage=InMemoryStorage())) as session:
        yield session


@pytest.mark.requirement("B2")
def test_langchain(model: OpeningModel, server: MessagesServer, session: Session) -> None:
    from langchain.agents import create_agent
    from langchain_anthropic import ChatAnthropic
    from langchain_core.tools import StructuredTool

    from reverie.integrations.langchain import ReverieMiddleware

    chat: Any = ChatAnthropic
    agent: Any = create_agent(
        chat(model_name="claude-sonnet-4-6", api_key="any", base_url=server.base_url, max_tokens=500, max_retries=0),
        [StructuredTool.from_function(bash, name="Bash")],
        middleware=[ReverieMiddleware(session)],
    )
    agent.invoke({"messages": [("user", "what happened?")]})
    model.check()
    model.answers.clear()

    async def again() -> None:
        async with Session.open("b", storage=InMemoryStorage()) as other:
            agent: Any = create_agent(
                chat(model_name="claude-sonnet-4-6", api_key="any", base_url=server.base_url, max_tokens=500),
                [StructuredTool.from_function(bash, name="Bash")],
                middleware=[ReverieMiddleware(other)],
            )
            await agent.ainvoke({"messages": [("user", "what happened?")]})

    anyio.run(again)
    model.check()


@pytest.mark.requirement("B2")
def test_pydantic_ai(model: OpeningModel, server: MessagesServer) -> None:
    from anthropic import AsyncAnthropic
    from pydantic_ai import Agent, Tool
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    from reverie.integrations.pydantic_ai import ReverieCapability

    async def run() -> None:
        async with (
            Session.open("a", storage=InMemoryStorage()) as session,
            AsyncAnthropic(base_url=server.base_url, api_key="any", max_retries=0) as client,
        ):
            provider = AnthropicProvider(anthropic_client=client)
            agent: Any = Agent(
                AnthropicModel("claude-sonnet-4-6", provider=provider),
                tools=[Tool(bash, name="Bash")],
                capabilities=[ReverieCapability(session)],
            )
            await agent.run("what happened?")

    anyio.run(run)
    model.check()


@pytest.mark.requirement("B2")
def test_openai_agents() -> None:
    from agents import Agent, FunctionTool, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    from reverie.integrations.openai_agents import ReverieSession

    set_tracing_disabled(True)
    model = OpeningModel()

    async def run_bash(context: Any, given: str) -> str:
        return LOG

    async def run() -> None:
        with ChatServer(model) as server:
            async with Session.open("a", storage=InMemoryStorage()) as opened:
                session = ReverieSession(opened)
                schema = {"type": "object", "properties": {"command": {"type": "string"}}}
                command = FunctionTool("Bash", "Run a command.", schema, run_bash, strict_json_schema=False)
                async with AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client:
                    agent: Any = Agent(
                        name="a",
                        tools=[command, session.expand_tool],
                        model=OpenAIChatCompletionsModel(model="gpt-5.6", openai_client=client),
                    )
                    await Runner.run(
                        agent, "what happened?", session=session, run_config=session.run_config(), hooks=session.hooks
                    )

    anyio.run(run)
    model.check()


@pytest.mark.requirement("B2")
def test_anthropic_sdk(model: OpeningModel, server: MessagesServer, session: Session) -> None:
    from anthropic import Anthropic
    from anthropic.lib.tools import BetaFunctionTool

    from reverie.integrations.anthropic import expand_tool, reverie_middleware

    with Anthropic(base_url=server.base_url, api_key="any", max_retries=0) as plain:
        client = plain.with_middleware(reverie_middleware(session))
        tools: Any = [BetaFunctionTool(bash, name="Bash"), expand_tool(session)]
        client.beta.messages.tool_runner(
            model="claude-sonnet-4-6",
            max_tokens=500,
            tools=tools,
            messages=[{"role": "user", "content": "what happened?"}],
        ).until_done()
    model.check()


@pytest.mark.requirement("B2")
def test_the_asynchronous_anthropic_sdk(model: OpeningModel, server: MessagesServer) -> None:
    from anthropic import AsyncAnthropic
    from anthropic.lib.tools import BetaAsyncFunctionTool

    from reverie.integrations.anthropic import async_expand_tool, reverie_middleware

    async def run_bash(command: str) -> str:
        """Run a command."""
        return LOG

    async def run() -> None:
        async with (
            Session.open("a", storage=InMemoryStorage()) as session,
            AsyncAnthropic(base_url=server.base_url, api_key="any", max_retries=0) as plain,
        ):
            client = plain.with_middleware(reverie_middleware(session))
            tools: Any = [BetaAsyncFunctionTool(run_bash, name="Bash"), async_expand_tool(session)]
            await client.beta.messages.tool_runner(
                model="claude-sonnet-4-6",
                max_tokens=500,
                tools=tools,
                messages=[{"role": "user", "content": "what happened?"}],
            ).until_done()

    anyio.run(run)
    model.check()


@pytest.mark.requirement("B2")
def test_own_loop(model: OpeningModel) -> None:
    async def run() -> None:
        async with Session.open("a", storage=InMemoryStorage()) as session:
            await session.say("what happened?")
            while True:
                tools = [{"name": "Bash", "input_schema": {"type": "object"}}, Session.EXPAND_TOOL]
                request = await session.prepare(model="claude-sonnet-4-6", max_tokens=500, tools=tools)
                said = model(json.loads(json.dumps(request)))
                content = said if isinstance(said, list) else [{"type": "text", "text": said}]
                calls = await session.observe({"role": "assistant", "content": content, "model": "claude-sonnet-4-6"})
                for call in calls:
                    given = call.input
                    try:
                        opened = call.name == "expand" and await session.expand(given["handle"], offset=0)
                        output = opened or LOG
                    except InputError as error:
                        output = str(error)
                    await session.result(call.id, output)
                if not calls:
                    return

    anyio.run(run)
    model.check()


@pytest.mark.requirement("B2")
def test_a_summary_that_a_session_shows_opens_level_by_level() -> None:
    """The handle of the summary in the request lists the messages; the next summary lists the first."""

    async def steps() -> None:
        async with Session.open("a", storage=InMemoryStorage()) as session:
            seen: list[str] = []
            bare = {"message": {"role": "user", "content": ["a bare text, as an imported log may have"]}}
            await session.log.append("user", bare)
            for part in range(2):
                for number in range(12):
                    await session.say(f"question {part}-{number}\nin two lines")
                    await session.observe({"role": "assistant", "content": f"because {part}-{number} " + "so " * 2_000})
                await session.compact()
                request = await session.prepare(model="claude-sonnet-4-6", max_tokens=500)
                shown = json.dumps(request["messages"])
                seen += re.findall(r"all of it by the handle ([\w-]+)", shown)
            first, second = seen[0], seen[-1]
            outer = await session.expand(second)
            assert f"\n{first}  summary  " in outer
            assert "question 1-0" in outer
            assert "because 0-0" not in outer  # one level, not two
            inner = await session.expand(first)
            assert "  user  " in next(line for line in inner.split("\n") if "a bare text" in line)
            line = next(line for line in inner.split("\n") if "question 0-0" in line)
            assert "  user  " in line
            assert await session.expand(line.split()[0]) == "question 0-0\nin two lines"

    anyio.run(steps)


def test_arguments_that_a_model_got_wrong_are_answered_in_words(session: Session) -> None:
    """A call with wrong arguments gets a reason, never an exception in the host."""
    from reverie.integrations.anthropic import async_expand_tool, expand_tool
    from reverie.integrations.langchain import ReverieMiddleware
    from reverie.integrations.openai_agents import ReverieSession

    (chain,) = ReverieMiddleware(session).tools
    agents = ReverieSession(session).expand_tool
    nobody: Any = None

    def answers(given: dict[str, Any]) -> set[Any]:
        return {
            expand_tool(session).call(given),
            anyio.run(async_expand_tool(session).call, given),
            chain.func(**given) if chain.func else None,
            anyio.run(agents.on_invoke_tool, nobody, json.dumps(given)),
        }

    wrong: list[dict[str, Any]] = [{}, {"handle": 3}, {"handle": None}, {"handle": "toolu_1", "offset": "later"}]
    for given in wrong:
        (answer,) = answers(given)
        assert "give a handle as text" in answer, given
    (answer,) = answers({"handle": "toolu_1", "offset": None, "self": 1, "given": 2, "why": "to see"})
    assert UNKNOWN in answer
    for text in ("", "{", "[1]"):
        assert "no JSON object" in anyio.run(agents.on_invoke_tool, nobody, text)


def test_known_bad_langchain_without_the_tool_is_found(
    model: OpeningModel, server: MessagesServer, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reverie.integrations.langchain import ReverieMiddleware

    made = ReverieMiddleware.__init__

    def without_tools(self: ReverieMiddleware, *given: Any) -> None:
        made(self, *given)
        self.tools = []

    monkeypatch.setattr(ReverieMiddleware, "__init__", without_tools)
    with pytest.raises(AssertionError):
        test_langchain(model, server, session)
    assert "expand is not a valid tool" in model.answers["t2"]


def test_known_bad_pydantic_ai_without_the_tool_is_found(
    model: OpeningModel, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pydantic_ai.exceptions import UnexpectedModelBehavior

    from reverie.integrations.pydantic_ai import ReverieCapability

    monkeypatch.setattr(ReverieCapability, "get_toolset", lambda self: None)
    with pytest.raises(UnexpectedModelBehavior, match="expand"):
        test_pydantic_ai(model, server)
