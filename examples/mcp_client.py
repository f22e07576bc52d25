"""Start ``reverie mcp`` as any MCP host would, remember something, and recall it. Needs ``reverie[mcp]``."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import CallToolResult, TextContent


def text_of(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


async def main(folder: str) -> None:
    reverie = shutil.which("reverie") or str(Path(sys.executable).with_name("reverie"))
    server = StdioServerParameters(
        command=reverie,
        args=["mcp"],
        env={"PATH": os.environ["PATH"], "REVERIE_HOME": f"{folder}/home"},
        cwd=folder,  # the project is the one this directory belongs to
    )
    async with Client(stdio_client(server)) as client:
        print("tools:", ", ".join(tool.name for tool in (await client.list_tools()).tools))
        kept = await client.call_tool(
            "remember",
            {"text": "Deploys happen on Tuesdays, never on Fridays.", "type": "project", "why": "the rota"},
        )
        print(text_of(kept))
        found = await client.call_tool("recall", {"query": "when do we deploy?"})
        print(text_of(found))


with tempfile.TemporaryDirectory() as folder:
    anyio.run(main, folder)
