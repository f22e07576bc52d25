"""Thinking in a tool round, by the server's memory of the calls that it returned behind thinking.

A turn runs in one mode. With a budget (``enabled``) a call that was returned behind thinking is refused without it; a
round that began without thinking makes no error, but the model does not think in it. Adaptive thinking may be left
out, and the server only takes note of that.
Pages: build-with-claude/thinking (thinking-with-tool-use), extended-thinking (turn-structure-in-manual-mode),
thinking-steering-and-cost (turn-validation), thinking-troubleshooting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...conversation.wire.thinking_rules import is_manual, missing_thinking, open_round, reply_blocks
from .prefix import is_thinking
from .refusals import ProviderRefusal


class ReturnedCalls:
    """The calls that were returned behind thinking, and those of them that came back without it in their round."""

    def __init__(self) -> None:
        self._manual: dict[str, bool] = {}
        self.left_out: set[str] = set()

    def take(self, content: list[dict[str, Any]], body: Mapping[str, Any]) -> None:
        """Remember the calls of a reply to a request."""
        thinks = False
        for block in content:
            thinks = thinks or is_thinking(block)
            if block["type"] == "tool_use":
                self._manual.pop(block["id"], None)
                if thinks:
                    self._manual[block["id"]] = is_manual(body)

    def check(self, body: Mapping[str, Any]) -> None:
        """Note calls without the thinking that led to them; raise ``ProviderRefusal`` where it has a budget."""
        for path, kind, call in self._bare_calls(body["messages"]):
            if self._manual[call] and is_manual(body):
                where, words = missing_thinking(path, kind)
                raise ProviderRefusal(400, f"{where}: {words}")
            self.left_out.add(call)

    def _bare_calls(self, messages: list[Any]) -> Iterator[tuple[str, str, str]]:
        """Yield the place and the type of a reply's first block, and each of its calls that lacks its thinking."""
        for index in open_round(messages):
            blocks = list(reply_blocks(messages[index]))
            for at, (_, kind, block) in enumerate(blocks):
                bare = not any(is_thinking(before) for _, _, before in blocks[:at])
                if kind == "tool_use" and block["id"] in self._manual and bare:
                    yield f"messages.{index}.content.{blocks[0][0]}", blocks[0][1], block["id"]


def began_without_thinking(body: Mapping[str, Any]) -> bool:
    """Return whether thinking with a budget is off for a request, because its tool round began without thinking."""
    replies = [body["messages"][index] for index in open_round(body["messages"])]
    return bool(replies) and is_manual(body) and not any(is_thinking(block) for _, _, block in reply_blocks(replies[0]))
