"""Settings of layer 6: when a dream starts, how much it may change, and its cost."""

from __future__ import annotations

from ...values import record


@record
class DreamPolicy:
    """Settings of layer 6: when a dream starts, its cost limits, and the most it may change."""

    every_hours: float = 24.0
    """Hours between two automatic dreams."""
    scan_minutes: float = 10.0
    """Minutes between two scans of the sessions once the hours have passed and too few sessions were touched."""
    min_sessions: int = 5
    """Sessions, without the current one, that must be touched since the last dream."""
    max_turns: int = 30
    """The most turns of a model in one dream."""
    max_tokens: int = 8_000
    """The most output tokens in one turn."""
    budget_tokens: int = 600_000
    """The most tokens, cached or not, that one dream may use."""
    budget_usd: float = 1.0
    timeout_seconds: float = 900.0
    """The time limit of one dream."""
    hung_minutes: float = 60.0
    """After this time another process may end a dream that still holds the lock."""
    max_deleted_share: float = 0.10
    max_deleted_files: int = 3
    """Deletions without confirmation: at most this share, and at most this many files."""
    max_added_files: int = 20
    """The most memories that one dream may add."""
    max_file_bytes: int = 64_000
    """The largest memory file that a dream may write."""
    similar: float = 0.8
    """The share of common words from which two memories become a question, between 0 and 1."""
    kept_reports: int = 30

    def seconds_until_due(self, now: float, dreamt: float | None) -> float:
        """Return the seconds until the next dream may start; 0 if it may now or ``dreamt`` is in the future."""
        if dreamt is None or dreamt > now:
            return 0.0
        return max(0.0, dreamt + self.every_hours * 3_600.0 - now)
