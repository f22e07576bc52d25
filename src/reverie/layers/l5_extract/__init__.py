"""Layer 5, extract: what is worth keeping beyond this session, written as memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .apply import Asked, asked_of, directive
    from .existing import ExistingMemories
    from .local import MAX_CANDIDATES, Candidate, Local, extract
    from .plan import CURSOR, IMPORTED, Looking, after_cursor, imported_upto, looking, wrote_memories
    from .policy import ExtractPolicy
    from .provenance import Witnesses

__all__ = [
    "CURSOR",
    "IMPORTED",
    "MAX_CANDIDATES",
    "Asked",
    "Candidate",
    "ExistingMemories",
    "ExtractPolicy",
    "Local",
    "Looking",
    "Witnesses",
    "after_cursor",
    "asked_of",
    "directive",
    "extract",
    "imported_upto",
    "looking",
    "wrote_memories",
]

__getattr__ = lazily(
    __name__,
    {
        "apply": (
            "Asked",
            "asked_of",
            "directive",
        ),
        "existing": ("ExistingMemories",),
        "local": (
            "Candidate",
            "Local",
            "MAX_CANDIDATES",
            "extract",
        ),
        "plan": (
            "CURSOR",
            "IMPORTED",
            "Looking",
            "after_cursor",
            "imported_upto",
            "looking",
            "wrote_memories",
        ),
        "policy": ("ExtractPolicy",),
        "provenance": ("Witnesses",),
    },
)
