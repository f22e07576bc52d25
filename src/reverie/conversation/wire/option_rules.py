"""The provider's rules for the options of a request, by model and API version."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from .block_rules import EXTRA, Fault, is_list, is_object, unknown_tag
from .fields import FIELDS
from .problem import RequestRules

_THINKING_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "adaptive": frozenset({"type", "display", "block_binding"}),
    "enabled": frozenset({"type", "display", "block_binding", "budget_tokens"}),
    "disabled": frozenset({"type"}),
    "between_tools": frozenset({"type"}),
}
_CHOICE_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "auto": frozenset({"type", "disable_parallel_tool_use"}),
    "any": frozenset({"type", "disable_parallel_tool_use"}),
    "tool": frozenset({"type", "disable_parallel_tool_use", "name"}),
    "none": frozenset({"type"}),
}
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "service_tier": ("auto", "standard_only"),
    "speed": ("standard", "fast"),
}
EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_BEHAVIORS: Final = (None, "error", "drop_block")


def option_faults(request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    """Yield the faults of a request's options as (path, message): unknown fields and invalid values.

    ``context_management`` and ``compaction`` have rules of their own, and so have tools.
    """
    for name in request:
        if name not in FIELDS:
            yield str(name), EXTRA
    model = request.get("model")
    if not (isinstance(model, str) and model):
        yield "model", "Field required" if model is None else "String should have at least 1 character"
    for rule in OPTION_RULES.values():
        yield from rule(request, rules)


def thinking_is_on(request: Mapping[str, Any], rules: RequestRules) -> bool:
    """Say whether the model thinks on this request."""
    kind = _kind(request.get("thinking"))
    if kind is None:
        return rules.known and rules.facts.thinking_by_default
    return kind in ("enabled", "adaptive")


def is_forced(request: Mapping[str, Any]) -> bool:
    """Say whether the request's tool choice forces a tool call."""
    return _kind(request.get("tool_choice")) in ("any", "tool")


def _kind(value: Any) -> Any:
    return value.get("type") if is_object(value) else None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _max_tokens(request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    limit, most = request.get("max_tokens"), rules.facts.max_output_tokens
    if limit is None:
        yield "max_tokens", "Field required"
    elif not _whole(limit):
        yield "max_tokens", "Input should be a valid integer"
    elif limit < 0:
        yield "max_tokens", "Input should be greater than or equal to 0"
    elif rules.known and limit > most:
        model = request.get("model") or "this model"
        yield "max_tokens", f"{limit} > {most}, which is the maximum allowed number of output tokens for {model}"
    elif limit == 0:
        yield from _cache_filling(request)


def _cache_filling(request: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults of a request with ``max_tokens`` 0, which only fills the cache."""
    output = request.get("output_config")
    beside = {
        "stream": request.get("stream") is True,
        "thinking.type.enabled": _kind(request.get("thinking")) == "enabled",
        "output_config.format": is_object(output) and output.get("format") is not None,
        "a tool_choice that forces a tool": is_forced(request),
    }
    for name, there in beside.items():
        if there:
            yield "max_tokens", f"max_tokens: 0 is not supported with {name}"


def _thinking(request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    thinking = request.get("thinking")
    if thinking is None:
        return
    kind = _kind(thinking)
    if not isinstance(kind, str) or kind not in _THINKING_FIELDS:
        yield "thinking", unknown_tag(kind)
        return
    message = _unsupported_thinking(kind, rules)
    if message is not None:
        yield "", message
    for name in thinking:
        if name not in _THINKING_FIELDS[kind]:
            yield f"thinking.{kind}.{name}", EXTRA
    if kind == "enabled":
        budget, limit = thinking.get("budget_tokens"), request.get("max_tokens")
        if not _whole(budget) or budget < 1024:
            yield "thinking.enabled.budget_tokens", "Input should be greater than or equal to 1024"
        elif isinstance(limit, int) and limit <= budget:
            yield "", "`max_tokens` must be greater than `thinking.budget_tokens`"
    yield from _thinking_values(thinking, kind, rules)


def _unsupported_thinking(kind: str, rules: RequestRules) -> str | None:
    taken = rules.facts.thinking
    if not rules.known or kind in taken or (kind == "disabled" and not taken):
        return None
    if kind == "adaptive":
        return "adaptive thinking is not supported on this model"
    words = {
        "enabled": 'Use "thinking.type.adaptive" and "output_config.effort" to control thinking.',
        "disabled": 'Use "thinking.type.between_tools".' if "between_tools" in taken else "Omit `thinking`.",
    }
    return f'"thinking.type.{kind}" is not supported for this model. {words.get(kind, "")}'.rstrip()


def _thinking_values(thinking: Mapping[str, Any], kind: str, rules: RequestRules) -> Iterator[Fault]:
    if "display" in _THINKING_FIELDS[kind] and thinking.get("display") not in (
        None,
        "summarized",
        "omitted",
        "updates",
    ):
        yield f"thinking.{kind}.display", "Input should be 'summarized', 'omitted' or 'updates'"
    binding = thinking.get("block_binding")
    if binding is None or kind not in ("adaptive", "enabled"):
        return
    path = f"thinking.{kind}.block_binding"
    if not is_object(binding):
        yield path, "Input should be a valid dictionary"
        return
    fields = rules.facts.binding_fields
    for name in binding if rules.known else ():
        if name not in fields:
            yield f"{path}.{name}", EXTRA
    if binding.get(fields[0]) not in _BEHAVIORS:
        yield f"{path}.{fields[0]}", "Input should be 'error' or 'drop_block'"


def _sampling(name: str, request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    value = request.get(name)
    if value is None:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if rules.is_latest:
        yield name, EXTRA
    elif not number or value < 0 or (name != "top_k" and value > 1):
        yield name, "Input should be a valid number from 0 to 1" if name != "top_k" else "Input should be 0 or more"
    elif rules.known and not rules.facts.sampling and (name == "top_k" or value != 1):
        yield "", f"`{name}` may not be set for this model: leave it out"
    elif thinking_is_on(request, rules):
        yield from _sampling_with_thinking(name, value)


def _sampling_with_thinking(name: str, value: float) -> Iterator[Fault]:
    if name == "temperature" and value != 1:
        yield "", "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode"
    elif name == "top_p" and value < 0.95:
        yield "", "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled or in adaptive mode"
    elif name == "top_k":
        yield "", "`top_k` must be unset when thinking is enabled or in adaptive mode"


def _output_config(request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    config = request.get("output_config")
    if config is None:
        return
    if not is_object(config):
        yield "output_config", "Input should be a valid dictionary"
        return
    for name in config:
        if name not in ("effort", "format", "task_budget"):
            yield f"output_config.{name}", EXTRA
    if config.get("effort") is not None:
        yield from _effort(config["effort"], request, rules)
    layout = config.get("format")
    if layout is not None:
        if _kind(layout) != "json_schema":
            yield "output_config.format", unknown_tag(_kind(layout))
        elif not is_object(layout.get("schema")):
            yield "output_config.format.schema", "Field required"
    budget = config.get("task_budget")
    if budget is not None and not (_kind(budget) == "tokens" and _whole(budget.get("total"))):
        yield "output_config.task_budget", "Input should be {'type': 'tokens', 'total': a number}"


def _effort(effort: Any, request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    facts = rules.facts
    if effort not in EFFORTS:
        yield "output_config.effort", f"Input should be {' or '.join(map(repr, EFFORTS))}"
    elif rules.known and not facts.efforts:
        yield "", "This model does not support the effort parameter."
    elif rules.known and effort not in facts.efforts:
        yield "", f"output_config.effort '{effort}' is not supported for this model"
    elif effort in facts.efforts_with_thinking and _kind(request.get("thinking")) in ("disabled", "between_tools"):
        yield "", f"output_config.effort '{effort}' is not supported when thinking is disabled on this model."


def _tool_choice(request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    choice, tools = request.get("tool_choice"), request.get("tools")
    if choice is None:
        return
    kind = _kind(choice)
    if not isinstance(kind, str) or kind not in _CHOICE_FIELDS:
        yield "tool_choice", unknown_tag(kind)
        return
    for name in choice:
        if name not in _CHOICE_FIELDS[kind]:
            yield f"tool_choice.{kind}.{name}", EXTRA
    if not tools:
        yield "tool_choice", "tool_choice may only be specified while providing tools"
    elif kind == "tool":
        names = [tool.get("name") for tool in tools if is_object(tool)] if is_list(tools) else []
        if choice.get("name") not in names:
            yield "", f"Tool '{choice.get('name')}' not found in provided tools"
    if kind in ("any", "tool"):
        yield from _forced(request, rules)


def _forced(request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    forced = rules.facts.forced_tool_choice
    if forced == "no":
        yield "", 'tool_choice: type "tool" and "any" are not supported for this model.'
    elif forced == "without_thinking" and _kind(request.get("thinking")) == "enabled":
        yield "", "Thinking may not be enabled when tool_choice forces tool use."


def _plain_options(request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    if not isinstance(request.get("stream", False), bool):
        yield "stream", "Input should be a valid boolean"
    for name, words in _WORDS.items():
        if request.get(name) is not None and request[name] not in words:
            yield name, f"Input should be {' or '.join(map(repr, words))}"
    stops = request.get("stop_sequences")
    if stops is not None and not (is_list(stops) and all(isinstance(stop, str) for stop in stops)):
        yield "stop_sequences", "Input should be a valid list of strings"
    elif stops and any(not stop.strip() for stop in stops):
        yield "stop_sequences", "each stop sequence must contain non-whitespace"
    metadata = request.get("metadata")
    if metadata is not None:
        yield from _metadata(metadata)
    diagnostics = request.get("diagnostics")
    if diagnostics is not None:
        previous = diagnostics.get("previous_message_id") if is_object(diagnostics) else 0
        if not (previous is None or isinstance(previous, str)):
            yield "diagnostics.previous_message_id", "Input should be a valid string"


def _metadata(metadata: Any) -> Iterator[Fault]:
    if not is_object(metadata):
        yield "metadata", "Input should be a valid dictionary"
        return
    for name, value in metadata.items():
        if name != "user_id":
            yield f"metadata.{name}", EXTRA
        elif not (value is None or isinstance(value, str)):
            yield "metadata.user_id", "Input should be a valid string"


OPTION_RULES: Final[Mapping[str, Callable[[Mapping[str, Any], RequestRules], Iterator[Fault]]]] = {
    "thinking": _thinking,
    "tool_choice": _tool_choice,
    **{name: partial(_sampling, name) for name in ("temperature", "top_p", "top_k")},
    "output_config": _output_config,
    "max_tokens": _max_tokens,
    "": _plain_options,
}
"""The rules by the option that a fault without a path is about."""
