"""Tools that system messages add and remove.

Page: build-with-claude/mid-conversation-system-messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from .refusals import ProviderRefusal

__all__ = ["check_tool_changes"]

Change: TypeAlias = "tuple[str, dict[str, Any]]"


def check_tool_changes(body: Mapping[str, Any]) -> None:
    """Raise ``ProviderRefusal`` for a reference to an unknown tool, and for a definition of another kind of tool."""
    known = {str(tool.get("name")): tool.get("type", "custom") for tool in body.get("tools") or ()}
    for path, tool in _changes(body["messages"]):
        if tool.get("type") == "tool_reference" and tool.get("name") not in known:
            words = f"{path}: Tool reference '{tool.get('name')}' has no corresponding tool definition"
            raise ProviderRefusal(400, words, code="tool_reference_unresolved")
        if tool.get("type") == "tool_definition":
            definition: Any = tool.get("definition") or {}
            name, kind = str(definition.get("name")), definition.get("type", "custom")
            if known.setdefault(name, kind) != kind:
                words = f"{path}: another kind of tool is named '{name}'"
                raise ProviderRefusal(400, words, code="tool_name_conflict")


def _changes(messages: list[Any]) -> Iterator[Change]:
    for index, message in enumerate(messages):
        if message["role"] != "system" or isinstance(message["content"], str):
            continue
        for position, block in enumerate(message["content"]):
            if block.get("type") in ("tool_addition", "tool_removal"):
                yield f"messages.{index}.content.{position}.{block['type']}.tool", block.get("tool") or {}
