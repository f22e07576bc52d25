"""Layer 2, trim: clear old tool results from the view before a call.

It runs every turn before the request and calls no model. Clearing while the cache is live makes the provider write the
rest of the prefix again; that cost is computed first. A priced clearing moves the prefix by a logged decision; clearing
on a cold cache moves nothing that is still cached. Each cleared result leaves a handle by which it can be read back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily_from

# pyright: reportUnusedImport=false
if TYPE_CHECKING:
    from .candidates import STUB_TOKENS, ClearableResult, TrimCandidates
    from .plan import TrimFacts, TrimPlan, plan_budget, plan_cache_edit, plan_trim
    from .policy import TrimPolicy, cleared_text
    from .provider import BoundaryPlan, plan_boundary, provider_clearing, thinking_option


__getattr__ = lazily_from(__name__, "policy", "candidates", "plan", "provider")
