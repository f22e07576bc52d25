"""Deferred tools: requests declare them only after they were found, so that many tools take little of the window."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from ..conversation.tokens.estimate import estimate_request, estimate_text
from ..memories.recall.fence import escaped
from .tool import Tool, declaration

__all__ = ["definition_tokens", "first_line", "schema_answer", "tool_listing", "tools_to_defer"]

_LINE_CHARS: Final = 100


def definition_tokens(tool: Tool) -> int:
    """Return the estimated tokens of a tool's definition in a request."""
    return estimate_request([], tools=[declaration(tool)])


def tools_to_defer(
    tools: Iterable[Tool], *, max_tokens: int, declared: Collection[str] = (), earlier: Collection[str] = ()
) -> list[Tool]:
    """Return the tools to defer: those that say so, and if they are too large together those that leave it open.

    Of the latter a resumed session keeps its choice: ``declared`` are the tools that its requests declare, ``earlier``
    those that it deferred.
    """
    given = list(tools)
    choices: list[Any] = [getattr(tool, "deferred", False) for tool in given]
    undecided = [tool for tool, choice in zip(given, choices, strict=True) if choice is None]
    is_large = sum(map(definition_tokens, undecided)) > max_tokens
    found: list[Tool] = []
    for tool, choice in zip(given, choices, strict=True):
        if choice is None:
            choice = tool.name in earlier or (is_large and tool.name not in declared)
        if choice:
            found.append(tool)
    return found


def tool_listing(tools: Sequence[Tool], max_tokens: int) -> str:
    """Return the names of tools by server with a line about each; without lines or with fewer names if too long."""
    groups: dict[str, list[Tool]] = {}
    for tool in tools:
        connection: Any = getattr(tool, "connection", None)
        heading = f"MCP server {escaped(connection.name)}" if connection is not None else "Other tools"
        groups.setdefault(heading, []).append(tool)
    text = "\n\n".join(
        "\n".join([f"{heading}:", *(f"- {tool.name}: {first_line(tool.description)}" for tool in group)])
        for heading, group in groups.items()
    )
    most = max(map(len, groups.values()), default=0)
    while estimate_text(text) > max_tokens and most:
        text = "\n".join(f"{heading}: {_names(group, most)}" for heading, group in groups.items())
        most //= 2
    return text


def _names(tools: Sequence[Tool], most: int) -> str:
    more = len(tools) - most
    return ", ".join([*(tool.name for tool in tools[:most]), *([f"and {more} more"] if more > 0 else [])])


def first_line(text: str, max_chars: int = _LINE_CHARS) -> str:
    """Return the beginning of a description on one line, escaped so that it cannot speak for the user."""
    line = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    return escaped(line if len(line) <= max_chars else line[: max_chars - 1] + "…")


def schema_answer(tool: Tool) -> str:
    """Return the answer to a call of a deferred tool that was not found before: its description and schema."""
    about = escaped(f"{tool.description}\n\nSchema: {json.dumps(tool.input_schema, ensure_ascii=False)}")
    return (
        f"Not run: {tool.name} is a deferred tool that you had not found yet. The next request declares it. Call it "
        f"again, with an input that fits its schema.\n\n{about}"
    )
