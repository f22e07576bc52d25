"""Your own loop with Reverie. Needs the extras anthropic and testing."""

from __future__ import annotations

import anyio

from reverie import InMemoryStorage, Session
from reverie.testing.messages_server import MessagesServer

READ = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}


def answer(request: dict) -> list[dict] | str:
    """Act as a model: read a file, then describe it."""
    if len(request["messages"]) == 1:
        return [{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "notes.txt"}}]
    return "It says: buy bread."


async def main() -> None:
    from anthropic import AsyncAnthropic

    with MessagesServer(answer) as server:
        client = AsyncAnthropic(base_url=server.base_url, api_key="none needed here")
        async with client, Session.open("example", storage=InMemoryStorage()) as session:
            await session.say("What is in notes.txt?")
            while True:
                request = await session.prepare(model="claude-haiku-4-5", max_tokens=1000, tools=[READ])
                calls = await session.observe(await client.messages.create(**request))
                if not calls:
                    break
                for call in calls:
                    await session.result(call.id, "buy bread\n")
            print(session.view.messages()[-1]["content"][0]["text"])


anyio.run(main)
