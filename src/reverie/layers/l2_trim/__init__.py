"""Layer 2, trim: clear old tool results from the view before a call.

It runs every turn before the request and calls no model. Clearing while the cache is live makes the provider write the
rest of the prefix again; that cost is computed first. A priced clearing moves the prefix by a logged decision; clearing
on a cold cache moves nothing that is still cached. Each cleared result leaves a handle by which it can be read back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .candidates import ClearableResult, TrimCandidates
    from .plan import STUB_TOKENS, TrimFacts, TrimPlan, plan_budget, plan_cache_edit, plan_trim
    from .policy import CLEARED, TrimPolicy, cleared_text
    from .provider import ClearingRule, SentCall, clearing_option, payback_turns, provider_clearing, results_left_out

__all__ = [
    "CLEARED",
    "STUB_TOKENS",
    "ClearableResult",
    "ClearingRule",
    "SentCall",
    "TrimCandidates",
    "TrimFacts",
    "TrimPlan",
    "TrimPolicy",
    "cleared_text",
    "clearing_option",
    "payback_turns",
    "plan_budget",
    "plan_cache_edit",
    "plan_trim",
    "provider_clearing",
    "results_left_out",
]

__getattr__ = lazily(
    __name__,
    {
        "candidates": (
            "ClearableResult",
            "TrimCandidates",
        ),
        "plan": (
            "STUB_TOKENS",
            "TrimFacts",
            "TrimPlan",
            "plan_budget",
            "plan_cache_edit",
            "plan_trim",
        ),
        "policy": (
            "CLEARED",
            "TrimPolicy",
            "cleared_text",
        ),
        "provider": (
            "ClearingRule",
            "SentCall",
            "clearing_option",
            "payback_turns",
            "provider_clearing",
            "results_left_out",
        ),
    },
)
