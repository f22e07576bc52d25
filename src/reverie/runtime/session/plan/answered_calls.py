"""The answered calls of some tools in a session's history, followed as the history grows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from ....conversation.authorship import text_of
from ....conversation.cuts import Item, LoggedCut
from ....conversation.view import View
from ....values import record

__all__ = ["AnsweredCall", "AnsweredCalls"]


@record
class AnsweredCall:
    """A tool call whose result is no error."""

    id: str
    input: Any
    result: str


class AnsweredCalls:
    """Finds the last answered call of some tools; each entry of the history is read once."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._restart()

    def _restart(self) -> None:
        self.last: AnsweredCall | None = None
        self._ids: list[str] = []
        self._open: dict[str, Any] = {}
        self._read = 0
        self._last_uuid = ""

    def follow(self, view: View) -> AnsweredCall | None:
        """Read the entries that the view gained since the last call, and return its last answered call.

        If the view does not continue the one before, its history is read from the start.
        """
        gained = view.history_from(max(0, self._read - 1))
        if self._read and (not gained or gained[0].uuid != self._last_uuid):
            self._restart()
            gained = view.history_from(0)
        fresh = gained[1:] if self._read else gained
        while fresh and isinstance(fresh[-1], LoggedCut):  # it may be foreseen only
            fresh.pop()
        for one in fresh:
            if isinstance(one, Item):
                for block in _blocks(one):
                    self._take(block)
        if fresh:
            self._read += len(fresh)
            self._last_uuid = fresh[-1].uuid
        return self.last

    def any_in(self, view: View) -> bool:
        """Say whether a view shows any answered call of these tools."""
        return any(view.tool_call(called) is not None for called in self._ids)

    def _take(self, block: dict[str, Any]) -> None:
        if block.get("type") == "tool_use" and block.get("name") in self._tools:
            self._open[str(block.get("id"))] = block.get("input")
        elif block.get("type") == "tool_result" and (called := str(block.get("tool_use_id"))) in self._open:
            given = self._open.pop(called)
            if block.get("is_error") is not True:
                self.last = AnsweredCall(called, given, text_of(block))
                self._ids.append(called)


def _blocks(item: Item) -> list[dict[str, Any]]:
    content: Any = item.message.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    return [cast("dict[str, Any]", one) for one in blocks if isinstance(one, dict)]
