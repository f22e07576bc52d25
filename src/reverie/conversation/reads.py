"""Reading of a view: the items that it gained, and the files that it shows completely, which count as read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .cuts import Item
from .entries import ASSISTANT
from .file_reads import FILES, logged_reads
from .shared_lists import Result
from .tool_calls import span_of
from .view import View
from .wire.blocks import as_blocks

READS: Final = frozenset({"Read", "read"})
WRITES: Final = frozenset({"Edit", "Write", "edit", "write"})


class HistoryReader:
    """Reads every item of a growing view once.

    Cuts at the end are passed when an item follows: a view may be one that only foresees a cut.
    """

    __slots__ = ("_last", "_read")

    def __init__(self) -> None:
        self._read = 0
        self._last = ""

    def continues(self, view: View) -> bool:
        """Say whether a view continues the one that was read last; if not, begin anew with a new reader."""
        if not self._read:
            return True
        last = next(view.each(self._read - 1), None)
        return last is not None and last.uuid == self._last

    def items(self, view: View) -> Iterator[Item]:
        """Yield the items that the view gained, without holding them."""
        for at, one in enumerate(view.each(self._read), self._read + 1):
            if isinstance(one, Item):
                self._read, self._last = at, one.uuid
                yield one


def cleared_results(view: View) -> frozenset[str]:
    """Return the calls in the view whose results the provider leaves out of requests."""
    return frozenset(called for called in view.facts.cleared_by_provider if view.tool_call(called) is not None)


def shows_result(view: View, called: str) -> bool:
    """Return whether the request of a view has the result of a call: not cut, replaced or left out by the provider."""
    call, bound, facts = view.tool_call(called), view.clearing, view.facts
    if call is None or called in view.overrides.results or called in facts.cleared_by_provider:
        return False
    if bound is not None and call.group <= bound.group and call.name not in bound.excluded:
        return False
    return not any(called in edit.tool_use_ids for edit in facts.edits)


def files_in_view(view: View) -> dict[str, str]:
    """Return a dict: the path of each file that the view shows in full and unchanged, and the id of its read call.

    A file leaves the dict when its result is cleared, here or by the provider, offloaded, deleted from the
    provider's cache or cut, and when the file is written. A partial read and a reference to an earlier result do not
    count as a read.
    """
    found: dict[str, str] = {}
    for result in view.results:
        use = view.tool_call(result.tool_use_id)
        if result.path is None or use is None or is_failed(result):
            continue
        if result.tool in WRITES:
            found.pop(result.path, None)
            continue
        is_whole = result.tool in READS and not span_of(use.input) and result.message not in view.overrides.images
        if is_whole and shows_result(view, result.tool_use_id):
            found[result.path] = result.tool_use_id
    return found


def whole_reads(view: View) -> dict[tuple[str, str], str]:
    """Return the calls that read a file in full, in view or not, by its path and the version that they show."""
    asked: set[str] = set()
    found: dict[tuple[str, str], str] = {}
    for item in view.each():
        if not isinstance(item, Item):
            continue
        if item.kind == ASSISTANT:
            blocks = as_blocks(item.message)
            asked.update(str(one["id"]) for one in blocks if one.get("name") in READS and not span_of(one["input"]))
        elif FILES in item.entry.body:
            calls = [str(one["tool_use_id"]) for one in as_blocks(item.message) if one.get("tool_use_id") in asked]
            for read in logged_reads(item.entry.body[FILES]) if len(calls) == 1 else ():
                if read.spans is None:
                    found[read.path, read.version] = calls[0]
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
