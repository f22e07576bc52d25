"""Forks: a side question that reuses the cached prefix by adding one directive to the parent's request.

Everything before the directive is the request the parent sends or is about to send, so the provider reads it from its
cache. Tool calls the parent has not answered yet get one placeholder result, the same for every call and every fork,
so forks of the same moment differ in their directive alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ..values import record
from .entries import Message
from .view import View
from .wire.blocks import Block, as_blocks, text_block
from .wire.request import build_request

__all__ = ["PLACEHOLDER", "ForkBase", "fork_base", "is_forked", "tagged"]

PLACEHOLDER: Final = "[This call runs in the conversation this question branched off from; its result is not here.]"
_TAG: Final = "<reverie-fork "
_LEAST_ANSWER: Final = 1_024  # tokens that a reply needs beside its thinking budget


@record
class ForkBase:
    """The part that all forks of one moment share: the parent's request without its messages, and its messages."""

    request: Mapping[str, Any]
    messages: tuple[Message, ...]

    def request_for(self, directive: str, *, source: str) -> dict[str, Any]:
        """Return the request of a fork: the shared part with this directive at the end, tagged with ``source``."""
        return {**self.request, "messages": [*self.messages[:-1], _with(self.messages[-1], tagged(directive, source))]}


def fork_base(view: View, *, max_tokens: int, model: str = "") -> ForkBase:
    """Return the part that forks of this view share; ``model`` replaces the view's model if given.

    ``max_tokens`` limits a fork's reply; it is raised if the request's thinking budget needs more. Tool calls
    without a result get a placeholder.
    """
    request = build_request(view)
    messages = cast("list[Message]", request["messages"])
    open_calls = set(view.unanswered())
    if open_calls:
        messages[-1] = _with_placeholders(messages[-1], open_calls)
    if messages[-1]["role"] != "user":  # the provider would resume a call it had paused
        messages.append({"role": "user", "content": [text_block(PLACEHOLDER)]})
    if model:
        request["model"] = model
    request["max_tokens"] = max(max_tokens, _thinking_room(request))
    request.pop("stream", None)
    return ForkBase({key: value for key, value in request.items() if key != "messages"}, tuple(messages))


def tagged(directive: str, source: str) -> str:
    """Return a directive inside the tag that marks messages as a fork's; the tag names ``source``."""
    return f'{_TAG}source="{source}">\n{directive}\n</reverie-fork>'


def is_forked(messages: Sequence[Message]) -> bool:
    """Say whether these messages belong to a fork: a text block of the user's begins with the fork tag."""
    return any(
        block.get("type") == "text" and str(block.get("text", "")).startswith(_TAG)
        for message in messages
        if message["role"] == "user"
        for block in as_blocks(message)
    )


def _with_placeholders(message: Message, calls: set[str]) -> Message:
    """Return the message with the results of these calls replaced by the placeholder."""
    blocks: list[Block] = []
    for block in as_blocks(message):
        if block["type"] == "tool_result" and block["tool_use_id"] in calls:
            block = {"type": "tool_result", "tool_use_id": block["tool_use_id"], "content": PLACEHOLDER}
        blocks.append(block)
    return {"role": message["role"], "content": blocks}


def _with(message: Message, text: str) -> Message:
    return {"role": message["role"], "content": [*as_blocks(message), text_block(text)]}


def _thinking_room(request: Mapping[str, Any]) -> int:
    """Return the smallest ``max_tokens`` that the request's thinking budget allows; 0 if it has no budget."""
    thinking: Any = request.get("thinking")
    budget: Any = cast("Mapping[str, Any]", thinking).get("budget_tokens") if isinstance(thinking, Mapping) else None
    return budget + _LEAST_ANSWER if isinstance(budget, int) else 0
