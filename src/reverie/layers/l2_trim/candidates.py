"""Index of the results that layer 2 may clear, so that a turn only reads new results."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from ...conversation.reads import READS, WRITES, is_failed
from ...conversation.shared_lists import Result
from ...conversation.tool_calls import span_of
from ...conversation.view import View
from ...conversation.wire.blocks import is_text_call
from ...conversation.wire.flatten import Overrides
from ...values import record
from .policy import TrimPolicy

STUB_TOKENS: Final = 40  # tokens that a cleared result still takes: its frame, the sentence and the handle


@record
class ClearableResult:
    """A result in view that the policy allows to clear; ``group`` is the index of its message."""

    tool_use_id: str
    tool: str
    tokens: int
    group: int
    message: str = ""

    @property
    def round(self) -> int:
        """The number of the request before which the result arrived, counted from the last cut."""
        return self.group // 2


class TrimCandidates:
    """Index of a view's clearable results.

    The index grows with the view and is rebuilt after a cut. It is derived from the view alone, so a resumed session
    builds it again.
    """

    def __init__(self, policy: TrimPolicy) -> None:
        self._policy = policy
        self._begin((-1, 0))

    def _begin(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._seen = 0
        self._ends: list[int] = []  # tokens up to the end of each closed message, in order of arrival
        self._open: list[int] = []
        self._freed: dict[str, int] = {}
        self._reads: dict[str, list[tuple[str, str]]] = {}
        self._shown: Overrides | None = None
        self._cleared = -1
        self.unseen = 0
        """Index of the first message that no request contained yet; results from there on must not be cleared."""
        self.candidates: list[ClearableResult] = []
        self.superseded: set[str] = set()
        self.written = 0

    def follow(self, view: View) -> None:
        """Add the results that the view gained, drop replaced ones; after a cut read all of the view again."""
        cleared = view.clearing.group + 1 if view.clearing is not None else -1
        shape = view.cuts, view.facts.restorations
        if shape != self._shape or cleared < self._cleared:
            self._begin(shape)
        is_new = not self._seen
        end = self._ends[-1] if self._ends else 0
        for at in range(len(self._ends), view.finished):
            end += view.group(at).tokens
            self._ends.append(end)
        self._open = []
        for at in range(view.finished, view.length):
            end += view.group(at).tokens
            self._open.append(end)
        self.written = end
        final = view.final
        self.unseen = view.length - (final is not None and final.role == "user")
        if view.overrides is not self._shown or cleared != self._cleared:
            self._shown, self._cleared = view.overrides, cleared
            shown = (one for one in self.candidates if one.tool_use_id not in view.overrides.results)
            self.candidates = [one for one in shown if one.group > cleared]
        for result in view.results_from(self._seen):
            self._seen += 1
            gone = result.tool_use_id in view.overrides.results or result.group <= cleared
            use = view.tool_call(result.tool_use_id)
            if result.path is not None and use is not None and not is_failed(result):
                self._supersede(result, span_of(use.input), gone=gone)
            is_ours = self._policy.mode == "client" or not is_text_call(
                result.tool_use_id
            )  # else it is no result there
            if not gone and not result.has_images and is_ours and self._policy.may_clear(result.tool):
                self.candidates.append(
                    ClearableResult(result.tool_use_id, result.tool, result.tokens, result.group, result.message)
                )
        if is_new and view.overrides.results:
            self._count_freed(view)

    def _supersede(self, result: Result, span: str, *, gone: bool) -> None:
        """Add the earlier reads of a file that this result made stale to ``superseded``.

        A read that is itself hidden, such as a reference to an earlier one, makes nothing stale; a write does.
        """
        earlier = self._reads.setdefault(result.path or "", [])
        if result.tool in WRITES:
            self.superseded.update(one for one, _ in earlier)
            earlier.clear()
        elif result.tool in READS and not gone:
            self.superseded.update(one for one, covered in earlier if covered == span)
            earlier[:] = [one for one in earlier if one[1] != span]
            earlier.append((result.tool_use_id, span))

    def clear(self, ids: Iterable[str]) -> None:
        """Remove these results from the candidates, and count the tokens freed after each remaining candidate."""
        gone = set(ids)
        cleared = [one for one in self.candidates if one.tool_use_id in gone]
        self.candidates = [one for one in self.candidates if one.tool_use_id not in gone]
        self._free([(one.group, one.tokens) for one in cleared])  # candidates are in order of their groups

    def _count_freed(self, view: View) -> None:
        """Count the tokens that earlier clearings freed after each candidate, as ``clear`` did then."""
        hidden = (one for one in view.results if one.tool_use_id in view.overrides.results)
        self._free([(one.group, one.tokens) for one in hidden if view.offloaded(one.tool_use_id) is None])

    def _free(self, cleared: list[tuple[int, int]]) -> None:
        """Count the tokens freed after each candidate by cleared results, given by message and size."""
        groups = [group for group, _ in cleared]
        sums = list(accumulate((max(0, tokens - STUB_TOKENS) for _, tokens in cleared), initial=0))
        for one in self.candidates:
            freed = sums[-1] - sums[bisect_right(groups, one.group)]
            self._freed[one.tool_use_id] = self._freed.get(one.tool_use_id, 0) + freed

    def _end(self, group: int) -> int:
        if group < 0:
            return 0
        return self._ends[group] if group < len(self._ends) else self._open[group - len(self._ends)]

    def before(self, candidate: ClearableResult, held: Sequence[int] | None = None) -> int:
        """Return how many tokens the last request before a candidate contained, since the cache holds no more.

        ``held`` are the messages at which entries of the cache still end, in order: then it is the newest of those
        requests. A pause ends the entries of most requests, so it may be a much older one.
        """
        last = candidate.group - 2
        if held is not None:
            found = bisect_right(held, last + 1)
            last = held[found - 1] if found else -1
        return self._end(last)

    def following(self, candidate: ClearableResult, before: int | None = None) -> int:
        """Return how many tokens follow the last request before a candidate, without those freed since.

        ``before`` is the value of ``before(candidate)``, if known.
        """
        before = self.before(candidate) if before is None else before
        left = self.written - before - self._freed.get(candidate.tool_use_id, 0)
        return left if left > 0 else 0
