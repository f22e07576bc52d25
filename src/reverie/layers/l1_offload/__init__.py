"""Layer 1, offload: big tool results move to disk, and a preview stays in the view.

It runs on every tool result before the result enters the view, and once more on all results of a message before the
message is first sent. It costs disk space and no model call. It never changes the cached prefix: it decides only on
bytes that were never sent, and a decision is final. If the disk fails, the full result stays in the view and the caller
gets the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .content import Content, Output, ResultForms, result_forms, text_of
    from .duplicates import SeenResults
    from .images import CheckedImage, Scale, check_document, check_image
    from .offload import OffloadResult, ResultStore, offload_aggregate, offload_result, read_stored
    from .plan import Aggregate, Duplicate, KeepResult, Offload, Placeholder, Plan, plan_aggregate, plan_result
    from .policy import OffloadPolicy, fitted_policy, limit_chars

__all__ = [
    "Aggregate",
    "CheckedImage",
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
    "Scale",
    "SeenResults",
    "check_document",
    "check_image",
    "fitted_policy",
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
        "images": ("CheckedImage", "Scale", "check_document", "check_image"),
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
            "fitted_policy",
            "limit_chars",
        ),
    },
)
