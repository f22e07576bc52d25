"""Layer 2, trim: old tool results leave the view before a call.

When it runs: every turn, before the request. What it costs: nothing but arithmetic; when it acts on a live cache, the
rewriting of what follows the first change, which it prices first. What it does to the prefix: a priced clearing moves
it, by a logged decision; one on a cold cache moves nothing that is still there. Every cleared result leaves a handle by
which it can be read back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .candidates import ClearableResult, TrimCandidates
    from .plan import STUB_TOKENS, TrimFacts, TrimPlan, plan_budget, plan_cache_edit, plan_trim, provider_edits
    from .policy import CLEARED, TrimPolicy, cleared_text

__all__ = [
    "CLEARED",
    "STUB_TOKENS",
    "ClearableResult",
    "TrimCandidates",
    "TrimFacts",
    "TrimPlan",
    "TrimPolicy",
    "cleared_text",
    "plan_budget",
    "plan_cache_edit",
    "plan_trim",
    "provider_edits",
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
            "provider_edits",
        ),
        "policy": (
            "CLEARED",
            "TrimPolicy",
            "cleared_text",
        ),
    },
)
