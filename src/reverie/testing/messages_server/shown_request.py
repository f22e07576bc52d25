"""A request as the model sees it: dropped thinking, cleared messages and unloaded tools are left out.

Pages: build-with-claude/preserved-thinking, build-with-claude/thinking, mid-conversation-system-messages,
tool-search-tool.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model_facts import ModelFacts
from .prefix import is_thinking
from .signatures import record_of


def shown_request(body: dict[str, Any], dropped: Collection[tuple[int, int]], facts: ModelFacts) -> dict[str, Any]:
    """Return the request without dropped thinking, turn-scoped messages of earlier turns and thinking of old turns."""
    messages = body["messages"]
    last_user = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=-1)
    forgotten = -1 if facts.keeps_thinking or _clears_thinking(body) else _last_prompt(messages)
    shown: list[Any] = []
    for index, message in enumerate(messages):
        content = message["content"]
        if _is_cleared(message, index, last_user):
            content = []
        elif not isinstance(content, str):
            content = [
                _with_words(block)
                for position, block in enumerate(content)
                if (index, position) not in dropped and not (index < forgotten and is_thinking(block))
            ]
        shown.append(message if content == message["content"] else {**message, "content": content})
    return {**body, "messages": shown}


def _with_words(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block with the thinking that its signature holds, where its text was not returned."""
    if block.get("type") != "thinking" or block.get("thinking"):
        return block
    record = record_of(block)
    return {**block, "thinking": record.words} if record is not None and record.words else block


def _is_cleared(message: Mapping[str, Any], index: int, last_user: int) -> bool:
    """Return whether a turn-scoped message is no longer shown, because a user message follows it."""
    return message.get("clear_at") == "next_user_message" and index < last_user


def _clears_thinking(body: Mapping[str, Any]) -> bool:
    declared: Any = body.get("context_management") or {}
    edits: Any = declared.get("edits") or ()
    return any(str(edit.get("type")).startswith("clear_thinking") for edit in edits)


def _last_prompt(messages: list[Any]) -> int:
    """Return the index of the last user message that holds more than tool results; -1 where there is none."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        content = message["content"]
        if message["role"] == "user" and (
            isinstance(content, str) or any(block.get("type") != "tool_result" for block in content)
        ):
            return index
    return -1
