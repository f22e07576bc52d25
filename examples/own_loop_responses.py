"""Your own loop around OpenAI's Responses, which keep no state there: reasoning goes back from the log."""

from __future__ import annotations

import anyio

from reverie import InMemoryStorage, Session
from reverie.testing.chat_server import ChatServer

READ = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}


def answer(request) -> list:
    """Act as a model that reasons: read a file, then describe it."""
    thought = {"type": "thinking", "thinking": "The file first."}
    if request["input"][-1].get("role") == "user":
        return [thought, {"type": "tool_use", "id": "call_1", "name": "Read", "input": {"file_path": "notes.txt"}}]
    return [thought, {"type": "text", "text": "It says: buy bread."}]


async def main() -> None:
    from openai import AsyncOpenAI

    with ChatServer(answer) as server:
        client = AsyncOpenAI(base_url=server.base_url, api_key="none needed here")
        async with client, Session.open("example", storage=InMemoryStorage()) as session:
            await session.say("What is in notes.txt?")
            while True:
                request = await session.prepare(model="gpt-5.6-sol", max_tokens=1000, tools=[READ], shape="responses")
                calls = await session.observe(response := await client.responses.create(**request))
                if not calls:
                    break
                for call in calls:
                    await session.result(call.id, "buy bread\n")
            print([item["type"] for item in request["input"]], response.output_text)


anyio.run(main)
