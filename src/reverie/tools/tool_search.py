"""Deferred tools, which requests declare only after ToolSearch has found them: many tools take little of the window."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from anyio import to_thread

from ..conversation.tokens.estimate import estimate_request, estimate_text
from ..memories.recall.fence import escaped
from ..memories.recall.search import MemoryIndex
from ..memories.store.records import MemoryRecord
from ..text.counts import counted
from .context import ToolContext
from .tool import Access, NoPreview, Output, Tool, declaration, error_output, object_schema

NAME: Final = "ToolSearch"
_MOST: Final = 5
"""How many tools a query finds at most."""
_MOST_NAMES: Final = 20
_LEAST_SHARE: Final = 0.5
"""The share of the best score that a tool needs to be found."""
_DESCRIPTION_CHARS: Final = 300
_SCHEMA_CHARS: Final = 2_000
_LINE_CHARS: Final = 100

_INPUT: Final = object_schema(
    (),
    query={"type": "string", "description": f"Words about the task; at most {_MOST} tools are found"},
    names={
        "type": "array",
        "items": {"type": "string"},
        "maxItems": _MOST_NAMES,
        "description": "Exact names from the list of deferred tools",
    },
)


class ToolSearch(NoPreview):
    """The tool ToolSearch: finds deferred tools, which requests declare from then on."""

    name = NAME
    description = (
        "Find deferred tools. The list of deferred tools names tools that you cannot call yet. Give the names of all "
        "that you need in one call, or a query if no name fits; you can call the found tools from your next turn on, "
        "for the rest of the session."
    )
    input_schema = _INPUT

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._index: MemoryIndex | None = None

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return an access of kind ``none``: finding a tool does not run it."""
        return Access("none", str(input.get("query") or ""))

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Return the tools with these names and those that best match the query, with their descriptions."""
        query, asked = str(input.get("query") or "").strip(), [str(name) for name in input.get("names") or ()]
        if not (query or asked):
            return error_output("give names from the list of deferred tools, or a query")
        unknown = [name for name in asked if name not in self._tools]
        found = [name for name in asked if name in self._tools]
        words = query or ("" if found else " ".join(unknown))
        if words:
            found += await to_thread.run_sync(self._matches, words)  # the first search reads every definition
        found = list(dict.fromkeys(found))
        lines = [f"No deferred tool is called {name[:80]!r}." for name in unknown]
        if not found:
            lines.append("No deferred tool matches. Search with other words, or give names from the list.")
            return Output("\n".join(lines))
        lines.append(f"Found {counted(len(found), 'tool')}; the next request declares the new ones:")
        lines += [f"- {name}: {first_line(self._tools[name].description, _DESCRIPTION_CHARS)}" for name in found]
        return Output("\n".join(lines), found=tuple(found))

    def _matches(self, query: str) -> list[str]:
        """Return the names of the tools that match a query best, the best first."""
        if self._index is None:
            self._index = MemoryIndex(map(_indexed, self._tools.values()))
        matches = self._index.search(query, limit=_MOST)
        return [one.file for one in matches if one.score >= _LEAST_SHARE * matches[0].score]


def _indexed(tool: Tool) -> MemoryRecord:
    inputs = json.dumps(tool.input_schema.get("properties"), ensure_ascii=False)
    return MemoryRecord(tool.name, tool.name, tool.description, body=inputs[:_SCHEMA_CHARS])


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
