"""An OpenAI agent whose conversation is kept in Reverie's log and sent as Reverie's view. Needs the extras of both."""

from __future__ import annotations

import asyncio

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from reverie import InMemoryStorage, Session
from reverie.integrations.openai_agents import ReverieSession
from reverie.testing.chat_server import ChatServer

CALL = {"type": "tool_use", "id": "call_1", "name": "bash", "input": {"command": "cat server.log"}}
LOG = "\n".join(f"line {number}" for number in range(30_000))


@function_tool
def bash(command: str) -> str:
    """Run a command."""
    return LOG


async def main() -> None:
    set_tracing_disabled(True)
    with ChatServer(lambda request: [CALL] if len(request["input"]) == 1 else "Thirty thousand lines.") as server:
        client = AsyncOpenAI(base_url=server.base_url, api_key="none needed here")
        async with client, Session.open("example", storage=InMemoryStorage()) as opened:
            agent = Agent(name="helper", model=OpenAIResponsesModel("gpt-4.1", openai_client=client), tools=[bash])
            kept = ReverieSession(opened)
            config = kept.run_config()
            done = await Runner.run(agent, "What is in it?", session=kept, run_config=config, hooks=kept.hooks)
            print(done.final_output)
            print(f"{len(str(server.requests[-1])):,} characters were sent in place of {len(LOG):,}.")


asyncio.run(main())
