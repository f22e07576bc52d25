"""Questions to a tool that may return or raise anything: its access, preview and check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from ...tools.context import ToolContext
from ...tools.tool import Access, Tool
from ..session.replies import error_text, shown_value

T = TypeVar("T")


def access_of(tool: Tool, given: Mapping[str, Any], context: ToolContext) -> Access | str:
    """Return the effect of a call, or the problem if the tool raises or returns something else."""
    try:
        found: Any = tool.access(given, context)
    except Exception as error:
        return f"{type(error).__name__}: {error_text(error)}"
    return found if isinstance(found, Access) else f"its access is {shown_value(found)}"


async def preview_of(tool: Tool, given: Mapping[str, Any], context: ToolContext) -> str:
    """Return the preview of a call; if it fails, a text that says so."""
    try:
        return str(await tool.preview(given, context))
    except Exception as error:
        return f"(the preview failed: {type(error).__name__}: {error_text(error)})"


async def problem_of(tool: Tool, given: Mapping[str, Any], context: ToolContext) -> str:
    """Return why a call must fail, if its tool can tell beforehand; else an empty text."""
    check = cast("Callable[..., Awaitable[str]] | None", getattr(tool, "check", None))
    try:
        return str(await check(given, context)) if check is not None else ""
    except Exception:
        return ""  # the call itself will tell
