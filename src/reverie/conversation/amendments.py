"""Changes of system prompt and tools in the middle of a session, told at its end so that the prefix stays the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, cast

from .decisions import Cause, PrefixAmended
from .wire.blocks import Block, text_block

__all__ = ["amendment", "system_changes"]

_SYSTEM = "The system prompt of this conversation has changed. The rest of it still holds."
_REMOVED = "These lines no longer hold:"
_ADDED = "These lines hold from now on:"
_LATER = "These tools will be available after the next compaction: "
_GONE = "These tools are no longer available; do not call them: "


def amendment(
    before: tuple[Any, Sequence[Mapping[str, Any]]],
    after: tuple[Any, Sequence[Mapping[str, Any]]],
    *,
    capabilities: Sequence[str],
) -> PrefixAmended | None:
    """Return the decision that tells a change of (system prompt, tools) at the end; None if nothing changed.

    ``capabilities`` says whether the model takes system messages and changes of tools in them; otherwise the change is
    text of the user's next message, and new tools are only announced.
    """
    texts = [text] if (text := system_changes(before[0], after[0])) else []
    old = {str(tool.get("name")): tool for tool in before[1]}
    new = {str(tool.get("name")): tool for tool in after[1]}
    added = [tool for name, tool in new.items() if old.get(name) != tool]
    removed = [name for name in old if name not in new]
    if not (texts or added or removed):
        return None
    cause = Cause("request", _reason(bool(texts), len(added), len(removed)))
    system, tools = after[0], [dict(tool) for tool in after[1]]
    if "system_messages" in capabilities and "tool_changes" in capabilities:
        content: list[Block] = [text_block(text) for text in texts]
        content += [_change("tool_removal", {"type": "tool_reference", "name": name}) for name in removed]
        content += [_change("tool_addition", {"type": "tool_definition", "definition": dict(tool)}) for tool in added]
        return PrefixAmended(cause, system, tools, {"role": "system", "content": content})
    if added:
        texts.append(_LATER + ", ".join(str(tool.get("name")) for tool in added))
    if removed:
        texts.append(_GONE + ", ".join(removed))
    role = "system" if "system_messages" in capabilities else "user"
    return PrefixAmended(cause, system, tools, {"role": role, "content": [text_block("\n\n".join(texts))]})


def system_changes(before: Any, after: Any) -> str:
    """Return the lines of a system prompt that were removed and added, as text for the model; empty if none were."""
    old, new = _lines(before), _lines(after)
    if old == new:
        return ""
    gone: list[str] = []
    come: list[str] = []
    for kind, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            gone += old[start:end]
            come += new[first:last]
    parts = [_SYSTEM]
    for heading, lines in ((_REMOVED, gone), (_ADDED, come)):
        if any(line.strip() for line in lines):
            parts.append(heading + "\n\n" + "\n".join(lines).strip("\n"))
    return "\n\n".join(parts) if len(parts) > 1 else ""


def _lines(system: Any) -> list[str]:
    if isinstance(system, str):
        return system.splitlines()
    blocks = cast("list[Any]", system) if isinstance(system, list) else []
    texts = (str(cast(Block, block).get("text", "")) if isinstance(block, dict) else str(block) for block in blocks)
    return [line for text in texts for line in text.splitlines()]


def _change(kind: str, tool: Block) -> Block:
    return {"type": kind, "tool": tool}


def _reason(system: bool, added: int, removed: int) -> str:
    parts = ["the system prompt changed"] if system else []
    if added:
        parts.append(f"{added} tool{'s' if added > 1 else ''} added or changed")
    if removed:
        parts.append(f"{removed} tool{'s' if removed > 1 else ''} removed")
    return ", ".join(parts)
