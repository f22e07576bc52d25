"""When memories are taken from a conversation, and what that may cost."""

from __future__ import annotations

from ...values import record

__all__ = ["ExtractPolicy"]


@record
class ExtractPolicy:
    """Settings of layer 5."""

    every_turns: int = 1
    """Look after every so many completed queries."""
    max_turns: int = 5
    """Turns a model may take in one run: reads together first, then writes together."""
    max_tokens: int = 4_000
    """Output tokens of one turn of a run."""
    max_memories: int = 20
    """Memories that one run may write."""
    max_chars: int = 8_000
    """Characters of one memory that a model writes."""
    manifest_files: int = 200
    """Memories that the directive lists, newest first."""
    daily_tokens: int = 5_000_000
    """Tokens, read from the cache or not, that all runs of a day may use."""
    daily_usd: float = 2.0
    timeout_seconds: float = 180.0
    """How long one run by a model may take before the local extractor does it."""
    close_seconds: float = 60.0
    """How long running work is waited for when the session is closed."""
