"""When the past becomes a summary, what is kept of it, and when to stop trying."""

from __future__ import annotations

from ...values import record

__all__ = ["CompactPolicy"]


@record
class CompactPolicy:
    """Settings of layer 4; in a small window every token count shrinks to its share (T8)."""

    wait_seconds: float = 15.0
    """How long a compaction waits for notes that are being written."""
    dead_after_seconds: float = 60.0
    """An update of the notes older than this counts as dead."""
    tail_tokens: int = 10_000
    tail_messages: int = 5
    tail_max_tokens: int = 40_000
    verbatim_tokens: int = 20_000
    """How much of the user's own words is repeated verbatim; older ones are named by handle."""
    handle_tokens: int = 1_000
    """How much the list of handles of older messages may take."""
    anchor_tokens: int = 4_000
    """How much the list of exact identifiers may take."""
    notes_section_tokens: int = 2_000
    notes_tokens: int = 12_000
    """How much of the notes enters the summary, a section and in all."""
    summary_tokens: int = 20_000
    """How long a model's summary may be."""
    summary_seconds: float = 300.0
    """How long a model may take over it."""
    restore_files: int = 5
    restore_file_tokens: int = 5_000
    restore_files_tokens: int = 50_000
    restore_skill_tokens: int = 5_000
    restore_skills_tokens: int = 25_000
    least_freed: float = 0.25
    """A compaction that frees less than this share is not applied."""
    failures: int = 3
    """So many failures, or compactions that filled again at once, stop automatic compaction."""
    refill_turns: int = 3
    half_open_seconds: float = 300.0
    probes: int = 3
    retries: int = 3
    """How often a summary request that is itself too long is cut and tried again."""
    compact_when_cold: bool = True
    """Compact before the threshold where the provider's cache is gone and that pays."""
    cold_share: float = 0.6
    """Only a window that holds this share of the threshold, after trimming, is worth compacting early."""
    cold_need: float = 0.5
    """How much of what leaves is taken to be read back, where compacting early is priced."""
    cold_margin: float = 1.5
    """What it saves must be so many times what it costs."""
    collapse_at: float = 0.90
    collapse_blocks_at: float = 0.95
