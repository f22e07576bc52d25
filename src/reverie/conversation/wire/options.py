"""The fields of a request besides its messages: model, system prompt, tools, options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from ...model_facts import default_model
from ..decisions import PrefixRendered
from .blocks import Block, text_block

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "REQUEST_FIELDS",
    "declared_tools",
    "opening_of",
    "options_of",
    "system_of",
    "tools_of",
]

DEFAULT_MAX_TOKENS: Final = 8_000
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
_THINKING: Final = frozenset({"enabled", "disabled", "adaptive", "between_tools"})
_CHOICES: Final = frozenset({"auto", "any", "tool", "none"})
_TOOL_KEYS: Final = frozenset(
    {
        *("name", "description", "input_schema", "type", "strict", "defer_loading"),
        *("allowed_callers", "input_examples", "eager_input_streaming"),
    }
)
_EDITS: Final = frozenset({"clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"})
REQUEST_FIELDS: Final = frozenset(
    {
        *("max_tokens", "tool_choice", "stream", "stop_sequences", "temperature", "top_p", "top_k", "metadata"),
        *("thinking", "container", "context_management", "compaction", "diagnostics", "inference_geo", "mcp_servers"),
        *("output_config", "output_format", "service_tier", "speed"),
    }
)


def opening_of(prefix: PrefixRendered, called: Iterable[str] = ()) -> dict[str, Any]:
    """Return a request without its messages; if the prefix has no valid tools, declare the tools ``called``."""
    tools = tools_of(prefix) or declared_tools(called)
    opening: dict[str, Any] = {"model": prefix.model or default_model(), **options_of(prefix, tools)}
    system = system_of(prefix)
    if system is not None:
        opening["system"] = system
    if tools:
        opening["tools"] = tools
    return opening


def system_of(prefix: PrefixRendered) -> str | list[Block] | None:
    """Return the system prompt as a provider accepts it, or None if it is empty."""
    system: Any = prefix.system
    if isinstance(system, str):
        return system if system.strip() else None
    if not isinstance(system, list):
        return None
    blocks: list[Block] = []
    for block in cast("list[Any]", system):
        text = cast(Block, block).get("text") if isinstance(block, dict) else block
        if isinstance(text, str) and text.strip():
            same = isinstance(block, dict) and set(cast(Block, block)) == {"type", "text"}
            blocks.append(cast(Block, block) if same else text_block(text))
    return blocks or None


def tools_of(prefix: PrefixRendered) -> list[Block]:
    """Return a list of the prefix's valid tools in order, each name once, without keys that a provider rejects."""
    tools: list[Block] = []
    names: set[str] = set()
    for tool in prefix.tools:
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.match(name) or name in names:
            continue
        if tool.get("type") in (None, "custom"):
            schema = tool.get("input_schema")
            described = isinstance(tool.get("description", ""), str)
            if not (isinstance(schema, dict) and cast(Block, schema).get("type") == "object" and described):
                continue
            if not _TOOL_KEYS.issuperset(tool):
                tool = {key: value for key, value in tool.items() if key in _TOOL_KEYS}
        elif "cache_control" in tool:
            tool = {key: value for key, value in tool.items() if key != "cache_control"}
        names.add(name)
        tools.append(tool)
    return tools


def declared_tools(names: Iterable[str]) -> list[Block]:
    """Return minimal declarations for tools known only from their calls, so that a provider accepts the calls."""
    return [
        {"name": name, "description": "A tool used earlier.", "input_schema": {"type": "object", "properties": {}}}
        for name in dict.fromkeys(names)
    ]


def options_of(prefix: PrefixRendered, tools: list[Block]) -> dict[str, Any]:
    """Return the prefix's options that a provider accepts with these tools; ``max_tokens`` is always included."""
    given = {key: value for key, value in prefix.options.items() if key in REQUEST_FIELDS and value is not None}
    limit = given.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        limit = DEFAULT_MAX_TOKENS
    options: dict[str, Any] = {"max_tokens": limit}
    for key, value in given.items():
        if key == "max_tokens" or (key == "thinking" and not _fits_thinking(value, limit)):
            continue
        if key == "tool_choice" and not _fits_choice(value, tools):
            continue
        if key == "context_management" and not _fits_edits(value, given.get("thinking"), limit):
            continue
        options[key] = value
    return options


def _fits_thinking(value: Any, limit: int) -> bool:
    if not isinstance(value, dict):
        return False
    thinking = cast(Mapping[str, Any], value)
    kind, budget = thinking.get("type"), thinking.get("budget_tokens")
    if kind == "enabled":
        return isinstance(budget, int) and not isinstance(budget, bool) and 1024 <= budget < limit
    return isinstance(kind, str) and kind in _THINKING


def _fits_choice(value: Any, tools: list[Block]) -> bool:
    if not isinstance(value, dict) or not tools:
        return False
    choice = cast(Mapping[str, Any], value)
    kind = choice.get("type")
    if kind == "tool":
        return any(tool["name"] == choice.get("name") for tool in tools)
    return isinstance(kind, str) and kind in _CHOICES


def _fits_edits(value: Any, thinking: Any, limit: int) -> bool:
    edits: Any = cast(Mapping[str, Any], value).get("edits") if isinstance(value, dict) else None
    if not isinstance(edits, list):
        return False
    for position, edit in enumerate(cast("list[Any]", edits)):
        kind = cast(Mapping[str, Any], edit).get("type") if isinstance(edit, dict) else None
        if not isinstance(kind, str) or kind not in _EDITS:
            return False
        if kind == "clear_thinking_20251015":
            fits = thinking is None or _fits_thinking(thinking, limit)
            if position or not fits or (thinking is not None and thinking.get("type") == "disabled"):
                return False
    return True
