"""Layer 5, extract: save facts that matter beyond this session as memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .existing_memories import ExistingMemories
    from .gate import has_new_prose
    from .local import MemoryCandidate, extract
    from .plan import CURSOR, IMPORTED, ExtractionStep, after_cursor, extraction_step, imported_upto, wrote_memories
    from .policy import ExtractPolicy
    from .prompts import MemoryProposal, directive, proposals_in
    from .provenance import Witnesses
    from .repetition import Embed, PastSayings, RepeatedWish
    from .sayings import TypedMessage, sayings_of

__all__ = [
    "CURSOR",
    "IMPORTED",
    "Embed",
    "ExistingMemories",
    "ExtractPolicy",
    "ExtractionStep",
    "MemoryCandidate",
    "MemoryProposal",
    "PastSayings",
    "RepeatedWish",
    "TypedMessage",
    "Witnesses",
    "after_cursor",
    "directive",
    "extract",
    "extraction_step",
    "has_new_prose",
    "imported_upto",
    "proposals_in",
    "sayings_of",
    "wrote_memories",
]

__getattr__ = lazily(
    __name__,
    {
        "prompts": (
            "MemoryProposal",
            "proposals_in",
            "directive",
        ),
        "existing_memories": ("ExistingMemories",),
        "local": (
            "MemoryCandidate",
            "extract",
        ),
        "plan": (
            "CURSOR",
            "IMPORTED",
            "ExtractionStep",
            "after_cursor",
            "imported_upto",
            "extraction_step",
            "wrote_memories",
        ),
        "gate": ("has_new_prose",),
        "policy": ("ExtractPolicy",),
        "provenance": ("Witnesses",),
        "repetition": ("Embed", "PastSayings", "RepeatedWish"),
        "sayings": ("TypedMessage", "sayings_of"),
    },
)
