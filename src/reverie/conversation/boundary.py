"""Clearing by the provider up to a fixed call: the results that it leaves out of every request until the next decision.

A provider applies the declared rule to each request afresh: it leaves out the oldest results and keeps a number of
recent ones. With a constant number the boundary between them would move with every new result, and the kept results
would be written to the cache again on every turn. The number therefore grows with each call after the boundary, so that
the results that are left out stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final

from ..values import record, replace
from .cuts import Item, LoggedCut
from .entries import ASSISTANT
from .facts import Facts
from .tool_calls import ToolCall
from .wire.blocks import as_blocks
from .wire.flatten import Group

CLEARS: Final = "clears_results"
"""The capability of a provider that leaves results out of requests by the logged boundary."""
CLEAR_RESULTS: Final = "clear_tool_uses_20250919"


@record
class ClearedRange:
    """The results that the provider leaves out of a view's request: those of all calls up to a message."""

    group: int
    """The index of the last reply whose results are left out."""
    excluded: frozenset[str]
    """The tools whose results stay."""
    cleared: int
    """The number of calls up to this reply, without those of excluded tools."""
    kept: int
    """The number of calls after this reply, without those of excluded tools."""

    def after_calls(self, tools: Iterable[str]) -> ClearedRange:
        """Return the range after a reply has called these tools."""
        return replace(self, kept=self.kept + sum(tool not in self.excluded for tool in tools))

    def edit(self) -> dict[str, Any]:
        """Return the context edit that leaves exactly these results out of the request."""
        edit: dict[str, Any] = {
            "type": CLEAR_RESULTS,
            "trigger": {"type": "input_tokens", "value": 1},
            "keep": {"type": "tool_uses", "value": self.kept},
        }
        return {**edit, "exclude_tools": sorted(self.excluded)} if self.excluded else edit


def left_out(
    facts: Facts, replaced: Container[str], history: Callable[[], Iterable[Item | LoggedCut]]
) -> Callable[[str], bool]:
    """Return a function that says whether requests lack the result of a call, here or at the provider.

    ``replaced`` are the calls whose results were replaced, ``history`` returns all items; it is read only if needed.
    """
    bounded: list[frozenset[str]] = []

    def is_left_out(called: str) -> bool:
        if called in replaced or called in facts.cleared_by_provider:
            return True
        if any(called in edit.tool_use_ids for edit in facts.edits):
            return True
        if not bounded:
            bounded.append(_calls_up_to_boundary(facts, history) if _clears(facts) else frozenset())
        return called in bounded[0]

    return is_left_out


def _clears(facts: Facts) -> bool:
    return facts.boundary is not None and facts.prefix is not None and CLEARS in facts.prefix.capabilities


def _calls_up_to_boundary(facts: Facts, history: Callable[[], Iterable[Item | LoggedCut]]) -> frozenset[str]:
    """Return the calls whose results the provider leaves out by the logged boundary, also of those not in view."""
    assert facts.boundary is not None
    gone = {facts.boundary.upto, *facts.cleared_by_provider}
    found: set[str] = set()
    since: set[str] = set()
    for item in history():
        uses = as_blocks(item.message) if isinstance(item, Item) and item.kind == ASSISTANT else ()
        calls = {str(one["id"]): str(one["name"]) for one in uses if one.get("type") == "tool_use"}
        since.update(called for called, name in calls.items() if name not in facts.boundary.excluded)
        if gone & calls.keys():
            found |= since
    return frozenset(found)


def cleared_range(groups: Sequence[Group], calls: Mapping[str, ToolCall], facts: Facts) -> ClearedRange | None:
    """Return the range of a view with these messages and calls; None if the provider leaves none of its results out.

    A cut may have removed the boundary; then the last result that the provider left out before is the boundary.
    """
    if facts.boundary is None or not _clears(facts):
        return None
    gone = (facts.boundary.upto, *facts.cleared_by_provider)
    at = max((calls[called].group for called in gone if called in calls), default=None)
    if at is None:
        return None
    excluded = frozenset(facts.boundary.excluded)
    counts = [sum(calls[called].name not in excluded for called in group.uses) for group in groups]
    return ClearedRange(at, excluded, sum(counts[: at + 1]), sum(counts[at + 1 :]))
