"""The tools of the user's MCP servers. Needs the extra ``reverie[mcp]``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any, Final

import anyio
from anyio import to_thread

from ..extras import install_command
from ..settings import McpServer
from .context import ToolContext
from .mcp_content import schema_of, tool_names
from .mcp_server import McpConnection
from .tool import Access, NoPreview, Output, Tool

_MAX_DESCRIPTION_CHARS: Final = 4_000


class McpTool(NoPreview):
    """A tool of an MCP server, under a name and with an input schema that the provider accepts."""

    def __init__(self, name: str, connection: McpConnection, listed: Mapping[str, Any]) -> None:
        self.name = name
        self.input_schema, self.problem = schema_of(listed.get("inputSchema"))
        said = str(listed.get("description") or listed.get("title") or "").strip()
        self.description = said[:_MAX_DESCRIPTION_CHARS] or f"A tool of the MCP server {connection.name}."
        self.connection = connection
        self._called = str(listed["name"])
        asked = connection.server.deferred
        self.deferred = self._called in asked if isinstance(asked, tuple) else asked

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return an access of kind ``other``: only the server knows the effect of a call."""
        return Access("other", f"{self.connection.name}/{self._called}")

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Call the tool on its server and return its result; an error output if the call fails or times out."""
        return await self.connection.call(self._called, input)


class McpTools:
    """The MCP servers of one agent: entering the context connects them and fills ``tools``; leaving ends them.

    Each server has a task of its own, so that a failing server does not affect the others. ``problems`` lists the
    servers that could not be connected and the tools whose schema was changed, with the reasons.
    """

    def __init__(self, servers: Mapping[str, McpServer], *, cwd: str | None = None) -> None:
        self.tools: list[Tool] = []
        self.problems: list[str] = []
        self.connections = [McpConnection(name, server, cwd=cwd) for name, server in servers.items()]
        self._group = AsyncExitStack()

    async def __aenter__(self) -> McpTools:
        if not self.connections:
            return self
        try:
            await to_thread.run_sync(import_module, "mcp")  # a second or two
        except ImportError:
            named = ", ".join(one.name for one in self.connections)
            self.problems.append(f"MCP servers ({named}) need an extra: {install_command('mcp')}")
            return self
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(anyio.create_task_group())
            for connection in self.connections:
                group.start_soon(connection.serve)
            for connection in self.connections:
                await connection.ready.wait()
            self._group = stack.pop_all()
        self._collect()
        return self

    async def __aexit__(self, *error: object) -> None:
        for connection in self.connections:
            connection.close()
        # An exception of the body is not passed on: the task group would wrap it in a group.
        await self._group.aclose()

    def _collect(self) -> None:
        by_name = {one.name: one for one in self.connections}
        listed = {(one.name, str(tool["name"])): tool for one in self.connections for tool in one.listed}
        for (server, called), name in tool_names(listed).items():
            tool = McpTool(name, by_name[server], listed[server, called])
            self.tools.append(tool)
            if tool.problem:
                self.problems.append(f"MCP server {server}, tool {called}: {tool.problem}")
        self.problems += [f"MCP server {one.name}: {one.problem}" for one in self.connections if one.problem]
