"""The policies under which a recorded session can be replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..cache.breakpoints import BreakpointPlan, CacheState, last_markable, plan_marks
from ..cache.usage import Usage
from ..conversation.decisions import Cause, Decision, Replacement, ResultsCleared, Snipped
from ..conversation.entries import USER, Entry, rounds
from ..conversation.view import View
from ..conversation.wire.blocks import as_blocks
from ..layers.l1_offload import OffloadPolicy, ResultStore, offload_aggregate, offload_result
from ..layers.l2_trim import STUB_TOKENS, BoundaryPlan, TrimPlan, TrimPolicy, cleared_text
from ..runtime.session.cache_plan import CachePlan
from ..runtime.session.trim import Trimmer
from ..storage.in_memory import InMemoryStorage
from .compactions import CompactionRule, ReplayCompactions
from .recording import RecordedRequest, SharedWork

WINDOW_TOKENS: Final = 100_000
KEPT_RESULTS: Final = 5


class ReplayPolicy:
    """The decisions of a policy about each entry and before each request, and the places of its breakpoints.

    This one sends everything, caches nothing, and compacts only as ``compactions`` says.
    """

    hidden_tokens = 0
    """The tokens of results that the provider leaves out of the view."""

    def __init__(self, *, name: str = "uncached", compactions: ReplayCompactions | None = None) -> None:
        self.name = name
        self.compactions: ReplayCompactions | None = compactions

    def arrived(self, view: View, entry: Entry) -> list[Decision]:
        """Return the decisions about a new entry, which is not yet part of the view."""
        return []

    def prepare(self, view: View, step: RecordedRequest) -> list[Decision]:
        """Return the decisions to fold into the view before a request: the compaction that is due, if any."""
        due = self.compactions.due(view, step.at) if self.compactions is not None else None
        return [due] if due is not None else []

    def mark(self, view: View, messages: list[Any], step: RecordedRequest) -> BreakpointPlan | None:
        """Return the breakpoints of a request; None means that nothing is cached."""
        return None

    def billed(self, view: View, usage: Usage) -> None:
        """Take note of a request's bill."""

    def when_idle(self, view: View, now: float) -> list[Decision]:
        """Return the decisions to fold into the view before the cache of an idle session ends: a compaction, if any."""
        return []

    def pings_again(self, view: View, pings: int) -> bool:
        """Say whether to renew the cache of an idle session after so many pings in this pause."""
        return False

    def pinged(self, view: View, now: float) -> None:
        """Take note that the last request was sent again to renew the cache."""


class AppendOnlyPolicy(ReplayPolicy):
    """Send everything, cached as documented; ``pings`` of a window of some tokens renew an idle cache."""

    def __init__(
        self,
        ttl: str = "5m",
        *,
        name: str = "append-only",
        pings: Callable[[int], int] = lambda tokens: 0,
        compactions: ReplayCompactions | None = None,
    ) -> None:
        super().__init__(name=name, compactions=compactions)
        self.ttl = ttl
        self.pings = pings
        self._placed: CacheState | None = None
        self._changed: int | None = None
        self._cuts = 0

    def mark(self, view: View, messages: list[Any], step: RecordedRequest) -> BreakpointPlan | None:
        """Return breakpoints at the system prompt, the end of the last request and the end of this one.

        If a decision changed messages since then, the second is before the first changed message. The change that
        ``changed_at`` noted is forgotten.
        """
        ttl = self.ttl_of(step)
        changed = 0 if view.cuts != self._cuts else self._changed
        self._cuts, self._changed = view.cuts, None
        planned = plan_marks(messages, now=step.at, ttl=ttl, before=None)
        marks = list(planned.marks)
        end = self._placed.end if self._placed is not None else None
        found = end if changed is None else last_markable(messages, changed)
        if found is not None and found.message < len(messages) and found not in [place for place, _ in marks]:
            marks.insert(0, (found, ttl))
        self._placed = planned.after
        return BreakpointPlan(tuple(marks), ttl, True, False, planned.after)

    def pings_again(self, view: View, pings: int) -> bool:
        """Say whether one more ping pays for this window."""
        return pings < self.pings(view.token_count.tokens)

    def ttl_of(self, step: RecordedRequest) -> str:
        """Return the cache lifetime of a request's breakpoints, here the same for all requests."""
        return self.ttl

    def changed_at(self, group: int) -> None:
        """Remember the lowest index of a message that decisions changed since the last call of ``mark``."""
        self._changed = group if self._changed is None else min(self._changed, group)


class AsRecordedPolicy(AppendOnlyPolicy):
    """Send the recorded requests with the recorded cache lifetime.

    Where tokens left a recorded request without an entry that says why, its client must have cleared something: the
    oldest results are cleared until the size matches.
    """

    def __init__(self, ttl: str = "5m") -> None:
        super().__init__(ttl, name="as-recorded")

    def prepare(self, view: View, step: RecordedRequest) -> list[Decision]:
        """Return a decision that clears the oldest results until the view has the billed size.

        Return an empty list if the recorded client removed nothing.
        """
        if not step.removed or step.billed is None:
            return []
        surplus = view.token_count.tokens - step.billed.input
        gone: list[Replacement] = []
        for one in view.results:
            if surplus <= 0:
                break
            if one.tool_use_id not in view.overrides.results and one.tokens > STUB_TOKENS:
                gone.append(Replacement(one.tool_use_id, cleared_text(one.tool_use_id), tokens=one.tokens))
                surplus -= one.tokens - STUB_TOKENS
                self.changed_at(one.group)
        frees = sum(one.tokens for one in gone)
        return [ResultsCleared(Cause("recorded client", "content removed by the client", frees, True), gone)]

    def ttl_of(self, step: RecordedRequest) -> str:
        """Return the lifetime that the request paid for and remember it; without a bill, the last one known."""
        if step.billed is not None and (step.billed.write_1h or step.billed.write_5m):
            self.ttl = "1h" if step.billed.write_1h else "5m"
        return self.ttl


class SlidingWindowPolicy(AppendOnlyPolicy):
    """Drop the oldest rounds that do not fit a number of tokens, but never the first and the last round."""

    def __init__(self, ttl: str = "5m") -> None:
        super().__init__(ttl, name="sliding-window")

    def prepare(self, view: View, step: RecordedRequest) -> list[Decision]:
        """Return a decision that drops the oldest rounds beyond the window; an empty list if the view fits."""
        surplus = view.token_count.tokens - WINDOW_TOKENS
        if surplus <= 0:
            return []
        pieces = {piece.uuid: piece.tokens for group in view.groups for piece in group.pieces}
        gone: list[str] = []
        freed = 0
        for one in rounds([entry for entry in view.history if entry.uuid in pieces])[1:-1]:
            if freed >= surplus:
                break
            gone += [entry.uuid for entry in one]
            freed += sum(pieces[entry.uuid] for entry in one)
        return [Snipped(Cause("sliding window", "the oldest rounds", freed, True), gone)] if gone else []


class ClearEveryTurnPolicy(AppendOnlyPolicy):
    """Clear all but the newest tool results before every request."""

    _policy = TrimPolicy()

    def __init__(self, ttl: str = "5m", compactions: ReplayCompactions | None = None) -> None:
        super().__init__(ttl, name="clear-every-turn", compactions=compactions)

    def prepare(self, view: View, step: RecordedRequest) -> list[Decision]:
        """Return a decision that clears all but the newest results, or the compaction that is due before it."""
        due = super().prepare(view, step)
        if due:
            return due
        shown = view.overrides.results
        results = [one for one in view.results if self._policy.may_clear(one.tool) and one.tool_use_id not in shown]
        old = results[:-KEPT_RESULTS]
        if not old:
            return []
        self.changed_at(min(one.group for one in old))
        replaced = [Replacement(one.tool_use_id, cleared_text(one.tool_use_id), tokens=one.tokens) for one in old]
        frees = sum(one.tokens for one in old)
        return [ResultsCleared(Cause("clear every turn", "old results", frees, True), replaced)]


class ReveriePolicy(ReplayPolicy):
    """Layers 1, 2 and 4, the breakpoints and the pings, as a live session runs them.

    ``cache`` has the token count of the last possible compaction. Results that the provider clears are cleared here
    in its place. Without ``compact`` there is no compaction, so that those of a recording stay.
    """

    def __init__(
        self,
        *,
        trim: TrimPolicy | None = None,
        offload: OffloadPolicy | None = None,
        cache: CachePlan,
        name: str = "reverie",
        compact: CompactionRule | None = None,
        keep_warm: bool = False,
        shared: SharedWork | None = None,
    ) -> None:
        super().__init__(name=name)
        self._cache = cache
        self._keep_warm = keep_warm
        self.trimmer = Trimmer(trim or TrimPolicy(), self._cache)
        self.trimmer.summary_at = compact.summary_at if compact is not None else 0
        self._offload = offload or OffloadPolicy()
        self._store = ResultStore(InMemoryStorage(), "replay")
        if compact is not None:
            self.compactions = ReplayCompactions(compact, at=cache.compact_at, cache=cache, shared=shared)

    def arrived(self, view: View, entry: Entry) -> list[Decision]:
        """Run layer 1 on each result of a new entry, storing big results in memory, and return the decisions."""
        decisions: list[Decision] = []
        if entry.kind != USER or entry.message is None:
            return decisions
        for block in as_blocks(entry.message):
            use = view.tool_call(block["tool_use_id"]) if block["type"] == "tool_result" else None
            if use is not None:
                called, content = block["tool_use_id"], block.get("content") or ""
                applied = offload_result(self._store, use.name, called, content, self._offload, view)
                decisions += applied.before
        return decisions

    def prepare(self, view: View, step: RecordedRequest) -> list[Decision]:
        """Run layer 1 on the results of one message together, then layer 4 or layer 2, and return the decisions."""
        together = offload_aggregate(self._store, view, self._offload).before
        due = super().prepare(view, step)
        if due:
            self.hidden_tokens = 0
            return [*together, *due]
        planned = self.trimmer.plan(view, step.at)
        if isinstance(planned, BoundaryPlan):
            planned = planned.as_trim()
            self.hidden_tokens += planned.decision.cause.frees
        if isinstance(planned, TrimPlan):
            self.trimmer.record(planned.decision)
            planned = planned.decision
        return [*together, *([planned] if planned is not None else ())]

    def mark(self, view: View, messages: list[Any], step: RecordedRequest) -> BreakpointPlan | None:
        """Return breakpoints placed as a live session places them."""
        return self._cache.mark(view, messages, step.at)

    def billed(self, view: View, usage: Usage) -> None:
        """Add a request's bill to the cost of carrying the window."""
        if self.compactions is not None:
            self._cache.billed(usage, self.compactions.compacted(view))

    def when_idle(self, view: View, now: float) -> list[Decision]:
        """Compact while the prefix is cached, if that is due by price and no result is awaited (C9)."""
        if not self._keep_warm or self.compactions is None or view.unanswered():
            return []
        due = self.compactions.due_when_idle(view, now)
        if due is None:
            return []
        self.hidden_tokens = 0
        return [due]

    def pings_again(self, view: View, pings: int) -> bool:
        """Say whether one more ping pays (C9)."""
        return self._keep_warm and pings < self._cache.max_pings()

    def pinged(self, view: View, now: float) -> None:
        """Count the cache as renewed, and the price of that as one of carrying the window."""
        compacted = self.compactions.compacted(view) if self.compactions is not None else None
        self._cache.pinged(now, compacted)
