"""Layer 4, compact: replace the past by a summary that can be read back and undone.

It runs before a request if the window is nearly full, or earlier when carrying it has cost more than compacting.
It costs nothing from notes, or one forked call. The prefix moves by a logged decision that holds the summary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily_from

# pyright: reportUnusedImport=false
if TYPE_CHECKING:
    from .anchors import exact_names
    from .loss import LossReport, LostName, loss_between, loss_of, loss_text, shown_text
    from .plan import (
        CompactionCause,
        CompactionText,
        SummaryBudget,
        compaction,
        cut_range_before_tail,
        cut_range_from,
        cut_range_up_to,
        round_cut_range,
        summary_budget,
    )
    from .policy import CompactPolicy
    from .price import compacted_tokens, expected_compaction
    from .provider import (
        MAX_INSTRUCTIONS,
        SignedSummary,
        parts_tool_changes,
        provider_compaction,
        provider_cut_range,
        provider_instructions,
    )
    from .smaller_cuts import plan_collapse, plan_snip
    from .summary import directive, may_draft, notes_text, summary_of
    from .summary_request import (
        dropped_rounds,
        fitted_messages,
        plain_messages,
        plain_request,
        shortened_messages,
    )
    from .tail import CutRange, tokens_of
    from .user_words import QuotedWords, UserMessages


__getattr__ = lazily_from(
    __name__,
    "policy",
    "anchors",
    "loss",
    "plan",
    "price",
    "provider",
    "smaller_cuts",
    "summary",
    "summary_request",
    "tail",
    "user_words",
)
