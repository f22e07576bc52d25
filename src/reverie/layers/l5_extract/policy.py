"""Settings of layer 5: when to extract memories, and at which cost."""

from __future__ import annotations

from ...values import record


@record
class ExtractPolicy:
    """Settings of layer 5: how often memories are extracted, and the limits of a run."""

    every_turns: int = 1
    """Extract after this many completed queries."""
    max_turns: int = 5
    """The most turns of a model in one run: one for all reads, then one for all writes."""
    max_tokens: int = 4_000
    """The most output tokens in one turn."""
    max_memories: int = 20
    """The most memories that one run may write."""
    max_chars: int = 8_000
    """The most characters in one memory that a model writes."""
    manifest_files: int = 200
    """The most memories listed in the prompt, newest first."""
    daily_tokens: int = 5_000_000
    """The most tokens, cached or not, that all runs of a day may use."""
    daily_usd: float = 2.0
    timeout_seconds: float = 180.0
    """The time limit of a run by a model; after it the local extractor runs."""
    close_seconds: float = 60.0
    """How long closing a session waits for a run in progress."""
