"""The fields of a request besides its messages: model, system prompt, tools, options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

from ...model_facts import ModelFacts, default_model, facts_of
from ..decisions import PrefixRendered
from .blocks import Block, text_block

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "MAX_INSTRUCTIONS",
    "REQUEST_FIELDS",
    "declared_tools",
    "opening_of",
    "options_of",
    "refused_options",
    "system_of",
    "tools_of",
]

DEFAULT_MAX_TOKENS: Final = 8_000
MAX_INSTRUCTIONS: Final = 16_384
"""The most characters of the instructions for a summary by the provider."""
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
_SHOWN: Final = frozenset({"type", "display", "block_binding"})
_THINKING: Final[Mapping[str, frozenset[str]]] = {
    "adaptive": _SHOWN,
    "enabled": _SHOWN | {"budget_tokens"},
    "disabled": frozenset({"type"}),
    "between_tools": frozenset({"type"}),
}
_CALLING: Final = frozenset({"type", "disable_parallel_tool_use"})
_CHOICES: Final = {"auto": _CALLING, "any": _CALLING, "tool": _CALLING | {"name"}, "none": frozenset({"type"})}
_SAMPLING: Final = ("temperature", "top_p", "top_k")
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
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
    """Return the prefix's options that a provider accepts with these tools; ``max_tokens`` is always included.

    Options that a session has checked already, by facts that the user may have corrected, are not judged again.
    """
    facts = None if prefix.checked else facts_of(prefix.model or default_model())
    given = {key: value for key, value in prefix.options.items() if key in REQUEST_FIELDS and value is not None}
    refused = refused_options(given, tools, facts)
    options: dict[str, Any] = {"max_tokens": DEFAULT_MAX_TOKENS}
    if facts is not None:
        options["max_tokens"] = min(DEFAULT_MAX_TOKENS, facts.max_output_tokens)
    return {**options, **{key: value for key, value in given.items() if key not in refused}}


def refused_options(options: Mapping[str, Any], tools: list[Block], facts: ModelFacts | None) -> dict[str, str]:
    """Return the reason for each option that a provider would refuse, by the option's name.

    Without ``facts`` only the form of an option is judged, not whether the model takes it.
    """
    refused: dict[str, str] = {}
    for key, value in options.items():
        rule = _FORMS.get(key)
        if value is not None and rule is not None and not rule[0](value):
            refused[key] = rule[1]
    if "tool_choice" not in refused and not _has_tool(options.get("tool_choice"), tools):
        refused["tool_choice"] = "it needs tools, and the tool that it names"
    sound = {key: value for key, value in options.items() if value is not None and key not in refused}
    refused.update(_beside(sound))
    if facts is not None and facts.name.startswith("claude"):
        refused.update(_by_model({key: value for key, value in sound.items() if key not in refused}, facts))
    return refused


def _by_model(options: Mapping[str, Any], facts: ModelFacts) -> Iterator[tuple[str, str]]:
    """Yield the options that this model refuses, each with the reason and the alternative."""
    most, kind = facts.max_output_tokens, _kind(options.get("thinking"))
    if options.get("max_tokens", 0) > most:
        yield "max_tokens", f"this model writes at most {most:,} tokens"
    if kind and kind not in facts.thinking and (kind != "disabled" or facts.thinking):
        taken = ", ".join(facts.thinking) or "none"
        yield "thinking", f"this model does not take the type {kind}; it takes: {taken}"
    for key in () if facts.sampling else _SAMPLING:
        if key in options:
            yield key, "this model takes no sampling options: leave it out, or ask for the style in the prompt"
    forced = _kind(options.get("tool_choice")) in ("any", "tool")
    if forced and facts.forced_tool_choice == "no":
        yield "tool_choice", "this model cannot be forced to call a tool: use auto with a strict tool, or output_config"
    if "context_management" in options and not facts.context_editing:
        yield "context_management", "this model does not edit its context"
    if "compaction" in options and not facts.compaction:
        yield "compaction", "this model writes no summaries on request"
    if "compact_20260112" in _edit_kinds(options.get("context_management")) and not facts.compaction:
        yield "context_management", "this model writes no summaries: leave compact_20260112 out"
    yield from _effort_by_model(_fields(options.get("output_config")).get("effort"), kind, facts)


def _effort_by_model(effort: Any, kind: str, facts: ModelFacts) -> Iterator[tuple[str, str]]:
    if effort is not None and effort not in facts.efforts:
        yield "output_config", f"this model takes the efforts: {', '.join(facts.efforts) or 'none'}"
    elif effort in facts.efforts_with_thinking and kind in ("disabled", "between_tools"):
        yield "output_config", f"this model takes the effort {effort} only while it thinks"


def _beside(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the options that a provider refuses beside others, each with the reason."""
    thinking, limit = _fields(options.get("thinking")), options.get("max_tokens", DEFAULT_MAX_TOKENS)
    output, forced = _fields(options.get("output_config")), _kind(options.get("tool_choice")) in ("any", "tool")
    kind = thinking.get("type")
    if kind == "enabled" and limit and thinking.get("budget_tokens", 0) >= limit:
        yield "thinking", "budget_tokens must be smaller than max_tokens"
    if kind == "enabled" and forced:
        yield "tool_choice", "a tool cannot be forced while thinking is enabled"
    if kind in ("enabled", "adaptive"):
        yield from _sampling_with_thinking(options)
    if kind == "disabled" and "clear_thinking_20251015" in _edit_kinds(options.get("context_management")):
        yield "context_management", "clear_thinking needs thinking that is not disabled"
    if limit == 0 and (
        kind == "enabled" or forced or options.get("stream") is True or output.get("format") is not None
    ):
        yield "max_tokens", "0 is refused with stream, enabled thinking, a forced tool and an output format"
    if "compaction" in options:
        fields = ("context_management", "stop_sequences", *(("tool_choice",) if forced else ()))
        for key in fields:
            if options.get(key):
                yield key, "it cannot be set beside compaction"
        budget = _fields(output.get("task_budget"))
        if output.get("format") is not None or budget.get("remaining") is not None:
            yield "output_config", "format and task_budget.remaining cannot be set beside compaction"


def _sampling_with_thinking(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if options.get("temperature", 1) != 1:
        yield "temperature", "it must be 1 while thinking is on"
    if options.get("top_p", 1) < 0.95:
        yield "top_p", "it must be at least 0.95 while thinking is on"
    if "top_k" in options:
        yield "top_k", "it cannot be set while thinking is on"


def _has_tool(choice: Any, tools: list[Block]) -> bool:
    if choice is None:
        return True
    named = _fields(choice).get("name")
    return bool(tools) and (_kind(choice) != "tool" or any(tool["name"] == named for tool in tools))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _is_thinking(value: Any) -> bool:
    fields, kind = _fields(value), _kind(value)
    budget: Any = fields.get("budget_tokens")
    if kind not in _THINKING or not fields.keys() <= _THINKING[kind]:
        return False
    binding = fields.get("block_binding")
    behavior = _fields(binding).get("prefix_mismatch_behavior")
    fits = binding is None or (isinstance(binding, Mapping) and behavior in (None, "error", "drop_block"))
    shown = fields.get("display") in (None, "summarized", "omitted", "updates")
    return fits and shown and (kind != "enabled" or (_is_whole(budget) and budget >= 1024))


def _is_choice(value: Any) -> bool:
    return _kind(value) in _CHOICES and _fields(value).keys() <= _CHOICES[_kind(value)]


def _is_management(value: Any) -> bool:
    kinds, edits = _edit_kinds(value), _fields(value).get("edits")
    first = "clear_thinking_20251015" not in kinds[1:]
    return set(_fields(value)) == {"edits"} and len(kinds) == len(edits or ()) and first and _EDITS.issuperset(kinds)


def _edit_kinds(value: Any) -> list[str]:
    edits: Any = _fields(value).get("edits")
    return [_kind(edit) for edit in cast("list[Any]", edits)] if isinstance(edits, list) else []


def _is_compaction(value: Any) -> bool:
    said = _fields(value).get("instructions")
    right = said is None or (isinstance(said, str) and len(said) <= MAX_INSTRUCTIONS)
    return _kind(value) == "summarize" and right and _fields(value).keys() <= {"type", "instructions"}


def _is_output(value: Any) -> bool:
    fields = _fields(value)
    effort = fields.get("effort")
    return bool(fields) and fields.keys() <= {"effort", "format", "task_budget"} and effort in (None, *_EFFORTS)


def _are_stops(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one.strip() for one in cast("list[Any]", value))


def _is_metadata(value: Any) -> bool:
    return isinstance(value, Mapping) and _fields(value).keys() <= {"user_id"}


def _fields(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _kind(value: Any) -> str:
    kind = _fields(value).get("type")
    return kind if isinstance(kind, str) else ""


_FORMS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "max_tokens": (_is_whole, "it is a whole number, 0 or more"),
    "thinking": (_is_thinking, "its type is adaptive, enabled, disabled or between_tools, budget_tokens 1,024 or more"),
    "tool_choice": (_is_choice, "its type is auto, any, tool or none"),
    "temperature": (_is_share, "it is a number from 0 to 1"),
    "top_p": (_is_share, "it is a number from 0 to 1"),
    "top_k": (_is_whole, "it is a whole number"),
    "context_management": (_is_management, "its edits have a known type, and clear_thinking comes first"),
    "compaction": (_is_compaction, f"its type is summarize, instructions have at most {MAX_INSTRUCTIONS:,} characters"),
    "output_config": (_is_output, "it has effort (low, medium, high, xhigh, max), format and task_budget"),
    "stop_sequences": (_are_stops, "it is a list of texts that are not blank"),
    "stream": (lambda value: isinstance(value, bool), "it is true or false"),
    "service_tier": (lambda value: value in ("auto", "standard_only"), "it is auto or standard_only"),
    "speed": (lambda value: value in ("standard", "fast"), "it is standard or fast"),
    "metadata": (_is_metadata, "it has a user_id and no other field"),
    "diagnostics": (lambda value: isinstance(value, Mapping), "it is an object"),
}
