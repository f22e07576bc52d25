"""Calls into a tool that may return or raise anything: its output, access, preview and check."""

from __future__ import annotations

from asyncio import CancelledError, current_task
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeVar, cast

from ...conversation.file_reads import FileRead
from ...tools.context import ToolContext
from ...tools.tool import Access, Output, Tool
from ...values import replace
from ..session.replies import result_content, shown_value

T = TypeVar("T")


async def output_or_error(tool: Tool, given: Mapping[str, Any], context: ToolContext) -> Output:
    """Run a tool and return its output; any value and any exception becomes one, except a real cancellation."""
    try:
        found: Any = tool.run(given, context)
        while isawaitable(found):
            found = await found
        return _as_output(found)
    except (Exception, SystemExit, GeneratorExit) as error:
        return Output(f"The tool failed: {type(error).__name__}: {_words(error)}", is_error=True)
    except CancelledError:
        task = current_task()
        if task is not None and task.cancelling():
            raise
        return Output("The tool failed: it cancelled itself.", is_error=True)


def _as_output(found: Any) -> Output:
    """Return the value of a tool as an output that can be logged."""
    if not isinstance(found, Output):
        is_error = isinstance(found, BaseException)
        return Output(_words(found) if is_error else result_content(found), is_error=is_error)
    return replace(
        found,
        content=result_content(found.content),
        is_error=bool(found.is_error),
        read=_only(str, found.read),
        wrote=_only(str, found.wrote),
        found=_only(str, found.found),
        files=_only(FileRead, found.files),
        lines=found.lines if isinstance(found.lines, int) else None,
    )


def _only(kind: type[T], given: Any) -> tuple[T, ...]:
    """Return the items of this type; an empty tuple if the value is no collection."""
    items = cast("list[Any]", given) if isinstance(given, list | tuple | set | frozenset) else ()
    return tuple(one for one in items if isinstance(one, kind))


def access_of(tool: Tool, given: Mapping[str, Any], context: ToolContext) -> Access | str:
    """Return the effect of a call, or the problem if the tool raises or returns something else."""
    try:
        found: Any = tool.access(given, context)
    except Exception as error:
        return f"{type(error).__name__}: {_words(error)}"
    return found if isinstance(found, Access) else f"its access is {shown_value(found)}"


async def preview_of(tool: Tool, given: Mapping[str, Any], context: ToolContext) -> str:
    """Return the preview of a call; if it fails, a text that says so."""
    try:
        return str(await tool.preview(given, context))
    except Exception as error:
        return f"(the preview failed: {type(error).__name__}: {_words(error)})"


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return shown_value(error)


async def problem_of(tool: Tool, given: Mapping[str, Any], context: ToolContext) -> str:
    """Return why a call must fail, if its tool can tell beforehand; else an empty text."""
    check = cast("Callable[..., Awaitable[str]] | None", getattr(tool, "check", None))
    try:
        return str(await check(given, context)) if check is not None else ""
    except Exception:
        return ""  # the call itself will tell
