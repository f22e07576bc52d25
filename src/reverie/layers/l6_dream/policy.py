"""When memories are put in order, how far a dream may go, and what it may cost."""

from __future__ import annotations

from ...values import record

__all__ = ["DreamPolicy"]


@record
class DreamPolicy:
    """Settings of layer 6."""

    every_hours: float = 24.0
    """Hours between two dreams that begin by themselves."""
    scan_minutes: float = 10.0
    """Minutes between two looks at the sessions while the hours have passed and the sessions are too few."""
    min_sessions: int = 5
    """Sessions touched since the last dream, the current one left out."""
    max_turns: int = 30
    """Turns a model may take in one dream."""
    max_tokens: int = 8_000
    """Output tokens of one turn."""
    budget_tokens: int = 600_000
    """Tokens, read from the cache or not, that one dream may use."""
    budget_usd: float = 1.0
    timeout_seconds: float = 900.0
    """The time limit of one dream."""
    hung_minutes: float = 60.0
    """After so long a dream that still holds the lock is ended by whoever wants to dream next."""
    max_deleted_share: float = 0.10
    max_deleted_files: int = 3
    """Deletions without confirmation: at most this share, and at most so many files."""
    max_added_files: int = 20
    """New memories that one dream may add."""
    max_file_bytes: int = 64_000
    """The size of one memory file that a dream may leave."""
    similar: float = 0.8
    """The share of their words that two memories have in common before a person is asked, between 0 and 1."""
    kept_reports: int = 30
