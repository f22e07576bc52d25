"""The fields of a request besides its messages: model, system prompt, tools, options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from ...model_facts import ModelFacts, default_model, facts_of
from ..decisions import PrefixRendered
from .blocks import Block, text_block
from .fields import REQUEST_FIELDS

DEFAULT_MAX_TOKENS: Final = 8_000
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
_TOOL_KEYS: Final = frozenset(
    {
        *("name", "description", "input_schema", "type", "strict", "defer_loading"),
        *("allowed_callers", "input_examples", "eager_input_streaming"),
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

    Without ``facts`` only the form of an option is judged, not whether the model takes it. An option is judged beside
    those that are not refused.
    """
    given = {key: value for key, value in options.items() if value is not None}
    if not given:
        return {}
    from .management_rules import compaction_faults, management_faults
    from .option_rules import OPTION_RULES
    from .problem import RequestRules

    rules = RequestRules(facts or facts_of(""))
    left: dict[str, Any] = {"max_tokens": DEFAULT_MAX_TOKENS, **given, "tools": tools}
    refused: dict[str, str] = {}
    managed = {"context_management": management_faults, "compaction": compaction_faults}
    for owner, rule in (*OPTION_RULES.items(), *managed.items()):
        for path, message in list(rule(left, rules)):
            name = path.partition(".")[0] or owner
            if name in given and left.pop(name, None) is not None:
                refused[name] = message
    return refused
