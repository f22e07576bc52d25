"""The provider's rule for thinking in a tool round: it goes back with the calls that it led to.

A request alone shows a round whose first thinking was taken away while later thinking is left. A round without any
thinking may also have begun while thinking was off, which is no error: only the provider remembers its replies.
Pages: build-with-claude/thinking (thinking-with-tool-use), extended-thinking (turn-structure-in-manual-mode).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .block_rules import Fault, is_list, is_object

_THINKING = ("thinking", "redacted_thinking")


def is_manual(request: Mapping[str, Any]) -> bool:
    """Say whether thinking has a budget: adaptive thinking lets a reply begin without it."""
    thinking = request.get("thinking")
    return is_object(thinking) and thinking.get("type") == "enabled"


def open_round(messages: Any) -> list[int]:
    """Return the indexes of the replies in the tool round that a request continues; empty if it continues none."""
    found: list[int] = []
    for index in range(len(messages) - 1 if is_list(messages) else -1, -1, -1):
        given: Any = messages[index]
        message: dict[str, Any] = given if is_object(given) else {}
        if message.get("role") == "assistant":
            found.append(index)
            if any(kind == "compaction" for _, kind, _ in _blocks(message)):
                break
        elif message.get("role") == "user" and not _is_results(message.get("content")):
            break
    return found[::-1]


def reply_blocks(message: Mapping[str, Any]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Return the position, the type and the fields of each block of a reply, without a summary at its front."""
    return (block for block in _blocks(message) if block[1] != "compaction")


def missing_thinking(path: str, kind: str) -> Fault:
    """Return the fault of a reply that begins with a block of this type in place of its thinking."""
    return f"{path}.type", (
        f"Expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is enabled, a final "
        "`assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and "
        "`tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this "
        "requirement, disable `thinking`."
    )


def round_fault(request: Mapping[str, Any]) -> Fault | None:
    """Return the fault of a tool round that has thinking, but not at its beginning, while thinking has a budget."""
    messages: Any = request.get("messages")
    places = [
        (f"messages.{index}.content.{position}", kind)
        for index in (open_round(messages) if is_manual(request) else ())
        for position, kind, _ in reply_blocks(messages[index])
    ]
    if not any(kind in _THINKING for _, kind in places) or places[0][1] in _THINKING:
        return None
    return missing_thinking(*places[0])


def _blocks(message: Mapping[str, Any]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    content = message.get("content")
    for position, block in enumerate(content if is_list(content) else [{"type": "text"}]):
        if is_object(block):
            yield position, str(block.get("type")), block


def _is_results(content: Any) -> bool:
    return is_list(content) and all(is_object(block) and block.get("type") == "tool_result" for block in content)
