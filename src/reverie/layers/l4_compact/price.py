"""The sizes and the price of a compaction that is not written yet (L4.18)."""

from __future__ import annotations

from ...cache.economics import Compaction, RelativeRates, call_price
from ...conversation.view import View
from .plan import summary_budget
from .policy import CompactPolicy

__all__ = ["compacted_tokens", "expected_compaction"]


def compacted_tokens(view: View, policy: CompactPolicy, effective: int) -> int:
    """Return the size in tokens that a compaction of a view would leave: prefix, summary and kept messages."""
    budget = summary_budget(policy, effective)
    return round(view.token_count.overhead) + min(policy.expected_tokens, budget.text) + budget.tail.tokens


def expected_compaction(
    view: View,
    policy: CompactPolicy,
    effective: int,
    *,
    is_live: bool,
    calls: int,
    rates: RelativeRates,
    lost_thinking: int = 0,
) -> Compaction:
    """Return a compaction of a view as it may be expected, with the price of the ``calls`` that write its summary."""
    window, after = view.token_count.tokens, compacted_tokens(view, policy, effective)
    live = window if is_live else 0
    call = calls * call_price(window, live=live, output=policy.expected_tokens, rates=rates)
    return Compaction(window, min(after, window), live, round(view.token_count.overhead), call, lost_thinking)
