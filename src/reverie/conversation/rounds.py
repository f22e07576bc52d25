"""API rounds, and tails that split no pair.

A round starts at each assistant message id not seen before. Rounds are the unit in which anything is dropped, so a tool
call and its result always leave together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from .entries import ASSISTANT, Entry

__all__ = ["reply_id", "rounds", "widened"]


def reply_id(entry: Entry) -> str:
    """Return the provider's id of a reply; a reply without one is its own."""
    found = entry.reply.get("id")
    return found if isinstance(found, str) and found else entry.uuid


def rounds(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Group message entries into rounds; what precedes the first reply is a round of its own."""
    out: list[list[Entry]] = []
    seen: set[str] = set()
    for entry in entries:
        starts = entry.kind == ASSISTANT and reply_id(entry) not in seen
        if entry.kind == ASSISTANT:
            seen.add(reply_id(entry))
        if starts or not out:
            out.append([entry])
        else:
            out[-1].append(entry)
    return out


def widened(entries: Sequence[Entry], start: int) -> int:
    """Move the start of a kept tail back until no pair is split and no piece of a kept reply is lost."""
    start = max(0, min(start, len(entries)))
    first_piece: dict[str, int] = {}
    called_at: dict[str, int] = {}
    for at, entry in enumerate(entries):
        if entry.kind == ASSISTANT:
            first_piece.setdefault(reply_id(entry), at)
        for called in _ids(entry, "tool_use", "id"):
            called_at.setdefault(called, at)
    at = len(entries)
    while at > start:
        at -= 1
        entry = entries[at]
        if entry.kind == ASSISTANT:
            start = min(start, first_piece[reply_id(entry)])
        for called in _ids(entry, "tool_result", "tool_use_id"):
            start = min(start, called_at.get(called, start))
    return start


def _ids(entry: Entry, kind: str, key: str) -> list[str]:
    message = entry.message
    content = message.get("content") if message is not None else None
    if not isinstance(content, list):
        return []
    blocks = (cast("dict[str, Any]", block) for block in cast("list[Any]", content) if isinstance(block, dict))
    found = (block.get(key) for block in blocks if block.get("type") == kind)
    return [one for one in found if isinstance(one, str)]
