"""The provider's rules for context editing and for compaction on request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .block_rules import EXTRA, Fault, is_list, is_object, unknown_tag
from .option_rules import is_forced
from .problem import Problem, RequestRules

CompactionBlock = tuple[int, int, str, dict[str, Any]]
"""The message and position of a compaction block, the role of its message, and the block."""

_CLEAR_THINKING: Final = "clear_thinking_20251015"
_COMPACT: Final = "compact_20260112"
_LEAST_TRIGGER: Final = 50_000
_MAX_INSTRUCTIONS: Final = 16_384
_EDITS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "clear_tool_uses_20250919": {
        "trigger": ("input_tokens", "tool_uses"),
        "keep": ("tool_uses",),
        "clear_at_least": ("input_tokens",),
        "exclude_tools": (),
        "clear_tool_inputs": (),
    },
    _CLEAR_THINKING: {"keep": ("thinking_turns", "all")},
    _COMPACT: {"trigger": ("input_tokens",), "instructions": (), "pause_after_compaction": ()},
}
_MISPLACED: Final = "a compaction block must be the first block of the first message"


def management_faults(request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    """Yield the faults of ``context_management`` as (path, message)."""
    value = request.get("context_management")
    if value is None:
        return
    if rules.known and not rules.facts.context_editing:
        yield "context_management", "context_management is not supported for this model"
    edits = value.get("edits", []) if is_object(value) else None
    if not is_list(edits):
        yield "context_management.edits", "Input should be a valid list"
        return
    for name in value:
        if name != "edits":
            yield f"context_management.{name}", EXTRA
    for index, edit in enumerate(edits):
        path = f"context_management.edits.{index}"
        kind = edit.get("type") if is_object(edit) else None
        if not isinstance(kind, str) or kind not in _EDITS:
            yield path, unknown_tag(kind)
            continue
        yield from _edit(edit, f"{path}.{kind}", _EDITS[kind])
        if kind == _CLEAR_THINKING:
            yield from _clear_thinking(request, path, index)
        elif kind == _COMPACT and rules.known and not rules.facts.compaction:
            yield path, f"`{_COMPACT}` is not supported for this model"


def _clear_thinking(request: Mapping[str, Any], path: str, index: int) -> Iterator[Fault]:
    thinking = request.get("thinking")
    if index:
        yield path, f"`{_CLEAR_THINKING}` must be the first edit in the list"
    if is_object(thinking) and thinking.get("type") == "disabled":
        yield "", f"`{_CLEAR_THINKING}` strategy requires `thinking` to be enabled or adaptive"


def _edit(edit: dict[str, Any], path: str, fields: Mapping[str, tuple[str, ...]]) -> Iterator[Fault]:
    for name, value in edit.items():
        if name == "type" or value is None or (name == "keep" and value == "all" and "all" in fields.get("keep", ())):
            continue
        if name not in fields:
            yield f"{path}.{name}", EXTRA
        elif fields[name]:
            yield from _amount(
                value, f"{path}.{name}", fields[name], least=0 if _COMPACT not in path else _LEAST_TRIGGER
            )
        elif not isinstance(value, _VALUES[name]):
            yield f"{path}.{name}", "Input should be of another type"


_VALUES: Final[Mapping[str, tuple[type, ...]]] = {
    "exclude_tools": (list, tuple),
    "clear_tool_inputs": (bool, list, tuple),
    "instructions": (str,),
    "pause_after_compaction": (bool,),
}


def _amount(value: Any, path: str, kinds: tuple[str, ...], least: int) -> Iterator[Fault]:
    kind, number = (value.get("type"), value.get("value")) if is_object(value) else (None, None)
    if kind not in kinds:
        yield path, unknown_tag(kind)
    elif kind != "all" and (not isinstance(number, int) or number < least):
        yield f"{path}.{kind}.value", f"Input should be greater than or equal to {least}"


def compaction_faults(request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    """Yield the faults of ``compaction`` and of the fields beside it as (path, message)."""
    value = request.get("compaction")
    if value is None:
        return
    if rules.known and not rules.facts.compaction:
        yield "compaction", "compaction is not supported for this model"
    if not is_object(value) or value.get("type") != "summarize":
        yield "compaction", unknown_tag(value.get("type") if is_object(value) else None)
        return
    for name in value:
        if name not in ("type", "instructions"):
            yield f"compaction.{name}", EXTRA
    instructions = value.get("instructions")
    if not (instructions is None or isinstance(instructions, str)):
        yield "compaction.instructions", "Input should be a valid string"
    elif instructions and len(instructions) > _MAX_INSTRUCTIONS:
        yield "compaction.instructions", f"String should have at most {_MAX_INSTRUCTIONS} characters"
    yield from _beside(request)


def _beside(request: Mapping[str, Any]) -> Iterator[Fault]:
    output = request.get("output_config")
    output = output if is_object(output) else {}
    budget = output.get("task_budget")
    beside = {
        "context_management": request.get("context_management") is not None,
        "stop_sequences": bool(request.get("stop_sequences")),
        "output_config.format": output.get("format") is not None,
        "output_config.task_budget.remaining": is_object(budget) and budget.get("remaining") is not None,
        "tool_choice": is_forced(request),
    }
    for name, there in beside.items():
        if there:
            yield name, f"{name} may not be set on a request with `compaction`"


def placement_problems(request: Mapping[str, Any], blocks: list[CompactionBlock]) -> Iterator[Problem]:
    """Yield the problems of compaction blocks by their place: a signed one comes first, and alone."""
    signed = [found for found in blocks if found[3].get("signature")]
    if signed and sum(1 for found in blocks if found[3].get("content")) > 1:
        last = blocks[-1]
        yield Problem(
            f"messages.{last[0]}.content.{last[1]}",
            "more than one compaction block: send only the one that was returned last",
            code="compaction_block_ambiguous",
        )
    for message, position, role, _ in signed:
        if role == "system" or message or position:
            yield Problem(f"messages.{message}.content.{position}", _MISPLACED, code="compaction_block_misplaced")
    for message, position, role, block in blocks:
        if not block.get("signature") and role != "assistant":
            yield Problem(
                f"messages.{message}.content.{position}", f"`compaction` blocks are not allowed in {role} content"
            )
    if signed and _COMPACT in _kinds(request.get("context_management")):
        yield Problem("context_management", f"`{_COMPACT}` may not be used with a signed compaction block")


def _kinds(management: Any) -> list[Any]:
    edits = management.get("edits") if is_object(management) else None
    return [edit.get("type") for edit in edits if is_object(edit)] if is_list(edits) else []
