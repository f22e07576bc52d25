"""A Pydantic AI agent whose conversation is kept in a session by one capability. Needs the extras of both."""

from __future__ import annotations

import asyncio

from anthropic import AsyncAnthropic
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from reverie import InMemoryStorage, Session
from reverie.integrations.pydantic_ai import ReverieCapability
from reverie.testing.messages_server import MessagesServer

CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "cat server.log"}}
LOG = "\n".join(f"line {number}" for number in range(30_000))


def bash(command: str) -> str:
    """Run a command."""
    return LOG


async def main() -> None:
    with MessagesServer(
        lambda request: [CALL] if len(request["messages"]) == 1 else "Thirty thousand lines."
    ) as server:
        client = AsyncAnthropic(base_url=server.base_url, api_key="none needed here")
        async with client, Session.open("example", storage=InMemoryStorage()) as session:
            model = AnthropicModel("claude-haiku-4-5", provider=AnthropicProvider(anthropic_client=client))
            agent = Agent(model, tools=[bash], capabilities=[ReverieCapability(session)])
            print((await agent.run("What is in the log?")).output)
            print(f"{len(str(server.requests[-1])):,} characters were sent in place of {len(LOG):,}.")


asyncio.run(main())
