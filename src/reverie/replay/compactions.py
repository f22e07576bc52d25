"""Compactions of a replay: when one is due, its decision, and the price of its summary."""

from __future__ import annotations

from ..cache.economics import RelativeRates
from ..conversation.decisions import Compacted
from ..conversation.view import View
from ..errors import CompactionError
from ..layers.l3_notes import Activity
from ..layers.l4_compact import (
    CompactionCause,
    CompactionText,
    CompactPolicy,
    CutRange,
    SummaryBudget,
    UserMessages,
    compacted_tokens,
    compaction,
    cut_range_before_tail,
    expected_compaction,
    summary_budget,
)
from ..runtime.session.cache_plan import CachePlan
from ..runtime.session.compact.summary import notes_summary
from ..values import record
from .recording import SharedWork


@record
class CompactionRule:
    """The settings of layer 4, the window without the room for output, and the patience of compaction by price."""

    policy: CompactPolicy
    effective: int
    patience: float = 0.0
    summary_at: int = 0
    """The token count at which the provider is asked for a summary; 0 if it never is."""


class ReplayCompactions:
    """Compacts a replayed session as a live one does, with the local note-taker's summary."""

    def __init__(
        self, rule: CompactionRule, *, at: int, cache: CachePlan | None = None, shared: SharedWork | None = None
    ) -> None:
        """Compact at ``at`` tokens, and with a cache plan also by price; ``shared`` is the recording's."""
        self._policy, self._effective, self._patience = rule.policy, rule.effective, rule.patience
        self._cache = cache
        self._budget = summary_budget(rule.policy, rule.effective)
        self._at = at
        self._summaries = shared.summaries if shared is not None else {}
        self._activity = Activity(shared.utterances if shared is not None else None)
        self._spoken = UserMessages()
        self._made = 0

    def compacted(self, view: View) -> int:
        """Return the size in tokens that a compaction is expected to leave."""
        return compacted_tokens(view, self._policy, self._effective)

    def due(self, view: View, now: float) -> Compacted | None:
        """Return the compaction that is due before a request; None if there is none."""
        is_full = view.token_count.tokens >= self._at
        reason = "the window is nearly full" if is_full else self.price_reason(view, now)
        return self._decision(view, reason) if reason else None

    def due_when_idle(self, view: View, now: float) -> Compacted | None:
        """Return the compaction that is due by price while the session is idle; None if there is none."""
        reason = self.price_reason(view, now)
        return self._decision(view, reason) if reason else None

    def price_reason(self, view: View, now: float) -> str:
        """Return the reason to compact by price; empty if it does not pay yet."""
        cache = self._cache
        if not self._patience or cache is None or cache.placed is None:
            return ""
        live = cache.live_tokens(view, now)
        option = expected_compaction(view, self._policy, self._effective, live=live, calls=1, rates=cache.paid_rates)
        verdict = cache.compaction_due(view, option, self._patience)
        return verdict.reason if verdict.act else ""

    def _decision(self, view: View, reason: str) -> Compacted | None:
        """Return the compaction of a view; None if there is nothing to compact."""
        room = self._budget.beside(self._spoken.follow(view))
        try:
            taking = cut_range_before_tail(view, room.tail)
        except CompactionError:
            return None
        self._made += 1
        cause = CompactionCause("auto", reason, f"cut-{self._made:012x}")  # as long as that of a live session
        text = self._summary(view, taking, room)
        made, _ = compaction(view, taking, text, room, cause, spoken=self._spoken)
        return made

    def _summary(self, view: View, taking: CutRange, room: SummaryBudget) -> CompactionText:
        """Return the summary of a range; it is made of the log alone, so that it may be another policy's."""
        cut = {item.uuid for item in taking.cut}
        key = (taking.items[-1].uuid, room, tuple(one.uuid for one in taking.items if one.uuid not in cut))
        if key not in self._summaries:
            self._summaries[key] = notes_summary(self._activity.follow(view), taking, room)
        return self._summaries[key]


class BreakEvenCompactions(ReplayCompactions):
    """Compacts when the requests to come would pay for it and for the rest of the last one (SoL-Pi's rule).

    As many requests are expected as there were so far. A second compaction needs half as much again.
    """

    def __init__(self, rule: CompactionRule, *, at: int, rates: RelativeRates, shared: SharedWork) -> None:
        super().__init__(rule, at=at, shared=shared)
        self._rates = rates
        self._debt = 0.0
        self._requests = 0

    def price_reason(self, view: View, now: float) -> str:
        """Return the reason to compact; empty if the requests to come would not pay for it."""
        self._requests += 1
        after = self.compacted(view)
        saved = view.token_count.tokens - after
        again = after * (self._rates.write_5m / self._rates.read - 1)
        margin = 1.5 if self._made else 1.0
        if saved <= 0 or margin * (self._debt + again) / saved > self._requests:
            self._debt = max(0.0, self._debt - max(0, saved))
            return ""
        self._debt += again
        return "the requests to come pay for it"
