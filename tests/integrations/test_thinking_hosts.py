"""Frameworks around our session on a model that refuses thinking once content before it has changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from reverie import InMemoryStorage, Session, Settings
from reverie.conversation.decisions import Compacted, PrefixAmended, PrefixRendered, ThinkingDropped
from reverie.settings import Switches
from reverie.testing.messages_server import MessagesServer
from thinking_model import Heard, ThinkingModel

CHECKED = "claude-opus-5-5"
MANUAL = "claude-opus-4-5"
BUDGET: Any = {"type": "enabled", "budget_tokens": 1_024}
READS = 4
pytestmark = [pytest.mark.anyio, pytest.mark.slow]
HOSTS = [
    pytest.param("langchain", marks=pytest.mark.skipif(find_spec("langchain_anthropic") is None, reason="missing")),
    pytest.param("pydantic", marks=pytest.mark.skipif(find_spec("pydantic_ai") is None, reason="missing")),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def content_of(path: str) -> str:
    return "\n".join(f"{path} line {line} = {line * 7}" for line in range(450))


class LangChainHost:
    """An agent of LangChain whose system prompt and tools may change between prompts."""

    def __init__(self, server: MessagesServer, session: Session, model: str) -> None:
        from langchain_anthropic import ChatAnthropic
        from langgraph.checkpoint.memory import InMemorySaver

        from reverie.integrations.langchain import ReverieMiddleware

        given: dict[str, Any] = {"thinking": BUDGET} if model == MANUAL else {}
        self.model = ChatAnthropic(
            model_name=model, api_key="any", base_url=server.base_url, max_tokens=2_000, max_retries=0, **given
        )
        self.client = self.model._async_client
        self.middleware, self.memory = ReverieMiddleware(session), InMemorySaver()
        self.called: list[str] = []

    async def ask(self, text: str, system: str, tools: list[str]) -> str:
        from langchain.agents import create_agent
        from langchain_core.tools import StructuredTool

        def made(name: str) -> Any:
            def run(path: str) -> str:
                self.called.append(name)
                return content_of(path)

            return StructuredTool.from_function(run, name=name, description=f"{name} a file.")

        agent = create_agent(
            self.model,
            [made(name) for name in tools],
            system_prompt=system,
            middleware=[self.middleware],
            checkpointer=self.memory,
        )
        asked = {"messages": [{"role": "user", "content": text}]}
        done = await agent.ainvoke(asked, {"configurable": {"thread_id": "one"}})
        return done["messages"][-1].text


class PydanticHost:
    """An agent of Pydantic AI whose instructions and tools may change between prompts."""

    def __init__(self, server: MessagesServer, session: Session, model: str) -> None:
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        from reverie.integrations.pydantic_ai import ReverieCapability

        self.client = AsyncAnthropic(base_url=server.base_url, api_key="any", max_retries=0)
        given: Any = {"max_tokens": 2_000} | ({"anthropic_thinking": BUDGET} if model == MANUAL else {})
        provider = AnthropicProvider(anthropic_client=self.client)
        self.model = AnthropicModel(model, provider=provider, settings=given)
        self.capability, self.history = ReverieCapability(session), None
        self.called: list[str] = []

    async def ask(self, text: str, system: str, tools: list[str]) -> str:
        from pydantic_ai import Agent, Tool

        def made(name: str) -> Any:
            def run(path: str) -> str:
                self.called.append(name)
                return content_of(path)

            return Tool(run, name=name, description=f"{name} a file.")

        agent = Agent(
            self.model, instructions=system, tools=[made(name) for name in tools], capabilities=[self.capability]
        )
        done = await agent.run(text, message_history=self.history)
        self.history = done.all_messages()
        return done.output


@asynccontextmanager
async def hosted(
    name: str, server: MessagesServer, window: int = 200_000, model: str = CHECKED
) -> AsyncIterator[tuple[Any, Heard, Session]]:
    """Yield a host around a session, and the events of the session.

    Results are not cleared on the model that checks without a beta, which the session tells once.
    """
    quiet = Switches(notes=False, extraction=False, dream=False)
    settings = Settings(home=Path("unused"), window_tokens=window, switches=quiet)
    async with Session.open("hosted", storage=InMemoryStorage(), settings=settings) as session:
        host = (LangChainHost if name == "langchain" else PydanticHost)(server, session, model)
        try:
            yield host, Heard(session, "trim"), session
        finally:
            await host.client.close()


def thoughts_in(request: dict[str, Any]) -> list[str]:
    blocks = [block for one in request["messages"] if one["role"] == "assistant" for block in one["content"]]
    return [block["type"] for block in blocks if "thinking" in block["type"]]


@pytest.mark.requirement("V2")
@pytest.mark.parametrize("model", [CHECKED, MANUAL])
@pytest.mark.parametrize("name", HOSTS)
async def test_thinking_in_all_forms_reaches_log_and_provider(name: str, model: str, anyio_backend: str) -> None:
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server:
        async with hosted(name, server, model=model) as (host, heard, session):
            for number in range(2):
                await host.ask(f"Prompt {number}.", "Be brief.", ["read"])
            logged = [
                block
                for entry in session.view.history
                if entry.kind == "assistant"
                for block in entry.message["content"]
            ]
        assert (server.refusals, server.calls_without_thinking) == ([], set())
        assert (heard.fallbacks, heard.decisions(ThinkingDropped)) == ([], [])
        assert len(thoughts_in(server.requests[-1])) == 2 * (READS + 1) - 1
        thoughts = [block for block in logged if "thinking" in block["type"]]
        assert len(thoughts) == 2 * (READS + 1)
        assert any(block.get("thinking") == "" and block["signature"] for block in thoughts)
        assert any(block["type"] == "redacted_thinking" and block["data"] for block in thoughts)


@pytest.mark.requirement("V2", "V6")
@pytest.mark.parametrize("name", HOSTS)
async def test_a_changed_prompt_is_told_at_the_end_and_a_new_tool_can_be_called(name: str, anyio_backend: str) -> None:
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server:
        async with hosted(name, server) as (host, heard, _):
            await host.ask("One.", "Be brief.\nBe kind.", ["read"])
            await host.ask("Two.", "Be brief.\nBe kind.\nAnswer in French.", ["read"])
            assert heard.decisions(ThinkingDropped) == []
            assert len(heard.decisions(PrefixAmended)) == 1
            assert "French" not in repr(server.requests[-1]["system"])
            assert "French" in repr(server.requests[-1]["messages"])
            assert len(thoughts_in(server.requests[-1])) == 2 * (READS + 1) - 1
            await host.ask("Three.", "Be brief.\nBe kind.\nAnswer in French.", ["read", "write"])
            assert len(heard.decisions(ThinkingDropped)) == 1  # the host declares its tools, so the prefix changed
            assert {tool["name"] for tool in server.requests[-1]["tools"]} == {"expand", "read", "write"}
            assert "French" in repr(server.requests[-1]["system"])
            assert len(thoughts_in(server.requests[-1])) == READS  # those of the last prompt
        assert host.called == ["read"] * 2 * READS + ["write"] * READS
        assert server.refusals == []
        assert [one.split(":")[0] for one in heard.fallbacks] == ["thinking"]


@pytest.mark.requirement("V2")
@pytest.mark.parametrize("name", HOSTS)
async def test_a_long_run_is_compacted_and_never_refused(name: str, anyio_backend: str) -> None:
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server:
        async with hosted(name, server, 60_000) as (host, heard, _):
            for number in range(5):
                await host.ask(f"Prompt {number}.", "Be brief.", ["read"])
        assert server.refusals == []
        assert heard.decisions(Compacted)
        assert len(heard.decisions(PrefixRendered)) == 1
        assert not [one for one in heard.fallbacks if "refused" in one]
        assert thoughts_in(server.requests[-1])


@pytest.mark.requirement("V2")
@pytest.mark.parametrize("name", HOSTS)
async def test_a_host_that_keeps_sending_dropped_thinking_would_be_refused(
    name: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reverie.integrations import langchain_messages, pydantic_messages

    for module in (langchain_messages, pydantic_messages):
        monkeypatch.setattr(module, "has_thought", lambda _: True)
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server:
        async with hosted(name, server) as (host, _, _):
            await host.ask("One.", "Be brief.", ["read"])
            with pytest.raises(Exception, match=r"bound to a different conversation|replayed thinking block"):
                await host.ask("Two.", "Be brief.", ["read", "write"])
        assert server.refusals
