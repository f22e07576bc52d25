"""Settings of layer 4: when to compact, how much to keep, and when to stop trying."""

from __future__ import annotations

from ...model_facts import ModelFacts
from ...values import record


@record
class CompactPolicy:
    """Settings of layer 4: when to compact, the budgets of each part (smaller in a small window, T8), retries."""

    wait_seconds: float = 15.0
    """How long a compaction waits for a notes update that is running."""
    dead_after_seconds: float = 60.0
    """A notes update older than this counts as dead."""
    tail_tokens: int = 10_000
    tail_messages: int = 5
    tail_max_tokens: int = 40_000
    verbatim_tokens: int = 6_000
    """Token budget for verbatim user messages; others are listed by handle."""
    handle_tokens: int = 500
    """Token budget for the list of handles of older messages."""
    anchor_tokens: int = 1_500
    """Token budget for the list of exact names."""
    notes_section_tokens: int = 2_000
    notes_tokens: int = 12_000
    """Token budgets for notes in the summary: per section and in total."""
    text_tokens: int = 12_000
    """Token budget for a summary from notes as a whole; the notes get the rest beside user messages and names."""
    expected_tokens: int = 6_000
    """The size of a summary that the price of a compaction assumes."""
    summary_tokens: int = 20_000
    """Token limit of a model's summary."""
    summary_seconds: float = 300.0
    """Time limit for a model's summary."""
    restore_files: int = 5
    restore_file_tokens: int = 5_000
    restore_files_tokens: int = 50_000
    restore_skill_tokens: int = 5_000
    restore_skills_tokens: int = 25_000
    least_freed: float = 0.25
    """A compaction that frees less than this share is not applied."""
    failures: int = 3
    """This many failures, or compactions after which the window filled at once, stop automatic compaction."""
    refill_turns: int = 3
    half_open_seconds: float = 300.0
    probes: int = 3
    retries: int = 3
    """How often a summary request that is too long is shortened and tried again."""
    by_provider: bool | None = None
    """Let the provider write the summary where it offers that; None: on models that check thinking."""
    in_background: bool = True
    """Let the provider write its summary while the conversation goes on, where it offers that."""
    patience: float = 3.0
    """Compact when carrying the window has cost this many times the price of compacting; 0: never by price."""
    collapse_at: float = 0.90
    collapse_blocks_at: float = 0.95

    def prefers_provider(self, facts: ModelFacts) -> bool:
        """Say whether the provider should write the summaries of a model's conversation."""
        wanted = facts.checks_thinking if self.by_provider is None else self.by_provider
        return wanted and facts.compaction
