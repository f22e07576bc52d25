"""Layer 1, offload: big tool results move to disk and a preview stays.

When it runs: on every tool result before it enters the view, and once more on all results of a message before that is
first sent. What it costs: disk, no model. What it does to the prefix: nothing, since it decides only on bytes that were
never sent, and what it decided stands. Where the disk fails the result passes whole and the caller is told why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .content import Content, Output, ResultForms, result_forms, text_of
    from .duplicates import SeenResults
    from .offload import OffloadResult, ResultStore, offload_aggregate, offload_result, read_stored
    from .plan import Aggregate, Duplicate, KeepResult, Offload, Placeholder, Plan, plan_aggregate, plan_result
    from .policy import OffloadPolicy, limit_chars

__all__ = [
    "Aggregate",
    "Content",
    "Duplicate",
    "KeepResult",
    "Offload",
    "OffloadPolicy",
    "OffloadResult",
    "Output",
    "Placeholder",
    "Plan",
    "ResultForms",
    "ResultStore",
    "SeenResults",
    "limit_chars",
    "offload_aggregate",
    "offload_result",
    "plan_aggregate",
    "plan_result",
    "read_stored",
    "result_forms",
    "text_of",
]

__getattr__ = lazily(
    __name__,
    {
        "offload": (
            "OffloadResult",
            "ResultStore",
            "offload_aggregate",
            "offload_result",
            "read_stored",
        ),
        "content": (
            "Content",
            "ResultForms",
            "Output",
            "result_forms",
            "text_of",
        ),
        "duplicates": ("SeenResults",),
        "plan": (
            "Aggregate",
            "Duplicate",
            "KeepResult",
            "Offload",
            "Placeholder",
            "Plan",
            "plan_aggregate",
            "plan_result",
        ),
        "policy": (
            "OffloadPolicy",
            "limit_chars",
        ),
    },
)
