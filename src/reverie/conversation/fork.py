"""A side question that shares every cached byte: the parent's request as it stands, and one directive at its end.

Everything before the directive is what the parent sends or is about to send, so that the provider reads it from its
cache. Calls the parent has not answered yet are answered by one placeholder, the same for all of them and for every
fork, so that several forks of one moment differ in their directive alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ..values import record
from .entries import Message
from .view import View
from .wire.blocks import Block, as_blocks, text_block
from .wire.request import build_request

__all__ = ["PLACEHOLDER", "Forked", "fork_of", "fork_request", "is_forked", "tagged"]

PLACEHOLDER: Final = "[This call runs in the conversation this question branched off from; its result is not here.]"
_TAG: Final = "<reverie-fork "
_LEAST_ANSWER: Final = 1_024  # tokens that a reply needs beside its thinking budget


@record
class Forked:
    """What every fork of one moment has in common: the parent's request, and the messages it begins with."""

    request: Mapping[str, Any]
    messages: tuple[Message, ...]

    def asking(self, directive: str, *, source: str) -> dict[str, Any]:
        """Return the request that asks this, the directive being its only difference from other forks."""
        return {**self.request, "messages": [*self.messages[:-1], _with(self.messages[-1], tagged(directive, source))]}


def fork_of(view: View, *, max_tokens: int, model: str = "") -> Forked:
    """Return what a fork of this view shares with it; ``model`` is who answers, where the view has asked another."""
    request = build_request(view)
    messages = cast("list[Message]", request["messages"])
    open_calls = set(view.unanswered())
    if open_calls:
        messages[-1] = _placed(messages[-1], open_calls)
    if messages[-1]["role"] != "user":  # a call that the provider paused would be taken up again
        messages.append({"role": "user", "content": [text_block(PLACEHOLDER)]})
    if model:
        request["model"] = model
    request["max_tokens"] = max(max_tokens, _thinking_room(request))
    request.pop("stream", None)
    return Forked({key: value for key, value in request.items() if key != "messages"}, tuple(messages))


def fork_request(view: View, directive: str, *, source: str, max_tokens: int, model: str = "") -> dict[str, Any]:
    """Return the whole request of a fork, without breakpoints."""
    return fork_of(view, max_tokens=max_tokens, model=model).asking(directive, source=source)


def tagged(directive: str, source: str) -> str:
    """Return a directive as it enters a fork's history, so that a fork can be told from its parent there."""
    return f'{_TAG}source="{source}">\n{directive}\n</reverie-fork>'


def is_forked(messages: Sequence[Message]) -> bool:
    """Say whether a history is that of a fork."""
    return any(
        block.get("type") == "text" and str(block.get("text", "")).startswith(_TAG)
        for message in messages
        if message["role"] == "user"
        for block in as_blocks(message)
    )


def _placed(message: Message, calls: set[str]) -> Message:
    blocks: list[Block] = []
    for block in as_blocks(message):
        if block["type"] == "tool_result" and block["tool_use_id"] in calls:
            block = {"type": "tool_result", "tool_use_id": block["tool_use_id"], "content": PLACEHOLDER}
        blocks.append(block)
    return {"role": message["role"], "content": blocks}


def _with(message: Message, text: str) -> Message:
    return {"role": message["role"], "content": [*as_blocks(message), text_block(text)]}


def _thinking_room(request: Mapping[str, Any]) -> int:
    """Return the least output limit that the request's thinking budget allows."""
    thinking: Any = request.get("thinking")
    budget: Any = cast("Mapping[str, Any]", thinking).get("budget_tokens") if isinstance(thinking, Mapping) else None
    return budget + _LEAST_ANSWER if isinstance(budget, int) else 0
