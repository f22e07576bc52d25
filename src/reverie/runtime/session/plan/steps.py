"""The open steps of the agent's list, as a standing item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....conversation.standing_context import StandingItem, digest_of
from ....conversation.tool_calls import COMPLETED, steps_in
from ....conversation.view import View
from .answered_calls import AnsweredCalls

TOOLS: Final = frozenset({"TodoWrite", "todo_write", "todowrite", "Todo", "todo", "update_plan"})
"""The names of tools that replace a list of steps, in this and other programs."""
_HEAD: Final = "Your list of steps, those that are not completed:"


class StepsSource:
    """States the open steps of the last call of TodoWrite while no such call shows them."""

    name = "steps"
    only_after_cuts = False

    def __init__(self) -> None:
        self._calls = AnsweredCalls(TOOLS)

    def steps(self, view: View) -> list[tuple[str, str]]:
        """Return the last list of steps of a session, each as its text and status."""
        last = self._calls.follow(view)
        return (steps_in(last.input) if last is not None else None) or []

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return the open steps; without any, an item only where the view shows an older list by itself."""
        steps = self.steps(view)
        last = self._calls.last
        if last is None:
            return ()
        is_shown = view.tool_call(last.id) is not None
        still_open = [f"- [{status or 'pending'}] {text}" for text, status in steps if status != COMPLETED]
        if not still_open and (is_shown or not self._calls.any_in(view)):
            return ()
        value = "\n".join([_HEAD, *still_open]) if still_open else "No step is open: all were completed or dropped."
        # A list is another one if it was written again: the view may show a list that was written in between.
        digest = digest_of(f"{last.id}\n{value}")
        name = "the list of open steps"
        native = digest if is_shown else ""
        return (StandingItem("steps", self.name, name, value, digest, native=native, shown_by=(last.entry,)),)
