"""Claude's memory tool over Reverie's store: each file the model writes is a memory, journaled and undoable."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from anthropic import Anthropic

from reverie import Memory
from reverie.integrations.anthropic import ReverieMemoryTool
from reverie.testing.messages_server import MessagesServer

NOTE = {"command": "create", "path": "/memories/tests.md", "file_text": "Tests use the real database, never a mock.\n"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "memory", "input": NOTE}


def answer(request: dict) -> list[dict] | str:
    """Act as a model: save a memory, then say so."""
    return [CALL] if len(request["messages"]) == 1 else "I will remember that."


with MessagesServer(answer) as server, TemporaryDirectory() as folder:
    memory = Memory(folder)
    tool = ReverieMemoryTool(memory)
    messages: list = [{"role": "user", "content": "Remember: no mocks in our tests."}]
    asked = {"model": "claude-haiku-4-5", "max_tokens": 1000, "tools": [tool.to_dict()]}
    with Anthropic(base_url=server.base_url, api_key="none needed here") as client:
        while (reply := client.beta.messages.create(**asked, messages=messages)).stop_reason == "tool_use":
            calls = [block for block in reply.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": one.id, "content": tool.call(one.input)} for one in calls]
            messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]
    print(reply.content[0].text)
    for found in memory.recall("may I mock the database?"):
        print(f"{found.file}, trust {found.trust}: {found.description}")
