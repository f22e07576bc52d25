"""The tools of an agent, one module per tool."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from .tool import Access, Output, Tool, error_output

if TYPE_CHECKING:
    from ..settings import AgentPolicy
    from .context import Todo, ToolContext, WebAccess

__all__ = [
    "Access",
    "Output",
    "Todo",
    "Tool",
    "ToolContext",
    "WebAccess",
    "error_output",
    "relay_tools",
    "standard_tools",
]


def standard_tools(policy: AgentPolicy, only: Collection[str] | None = None) -> list[Tool]:
    """Return every agent's tools, WebFetch only if ``policy`` allows it, in a fixed order for the prompt cache.

    ``only`` leaves out tools with other names; without BashOutput, Bash starts nothing in the background.
    """
    from .bash import Bash, BashOutput, KillShell
    from .edit import Edit
    from .glob import Glob
    from .grep import Grep
    from .plan import PlanTool
    from .read import Read
    from .skill import SkillTool
    from .todo import TodoWrite
    from .web_fetch import WebFetch
    from .write import Write

    bash = Bash(policy, background=only is None or "BashOutput" in only)
    tools: list[Tool] = [Read(), Write(), Edit(), Glob(), Grep(), bash, BashOutput(), KillShell(), TodoWrite()]
    tools += [SkillTool(), PlanTool()]
    if policy.web_fetch:
        tools.append(WebFetch())
    return tools if only is None else [tool for tool in tools if tool.name in only]


def relay_tools() -> list[Tool]:
    """Return the tools Agent, AgentStop and SendMessage, always in this order."""
    from .agent import AgentStop, AgentTool
    from .send_message import SendMessage

    return [AgentTool(), AgentStop(), SendMessage()]


def __getattr__(name: str) -> Any:
    if name in ("Todo", "ToolContext", "WebAccess"):
        from . import context

        return getattr(context, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
