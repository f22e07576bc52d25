"""A LangChain agent whose conversation is kept in a session by one middleware. Needs the extras of both."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from pydantic import SecretStr

from reverie import InMemoryStorage, Session
from reverie.integrations.langchain import ReverieMiddleware
from reverie.integrations.sync_session import sync_session
from reverie.testing.messages_server import MessagesServer

CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "cat server.log"}}
LOG = "\n".join(f"line {number}" for number in range(30_000))


def answer(request: dict) -> list[dict] | str:
    """Act as a model: read the log, then describe it."""
    return [CALL] if len(request["messages"]) == 1 else "Thirty thousand lines."


def bash(command: str) -> str:
    """Run a command."""
    return LOG


with MessagesServer(answer) as server, sync_session(Session.open("example", storage=InMemoryStorage())) as session:
    model = ChatAnthropic(
        model_name="claude-haiku-4-5",
        base_url=server.base_url,
        api_key=SecretStr("none"),
        max_tokens_to_sample=1000,
        timeout=None,
        stop=None,
    )
    agent = create_agent(model, [bash], middleware=[ReverieMiddleware(session)])
    state = agent.invoke({"messages": [{"role": "user", "content": "What is in the log?"}]})
    print(state["messages"][-1].text)
    print(f"{len(str(server.requests[-1])):,} characters were sent in place of {len(LOG):,}.")
