"""The provider's rules for the options and tools of a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .block_rules import EXTRA, TOOL_NAME, Fault, is_list, is_object, unknown_tag

__all__ = ["option_faults", "tool_faults"]

_KNOWN: Final = frozenset(
    [
        *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "stop_sequences"),
        *("temperature", "top_p", "top_k", "metadata", "thinking", "cache_control", "container", "context_management"),
        *("compaction", "diagnostics", "fallback_credit_token", "fallbacks", "inference_geo", "mcp_servers"),
        *("output_config", "output_format", "service_tier", "speed", "thread", "user_profile_id"),
    ]
)
_TOOL_KEYS: Final = frozenset(
    [
        *("name", "description", "input_schema", "type", "cache_control", "strict", "defer_loading"),
        *("allowed_callers", "input_examples", "eager_input_streaming"),
    ]
)
_CLEAR_THINKING: Final = "clear_thinking_20251015"
_EDITS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "clear_tool_uses_20250919": {
        "trigger": ("input_tokens", "tool_uses"),
        "keep": ("tool_uses",),
        "clear_at_least": ("input_tokens",),
        "exclude_tools": (),
        "clear_tool_inputs": (),
    },
    _CLEAR_THINKING: {"keep": ("thinking_turns", "all")},
    "compact_20260112": {"trigger": ("input_tokens",), "instructions": (), "pause_after_compaction": ()},
}


def option_faults(request: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults of a request's options as (path, message): unknown fields and invalid values.

    Checked are the values of model, max_tokens, thinking, tool_choice, context_management and diagnostics.
    """
    for name in request:
        if name not in _KNOWN:
            yield str(name), EXTRA
    model, max_tokens, thinking = request.get("model"), request.get("max_tokens"), request.get("thinking")
    if not (isinstance(model, str) and model):
        yield "model", "Field required" if model is None else "String should have at least 1 character"
    if max_tokens is None:
        yield "max_tokens", "Field required"
    elif not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1:
        yield "max_tokens", "Input should be greater than or equal to 1"
    if thinking is not None:
        yield from _thinking(thinking, max_tokens)
    if request.get("tool_choice") is not None:
        yield from _tool_choice(request["tool_choice"], request.get("tools"))
    if request.get("context_management") is not None:
        yield from _context_management(request["context_management"], thinking)
    if request.get("diagnostics") is not None:
        yield from _diagnostics(request["diagnostics"])


def tool_faults(tools: Any) -> Iterator[Fault]:
    """Yield the faults of the declared tools as (path, message)."""
    if not is_list(tools):
        yield "tools", "Input should be a valid list"
        return
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if not is_object(tool):
            yield f"tools.{index}", "Input should be a valid dictionary"
            continue
        if tool.get("type") in ("custom", None):
            yield from _custom_tool(tool, f"tools.{index}.custom")
        name = tool.get("name")
        if isinstance(name, str):
            if name in names:
                yield "tools", "Tool names must be unique."
            names.add(name)


def _custom_tool(tool: dict[str, Any], path: str) -> Iterator[Fault]:
    name, schema = tool.get("name"), tool.get("input_schema")
    if not (isinstance(name, str) and TOOL_NAME.fullmatch(name)):
        yield f"{path}.name", f"String should match pattern '^{TOOL_NAME.pattern}$'"
    if not is_object(schema):
        yield f"{path}.input_schema", "Field required" if schema is None else "Input should be a valid dictionary"
    elif schema.get("type") != "object":
        yield f"{path}.input_schema.type", "Input should be 'object'"
    if not isinstance(tool.get("description", ""), str):
        yield f"{path}.description", "Input should be a valid string"
    if not tool.keys() <= _TOOL_KEYS:
        yield f"{path}.{min(map(str, tool.keys() - _TOOL_KEYS))}", EXTRA


def _thinking(thinking: Any, max_tokens: Any) -> Iterator[Fault]:
    kind = thinking.get("type") if is_object(thinking) else None
    if kind not in ("enabled", "disabled", "adaptive", "between_tools"):
        yield "thinking", unknown_tag(kind)
    elif kind == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or budget < 1024:
            yield "thinking.enabled.budget_tokens", "Input should be greater than or equal to 1024"
        elif isinstance(max_tokens, int) and max_tokens <= budget:
            yield "", "`max_tokens` must be greater than `thinking.budget_tokens`"


def _tool_choice(choice: Any, tools: Any) -> Iterator[Fault]:
    kind = choice.get("type") if is_object(choice) else None
    if kind not in ("auto", "any", "tool", "none"):
        yield "tool_choice", unknown_tag(kind)
    elif not tools:
        yield "tool_choice", "tool_choice may only be specified while providing tools"
    elif kind == "tool":
        names = [tool.get("name") for tool in tools if is_object(tool)] if is_list(tools) else []
        if choice.get("name") not in names:
            yield "", f"Tool '{choice.get('name')}' not found in provided tools"


def _context_management(value: Any, thinking: Any) -> Iterator[Fault]:
    edits = value.get("edits", []) if is_object(value) else None
    if not is_list(edits):
        yield "context_management.edits", "Input should be a valid list"
        return
    for index, edit in enumerate(edits):
        path = f"context_management.edits.{index}"
        kind = edit.get("type") if is_object(edit) else None
        if not isinstance(kind, str) or kind not in _EDITS:
            yield path, unknown_tag(kind)
            continue
        yield from _edit(edit, f"{path}.{kind}", _EDITS[kind])
        if kind == _CLEAR_THINKING:
            if index:
                yield path, f"`{_CLEAR_THINKING}` must be the first edit in the list"
            if is_object(thinking) and thinking.get("type") == "disabled":
                yield "", f"`{_CLEAR_THINKING}` strategy requires `thinking` to be enabled or adaptive"


def _edit(edit: dict[str, Any], path: str, fields: Mapping[str, tuple[str, ...]]) -> Iterator[Fault]:
    for name, value in edit.items():
        if name == "type" or value is None or (name == "keep" and value == "all"):
            continue
        if name not in fields:
            yield f"{path}.{name}", EXTRA
        elif fields[name]:
            kind, number = (value.get("type"), value.get("value")) if is_object(value) else (None, None)
            if kind not in fields[name]:
                yield f"{path}.{name}", unknown_tag(kind)
            elif kind != "all" and (not isinstance(number, int) or number < 0):
                yield f"{path}.{name}.{kind}.value", "Input should be greater than or equal to 0"
        elif name in ("exclude_tools", "clear_tool_inputs") and not (isinstance(value, bool) or is_list(value)):
            yield f"{path}.{name}", "Input should be a valid list"


def _diagnostics(value: Any) -> Iterator[Fault]:
    previous = value.get("previous_message_id") if is_object(value) else 0
    if not (previous is None or isinstance(previous, str)):
        yield "diagnostics.previous_message_id", "Input should be a valid string"
