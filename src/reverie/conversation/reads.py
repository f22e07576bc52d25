"""The files that the view shows completely and unchanged, which an agent may treat as read."""

from __future__ import annotations

from typing import Final

from .shared_lists import Result
from .tool_calls import span_of
from .view import View
from .wire.blocks import as_blocks

__all__ = ["READS", "WRITES", "cleared_results", "files_in_view", "forgotten_files", "is_failed"]

READS: Final = frozenset({"Read", "read"})
WRITES: Final = frozenset({"Edit", "Write", "edit", "write"})


def cleared_results(view: View) -> frozenset[str]:
    """Return the calls in the view whose results the provider leaves out of requests."""
    return frozenset(called for called in view.facts.cleared_by_provider if view.tool_call(called) is not None)


def files_in_view(view: View) -> dict[str, str]:
    """Return a dict: the path of each file that the view shows in full and unchanged, and the id of its read call.

    A file leaves the dict when its result is cleared, here or by the provider, offloaded, deleted from the
    provider's cache or cut, and when the file is written. A partial read and a reference to an earlier result do not
    count as a read.
    """
    gone = view.facts.cleared_by_provider.union(*(edit.tool_use_ids for edit in view.facts.edits))
    found: dict[str, str] = {}
    for result in view.results:
        use = view.tool_call(result.tool_use_id)
        if result.path is None or use is None or is_failed(result):
            continue
        if result.tool in WRITES:
            found.pop(result.path, None)
        elif result.tool in READS and not span_of(use.input) and _is_shown(view, result, gone):
            found[result.path] = result.tool_use_id
    return found


def forgotten_files(before: View, after: View) -> list[str]:
    """Return the sorted paths of the files that the view ``before`` shows in full and ``after`` does not."""
    return sorted(files_in_view(before).keys() - files_in_view(after).keys())


def is_failed(result: Result) -> bool:
    """Say whether a result reports an error."""
    return any(
        block.get("is_error") is True
        for block in as_blocks(result.piece.message)
        if block.get("tool_use_id") == result.tool_use_id
    )


def _is_shown(view: View, result: Result, gone: frozenset[str]) -> bool:
    return (
        result.tool_use_id not in view.overrides.results
        and result.tool_use_id not in gone
        and result.message not in view.overrides.images
    )
