"""The options of a request as Chat Completions and Responses name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

from ..model_facts import ModelFacts

_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
_SAMPLING: Final = ("temperature", "top_p")
_GONE: Final = "These tools are no longer available; do not call them: "


def effort_of(request: Mapping[str, Any], facts: ModelFacts) -> str | None:
    """Return the reasoning effort that a request asks for; None if it does not, or if the model does not reason."""
    if not facts.thinking_by_default:
        return None
    thinking, config = _mapping(request.get("thinking")), _mapping(request.get("output_config"))
    if thinking.get("type") == "disabled":
        return "none" if "disabled" in facts.thinking else None
    effort = config.get("effort")
    return effort if isinstance(effort, str) else None


def sampling_of(request: Mapping[str, Any], facts: ModelFacts) -> dict[str, Any]:
    """Return temperature and top_p where the model takes them: a reasoning model does only at effort ``none``."""
    if not facts.sampling and effort_of(request, facts) != "none":
        return {}
    return {key: request[key] for key in _SAMPLING if request.get(key) is not None}


def function_tools(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a list of the tools that have a schema and are loaded from the start; others run at Anthropic."""
    given: Any = request.get("tools") or ()
    return [tool for tool in given if "input_schema" in tool and not tool.get("defer_loading")]


def tool_fields(
    request: Mapping[str, Any], tools: list[dict[str, Any]], forced: Callable[[str], dict[str, Any]]
) -> dict[str, Any]:
    """Return the fields for these tools and their choice, empty without tools; ``forced`` is the choice of one tool."""
    if not tools:
        return {}
    choice = _mapping(request.get("tool_choice"))
    kind = str(choice.get("type"))
    fields: dict[str, Any] = {"tools": tools}
    if kind == "tool":
        fields["tool_choice"] = forced(str(choice.get("name")))
    elif kind in _CHOICES:
        fields["tool_choice"] = _CHOICES[kind]
    return {**fields, "parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") else fields


def output_schema(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the JSON schema that the reply must fit, with its name; None if the request asks for none."""
    asked = _mapping(_mapping(request.get("output_config")).get("format") or request.get("output_format"))
    if asked.get("type") != "json_schema":
        return None
    return {"name": "reply", "schema": asked.get("schema") or {}, "strict": True}


def tool_changes(message: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tools that a system message adds, each as an entry of ``tools``."""
    given: Any = request.get("tools") or ()
    declared = {tool.get("name"): tool for tool in given}
    content: Any = message.get("content")
    for block in cast("list[Any]", content if isinstance(content, list) else []):
        if _mapping(block).get("type") == "tool_addition":
            tool = _mapping(_mapping(block).get("tool"))
            found: Any = tool.get("definition") or declared.get(tool.get("name"))
            if isinstance(found, dict) and "input_schema" in found:
                yield cast("dict[str, Any]", found)


def told_blocks(blocks: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the blocks of a system message as text blocks; a text names the removed tools."""
    given = list(blocks)
    tools = [_mapping(block.get("tool")) for block in given if block.get("type") == "tool_removal"]
    gone = [{"type": "text", "text": _GONE + ", ".join(str(tool.get("name")) for tool in tools)}] if tools else []
    return [*(block for block in given if block.get("type") == "text"), *gone]


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
