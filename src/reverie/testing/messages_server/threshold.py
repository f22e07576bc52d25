"""Compaction at a threshold: a summary at the front of an ordinary reply, and its effect on later requests.

Page: build-with-claude/compaction-threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from .prefix import is_threshold_summary

THRESHOLD_BETA: Final = "compact-2026-01-12"
_EDIT: Final = "compact_20260112"
_DEFAULT_TRIGGER_TOKENS: Final = 150_000
Request: TypeAlias = "dict[str, Any]"
Block: TypeAlias = "dict[str, Any]"


def reached_threshold(body: Mapping[str, Any], tokens: int) -> Mapping[str, Any] | None:
    """Return the edit by which a request with so many input tokens is summarised first; None if none asks for it."""
    declared: Any = body.get("context_management") or {}
    edit = next((one for one in declared.get("edits") or () if one["type"] == _EDIT), None)
    if edit is None or body["max_tokens"] == 0:
        return None
    return edit if tokens >= (edit.get("trigger") or {"value": _DEFAULT_TRIGGER_TOKENS})["value"] else None


def from_summary(request: Request) -> Request:
    """Return a request from its newest summary on; a summary that failed is left out."""
    messages: list[Any] = []
    for message in request["messages"]:
        content = message["content"]
        if not isinstance(content, str) and any(block.get("type") == "compaction" for block in content):
            newest = max((at for at, block in enumerate(content) if is_threshold_summary(block)), default=-1)
            messages = messages if newest < 0 else []
            kept = [block for block in content[max(0, newest) :] if not _is_failed(block)]
            message = {**message, "content": kept}
        messages.append(message)
    return {**request, "messages": messages}


def summary_block(text: str | None) -> Block:
    """Return the block of a summary; None is a summary that failed."""
    return {"type": "compaction", "content": text}


def continued_request(request: Request, block: Block) -> Request:
    """Return the request that the model answers after the summary; one that failed changes nothing."""
    return {**request, "messages": [{"role": "assistant", "content": [block]}]} if block["content"] else request


def _is_failed(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "compaction" and block.get("content") is None
