"""The provider's rules for messages with the role ``system``: their place, their fields and their effort."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .block_rules import EXTRA, Fault, is_list, is_object
from .option_rules import EFFORTS
from .problem import RequestRules

_KEYS: Final = frozenset({"role", "content", "clear_at", "output_config"})
_ONCE: Final = "next_user_message"
_CHANGES: Final = ("tool_addition", "tool_removal")


def is_turn_scoped(message: Mapping[str, Any]) -> bool:
    """Say whether a system message is shown only until the next user message."""
    return message.get("clear_at") == _ONCE


def system_faults(
    message: dict[str, Any], path: str, request: Mapping[str, Any], rules: RequestRules
) -> Iterator[Fault]:
    """Yield the faults of a system message's fields as (path, message); its blocks are checked elsewhere."""
    if not rules.facts.system_messages:
        yield path, "role 'system' is not supported on this model"
        return
    for name in message:
        if name not in _KEYS:
            yield f"{path}.{name}", EXTRA
    clear_at = message.get("clear_at")
    if clear_at not in (None, "never", _ONCE):
        yield f"{path}.clear_at", f"Input should be '{_ONCE}' or 'never'"
    if is_turn_scoped(message):
        yield from _turn_scoped(message, path, rules)
    if message.get("output_config") is not None:
        yield from _effort(message["output_config"], path, request, rules)
    if not message.get("content") and not _has_effort(message):
        yield path, "all messages must have non-empty content"


def _turn_scoped(message: dict[str, Any], path: str, rules: RequestRules) -> Iterator[Fault]:
    if not rules.facts.turn_scoped_messages:
        yield f"{path}.clear_at", "clear_at is not supported on this model"
    blocks = _blocks(message)
    if any(block.get("type") != "text" for block in blocks):
        yield path, "a turn-scoped system message supports text blocks only"
    if message.get("output_config") is not None:
        yield path, "output_config is not permitted on a turn-scoped system message"
    for index, block in enumerate(blocks):
        if block.get("cache_control") is not None:
            yield f"{path}.content.{index}", "cache_control is not permitted on blocks of a turn-scoped system message"


def _effort(config: Any, path: str, request: Mapping[str, Any], rules: RequestRules) -> Iterator[Fault]:
    if not is_object(config):
        yield f"{path}.output_config", "Input should be a valid dictionary"
        return
    for name in config:
        if name != "effort":
            yield f"{path}.output_config.{name}", EXTRA
    effort = config.get("effort")
    if effort is None:
        return
    thinking = request.get("thinking")
    if effort not in EFFORTS:
        yield f"{path}.output_config.effort", f"Input should be {' or '.join(map(repr, EFFORTS))}"
    elif not rules.facts.message_effort:
        yield "", f"output_config.effort requires a model that supports per-turn effort ({path})"
    elif is_object(thinking) and thinking.get("type") in ("disabled", "between_tools"):
        yield "", f"output_config.effort on a message is not supported when thinking is disabled ({path})"


def place_faults(messages: list[Any]) -> Iterator[Fault]:
    """Yield the faults of system messages by their place; consecutive ones count as one section.

    A section follows a user turn, a summary of such turns, or a reply that ends in the result of a provider's tool,
    and comes before a reply or at the end. A message that only sets the effort may be anywhere.
    """
    before: Any = None
    section: list[int] = []
    for index, message in enumerate([*messages, None]):
        if is_object(message) and message.get("role") == "system":
            if message.get("content") or not _has_effort(message):
                section.append(index)
            continue
        if section:
            yield from _section(section, messages, before, message)
            section = []
        before = message


def _section(section: list[int], messages: list[Any], before: Any, after: Any) -> Iterator[Fault]:
    path = f"messages.{section[0]}"
    if before is None:
        yield path, "a system message cannot be the first message: use the top-level `system` field"
    elif is_object(before) and before.get("role") == "assistant":
        ending = str(_blocks(before)[-1].get("type")) if _blocks(before) else ""
        if not (ending.endswith("_tool_result") or ending == "compaction"):
            yield path, "a system message must follow a user message or a reply that ends in a server tool result"
        elif any(block.get("type") in _CHANGES for index in section for block in _blocks(messages[index])):
            yield path, "a tool change cannot directly follow a paused assistant message"
    if is_object(after) and after.get("role") == "user":
        yield path, "a system message must be followed by an assistant message or end the conversation"


def _has_effort(message: Mapping[str, Any]) -> bool:
    config = message.get("output_config")
    return is_object(config) and config.get("effort") is not None


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if is_object(block)] if is_list(content) else []
