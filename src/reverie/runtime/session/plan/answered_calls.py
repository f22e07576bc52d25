"""The answered calls of some tools in a session's history, followed as the history grows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ....conversation.authorship import text_of
from ....conversation.reads import HistoryReader
from ....conversation.view import View
from ....values import record, rows_of


@record
class AnsweredCall:
    """A tool call whose result is no error."""

    id: str
    entry: str
    """The uuid of the log entry that has the call."""
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
        self._open: dict[str, tuple[str, Any]] = {}
        self._reader = HistoryReader()

    def follow(self, view: View) -> AnsweredCall | None:
        """Read the entries that the view gained since the last call, and return its last answered call.

        If the view does not continue the one before, its history is read from the start.
        """
        if not self._reader.continues(view):
            self._restart()
        for item in self._reader.items(view):
            for block in rows_of(item.message.get("content")):
                self._take(item.uuid, block)
        return self.last

    def any_in(self, view: View) -> bool:
        """Say whether a view shows any answered call of these tools."""
        return any(view.tool_call(called) is not None for called in self._ids)

    def _take(self, uuid: str, block: dict[str, Any]) -> None:
        if block.get("type") == "tool_use" and block.get("name") in self._tools:
            self._open[str(block.get("id"))] = uuid, block.get("input")
        elif block.get("type") == "tool_result" and (called := str(block.get("tool_use_id"))) in self._open:
            entry, given = self._open.pop(called)
            if block.get("is_error") is not True:
                self.last = AnsweredCall(called, entry, given, text_of(block))
                self._ids.append(called)
