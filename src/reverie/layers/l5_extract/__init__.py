"""Layer 5, extract: save facts that matter beyond this session as memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily_from

# pyright: reportUnusedImport=false
if TYPE_CHECKING:
    from .existing_memories import ExistingMemories
    from .gate import has_new_prose
    from .local import MemoryCandidate, extract
    from .paraphrases import Embed
    from .plan import CURSOR, IMPORTED, ExtractionStep, after_cursor, extraction_step, imported_upto, wrote_memories
    from .policy import ExtractPolicy
    from .prompts import MemoryProposal, directive, proposals_in, reference_sentences
    from .provenance import Witnesses
    from .repetition import PastSayings, RepeatedWish
    from .sayings import TypedMessage, sayings_of

__getattr__ = lazily_from(
    __name__,
    "policy",
    "gate",
    "sayings",
    "plan",
    "prompts",
    "provenance",
    "existing_memories",
    "paraphrases",
    "repetition",
    "local",
)
