"""Reasoning that its provider could not read: the reply reports it, and the log drops it for good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ...conversation.decisions import Cause, ThinkingDropped
from ...conversation.thinking import thinking_tokens
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from ...conversation.wire.carried_items import carried_item

__all__ = ["unreadable_thinking"]

_UNREADABLE: Final = "invalid_encrypted_content"


def unreadable_thinking(view: View, reply: Mapping[str, Any]) -> ThinkingDropped | None:
    """Return the decision that drops the reasoning which a reply reports as unreadable; None if there is none."""
    told: Any = reply.get("input_transformations")
    given = cast("list[Any]", told) if isinstance(told, list) else []
    rows = [cast("dict[str, Any]", row) for row in given if isinstance(row, dict)]
    items = {str(row.get("path")) for row in rows if row.get("reason") == _UNREADABLE}
    if not items:
        return None
    pieces = [piece for group in view.groups if group.role == "assistant" for piece in group.pieces]
    found = [
        piece.uuid
        for piece in pieces
        if any((carried_item(block) or {}).get("id") in items for block in as_blocks(piece.message))
    ]
    if not found:
        return None
    tokens = thinking_tokens(view, found)
    reason = f"the provider could not read the reasoning of {len(found)} {'reply' if len(found) == 1 else 'replies'}"
    return ThinkingDropped(Cause("request", reason, frees=tokens, moves_prefix=True), found, tokens=tokens)
