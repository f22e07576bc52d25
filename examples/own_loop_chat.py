"""Your own loop around chat completions, of OpenAI or of any server with that API."""

from __future__ import annotations

import anyio

from reverie import InMemoryStorage, Session
from reverie.testing.chat_server import ChatServer

READ = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}


def answer(request: dict) -> list[dict] | str:
    """Act as a model: read a file, then describe it."""
    if request["messages"][-1]["role"] == "user":
        return [{"type": "tool_use", "id": "call_1", "name": "Read", "input": {"file_path": "notes.txt"}}]
    return "It says: buy bread."


async def main() -> None:
    from openai import AsyncOpenAI

    with ChatServer(answer) as server:
        client = AsyncOpenAI(base_url=server.base_url, api_key="none needed here")
        async with client, Session.open("example", storage=InMemoryStorage()) as session:
            await session.say("What is in notes.txt?")
            while True:
                request = await session.prepare(model="gpt-4.1", max_tokens=1000, tools=[READ], shape="chat")
                calls = await session.observe(await client.chat.completions.create(**request))
                if not calls:
                    break
                for call in calls:
                    await session.result(call.id, "buy bread\n")
            print(session.view.messages()[-1]["content"][0]["text"])


anyio.run(main)
