"""The user's MCP servers: their tools, and the deferred ones among all tools."""

from __future__ import annotations

from contextlib import AsyncExitStack

from ...conversation.tokens.window import Window, budgets
from ...events import FellBack
from .parts import AgentParts

__all__ = ["open_servers"]


async def open_servers(parts: AgentParts, stack: AsyncExitStack) -> None:
    """Connect the user's MCP servers, add their tools to the agent's, and defer tools; ``stack`` closes the servers."""
    settings, session = parts.options.settings, parts.session
    if settings.mcp_servers:
        from ...tools.mcp import McpTools

        servers = await stack.enter_async_context(McpTools(settings.mcp_servers, cwd=str(parts.context.cwd)))
        for problem in servers.problems:
            session.log.emit(FellBack(session.name, "mcp", problem))
        parts.runs.add(servers.tools)
    window = Window(session.thresholds.effective, "facts", 0)
    await parts.runs.defer(budgets(window).server_tools)
