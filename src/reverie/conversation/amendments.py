"""Changes of system prompt and tools in the middle of a session, told at its end so that the prefix stays the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, cast

from msgspec import structs

from .cuts import SYSTEM, Item
from .decisions import Cause, PrefixAmended, PrefixRendered
from .wire.blocks import Block, as_blocks, text_block

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
        undefined = [name for name in removed if set(old[name]) == {"name"}]  # a reference to one would be refused
        texts += [_GONE + ", ".join(undefined)] if undefined else []
        content: list[Block] = [text_block(text) for text in texts]
        content += [
            _change("tool_removal", {"type": "tool_reference", "name": name})
            for name in removed
            if name not in undefined
        ]
        content += [_change("tool_addition", {"type": "tool_definition", "definition": dict(tool)}) for tool in added]
        return PrefixAmended(cause, system, tools, {"role": "system", "content": content})
    if added:
        texts.append(_LATER + ", ".join(str(tool.get("name")) for tool in added))
    if removed:
        texts.append(_GONE + ", ".join(removed))
    role = "system" if "system_messages" in capabilities else "user"
    return PrefixAmended(cause, system, tools, {"role": role, "content": [text_block("\n\n".join(texts))]})


def told_in_part(
    prefix: PrefixRendered, told: Iterable[PrefixAmended], carried: Iterable[Mapping[str, Any]]
) -> PrefixAmended:
    """Return the state that the changes ``told`` lead to, if a cut took some of those before or between them.

    ``carried`` are the changes of tools in a signed summary. Providers may ignore them, so that each of these tools
    is announced again: it counts as another tool here, and one that is defined nowhere else has only its name.
    """
    tools: dict[str, Mapping[str, Any]] = {str(tool.get("name")): tool for tool in prefix.tools}
    for change in carried:
        name = tool_of_change(change)
        tools[name] = {"name": name, "type": "declared"} if name in tools else {"name": name}
    for block in (block for amended in told for block in as_blocks(amended.message)):
        if block["type"] == "tool_addition":
            tools[tool_of_change(block)] = block["tool"]["definition"]
        elif block["type"] == "tool_removal":
            tools.pop(tool_of_change(block), None)
    cause = Cause("request", "a cut took some of the changes")
    return PrefixAmended(cause, prefix.system, [dict(tool) for tool in tools.values()], {})


def with_known_tools(items: Iterable[Item], prefix: PrefixRendered | None) -> Iterator[Item]:
    """Yield the items; after a cut, a removal of a tool that no item before it adds is left out.

    A provider refuses a reference to a tool that is not defined.
    """
    names = {tool.get("name") for tool in prefix.tools} if prefix is not None else set[Any]()
    for item in items:
        if item.kind != SYSTEM:
            yield item
            continue
        blocks = as_blocks(item.message)
        names.update(tool_of_change(block) for block in blocks if block["type"] == "tool_addition")
        kept = [block for block in blocks if block["type"] != "tool_removal" or tool_of_change(block) in names]
        if len(kept) == len(blocks):
            yield item
        elif kept:
            yield structs.replace(item, message={**item.message, "content": kept})


def tool_of_change(block: Mapping[str, Any]) -> str:
    """Return the name of the tool that a block adds or removes."""
    tool: Any = block.get("tool") or {}
    return str((tool.get("definition") or tool).get("name") or "")


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
