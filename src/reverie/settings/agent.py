"""Settings of an agent: limits, permissions, hooks and MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from ..values import field, record

Mode: TypeAlias = Literal["default", "accept-edits", "plan", "bypass"]

HOOK_EVENTS: Final = (
    "session_start",
    "session_end",
    "user_prompt",
    "before_tool",
    "after_tool",
    "before_compact",
    "after_compact",
    "stop",
)


@record
class AgentPolicy:
    """The limits of an agent and of its tools."""

    max_turns: int = 200
    max_tokens: int = 8_000
    """The maximum output tokens of a reply; a reply that was cut off raises it once, to ``max_tokens_raised``."""
    max_tokens_raised: int = 64_000
    budget_usd: float | None = None
    """The most that one session may cost."""
    budget_day_usd: float | None = None
    """The most that all sessions of this home may cost in one UTC day; ``month`` likewise."""
    budget_month_usd: float | None = None
    budget_project_day_usd: float | None = None
    """The most that all sessions of one project may cost in one UTC day; ``month`` likewise."""
    budget_project_month_usd: float | None = None
    bash_timeout_seconds: float = 120.0
    bash_max_timeout_seconds: float = 600.0
    read_max_lines: int = 2_000
    read_max_tokens: int = 25_000
    read_max_bytes: int = 262_144
    web_fetch: bool = False
    """Whether the WebFetch tool is offered to the model."""
    parallel_tools: int = 8
    """How many calls of one reply run at once if all of them only read."""


@record
class PermissionRules:
    """The tool calls that are allowed, need the user's approval, or are denied.

    A rule is a tool's name, or ``Tool(pattern)``: a path pattern for file tools (``Edit(src/**)``), a command prefix
    for Bash (``Bash(git status:*)``), a host for WebFetch (``WebFetch(docs.python.org)``), ``mcp__server`` or
    ``mcp__server__tool`` for tools of MCP servers. Deny goes before ask, ask before allow.
    """

    mode: Mode = "default"
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    """Directories besides the working directory that file tools may use."""


@record
class HookCommand:
    """A command that gets an event as JSON on stdin and may answer with JSON on stdout."""

    command: str
    matcher: str = ""
    """A regular expression for the tool's name; empty matches all."""
    timeout_seconds: float = 60.0


@record
class McpServer:
    """An MCP server whose tools are offered to the agent: a command on this machine, or a URL."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: {})
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: {})
    timeout_seconds: float = 30.0
    deferred: bool | tuple[str, ...] | None = None
    """Whether its tools, or which of them, are declared only after ToolSearch has found them.

    None defers the tools of all such servers if their definitions together take more than a share of the window.
    """
