"""Drive ``reverie acp`` as an editor does; a test server plays the model. Needs ``reverie[acp,anthropic,testing]``."""

import asyncio
import sys
import tempfile

from acp import Client, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, RequestPermissionResponse

from reverie.testing.messages_server import MessagesServer


class Editor(Client):
    async def request_permission(self, session_id, tool_call, options, **_):
        print("asked:", tool_call.title, "-", ", ".join(one.option_id for one in options))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id="once"))

    async def session_update(self, session_id, update, **_):
        if update.session_update == "agent_message_chunk":
            print("said:", update.content.text)
        elif update.session_update == "usage_update":
            print(f"usage: {update.used:,} of {update.size:,} tokens, {update.cost.amount:.4f} {update.cost.currency}")


def play(request):
    write = {"type": "tool_use", "name": "Write", "input": {"file_path": "hello.txt", "content": "Hello!\n"}}
    return "The greeting is written." if "tool_result" in str(request["messages"][-1]) else [write]


async def main(folder, env):
    command = [sys.executable, "-m", "reverie", "acp", "--model", "anthropic:claude-sonnet-5"]
    async with spawn_agent_process(Editor(), *command, env=env) as (agent, _):  # type: ignore[abstract]
        await agent.initialize(protocol_version=1)
        session = (await agent.new_session(cwd=folder, mcp_servers=[])).session_id
        print((await agent.prompt(session_id=session, prompt=[text_block("Write a greeting.")])).stop_reason)


with tempfile.TemporaryDirectory() as folder, MessagesServer(play) as server:
    address = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "none", "REVERIE_HOME": f"{folder}/home"}
    asyncio.run(main(folder, address))
