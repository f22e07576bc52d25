"""The provider's rules for the tools of a request, and for tools that a message adds or removes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .block_rules import EXTRA, TOOL_NAME, Fault, is_list, is_object
from .canonical import canonical_block
from .problem import RequestRules
from .schemas import strict_faults

_TOOL_KEYS: Final = frozenset(
    [
        *("name", "description", "input_schema", "type", "cache_control", "strict", "defer_loading"),
        *("allowed_callers", "input_examples", "eager_input_streaming"),
    ]
)
_MAX_STRICT: Final = 20
_MAX_LATER: Final = 10_000
"""The most deferred tools, and the most tools that messages add."""
_MAX_LATER_BYTES: Final = 4 * 1024 * 1024


def tool_faults(tools: Any, model: Any, rules: RequestRules) -> Iterator[Fault]:
    """Yield the faults of the declared tools as (path, message)."""
    if not is_list(tools):
        yield "tools", "Input should be a valid list"
        return
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if not is_object(tool):
            yield f"tools.{index}", "Input should be a valid dictionary"
            continue
        yield from tool_fault_list(tool, f"tools.{index}")
        name = tool.get("name")
        if isinstance(name, str):
            if name in names:
                yield "tools", "Tool names must be unique."
            names.add(name)
    objects = [tool for tool in tools if is_object(tool)]
    refused = sorted({str(tool.get("type")) for tool in objects if tool.get("type") in rules.facts.refused_tools})
    if refused:
        yield "", f"'{model}' does not support tool types: {', '.join(refused)}."
    # Two pages disagree; the one that accepts this is about models that take tools in the middle of a conversation.
    if objects and not rules.facts.tool_changes and all(tool.get("defer_loading") is True for tool in objects):
        yield "", "All tools have defer_loading set: at least one tool must be loaded"


def tool_fault_list(tool: dict[str, Any], path: str) -> list[Fault]:
    """Return the faults of one tool by itself as (path, message)."""
    found = list(_custom_tool(tool, f"{path}.custom")) if tool_kind(tool) == "custom" else []
    if tool.get("defer_loading") is True and tool.get("cache_control") is not None:
        found.append((path, f"Tool '{tool.get('name')}' cannot have both defer_loading=true and cache_control set"))
    return found


def tool_kind(tool: Mapping[str, Any]) -> Any:
    """Return the type of a tool; ``custom`` for one that does not say."""
    return "custom" if tool.get("type") is None else tool["type"]


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


def too_many_tools(declared: Any, added: list[dict[str, Any]]) -> str | None:
    """Return why there are too many tools that are found or added later, or too large definitions; else None."""
    tools = [tool for tool in (declared if is_list(declared) else ()) if is_object(tool)]
    deferred = [tool for tool in tools if tool.get("defer_loading")]
    if not deferred and not added:
        return None
    for kind, later in (("deferred", deferred), ("added", added)):
        if len(later) > _MAX_LATER:
            return f"Too many {kind} tools: {len(later)} > {_MAX_LATER}"
    size = sum(len(canonical_block(tool, "")) for tool in (*deferred, *added))
    return f"The tool definitions are too large: {size} bytes > {_MAX_LATER_BYTES}" if size > _MAX_LATER_BYTES else None


def strict_tool_faults(request: Mapping[str, Any], cites: bool) -> Iterator[Fault]:
    """Yield the faults of strict tools and of an output format; ``cites`` says whether citations are asked for."""
    tools, output = request.get("tools"), request.get("output_config")
    schemas: list[tuple[str, Any]] = []
    for index, tool in enumerate(tools if is_list(tools) else ()):
        if is_object(tool) and tool.get("strict") is True:
            schemas.append((f"tools.{index}.custom.input_schema", tool.get("input_schema")))
    if len(schemas) > _MAX_STRICT:
        yield "tools", f"Too many strict tools: {len(schemas)} > {_MAX_STRICT}"
    layout = output.get("format") if is_object(output) else None
    if is_object(layout):
        schemas.append(("output_config.format.schema", layout.get("schema")))
        if cites:
            yield "output_config.format", "citations may not be enabled together with an output format"
    yield from strict_faults(schemas)
