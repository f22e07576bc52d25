"""The sizes and the price of a compaction that is not written yet (L4.18)."""

from __future__ import annotations

from ...cache.economics import Compaction, RelativeRates, call_price
from ...conversation.view import View
from .plan import summary_budget
from .policy import CompactPolicy


def compacted_tokens(view: View, policy: CompactPolicy, effective: int) -> int:
    """Return the size in tokens that a compaction of a view would leave: prefix, summary and kept messages."""
    budget = summary_budget(policy, effective)
    return round(view.token_count.overhead) + min(policy.expected_tokens, budget.text) + budget.tail.tokens


def expected_compaction(
    view: View,
    policy: CompactPolicy,
    effective: int,
    *,
    live: int,
    calls: int,
    rates: RelativeRates,
    lost_thinking: int = 0,
) -> Compaction:
    """Return a compaction of a view as it may be expected, with the price of the ``calls`` that write its summary.

    ``live`` are the tokens of the window that the cache still holds.
    """
    counted, after = view.token_count, compacted_tokens(view, policy, effective)
    window, prefix = counted.tokens, round(counted.overhead)
    live = min(live, window)
    # A request for a summary shows the results that the provider leaves out; its cache ends before the first of them.
    readable = min(live, prefix) if counted.cleared_tokens else live
    call = calls * call_price(counted.raw_tokens, live=readable, output=policy.expected_tokens, rates=rates)
    return Compaction(window, min(after, window), live, prefix, call, lost_thinking)
