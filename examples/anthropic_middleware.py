"""An unchanged loop around the Anthropic SDK, kept in a session by one line. Needs the testing extra."""

from __future__ import annotations

from anthropic import Anthropic
from anthropic.types import ToolParam

from reverie import InMemoryStorage, Session
from reverie.integrations.anthropic import reverie_middleware
from reverie.integrations.sync_session import sync_session
from reverie.testing.messages_server import MessagesServer

BASH: ToolParam = {"name": "Bash", "description": "Run a command.", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "cat server.log"}}
LOG = "\n".join(f"line {number}" for number in range(30_000))


def answer(request: dict) -> list[dict] | str:
    """Act as a model: read the log, then describe it."""
    return [CALL] if len(request["messages"]) == 1 else "Thirty thousand lines."


with MessagesServer(answer) as server, sync_session(Session.open("example", storage=InMemoryStorage())) as session:
    client = Anthropic(base_url=server.base_url, api_key="none needed here").with_middleware(
        reverie_middleware(session)
    )
    messages: list = [{"role": "user", "content": "What is in the log?"}]
    while True:
        reply = client.messages.create(model="claude-haiku-4-5", max_tokens=1000, tools=[BASH], messages=messages)
        messages.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            break
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": LOG} for call in calls]
        messages.append({"role": "user", "content": results})
    said = "".join(block.text for block in reply.content if block.type == "text")
    print(said, f"{len(str(server.requests[-1])):,} characters were sent in place of {len(LOG):,}.")
    client.close()
