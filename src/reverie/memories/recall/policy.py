"""How much is recalled at a time, and in a session."""

from __future__ import annotations

from ...values import record

__all__ = ["RecallPolicy"]


@record
class RecallPolicy:
    """How much is recalled."""

    most: int = 5
    """Memories chosen at a time."""
    manifest_files: int = 200
    answer_tokens: int = 256
    model_seconds: float = 10.0
    """How long a model may take to choose."""
    wait_seconds: float = 2.0
    """How long a turn waits for a choice that is still being made."""
    file_lines: int = 200
    file_bytes: int = 4_096
    session_bytes: int = 61_440
    min_strength: float = 1.0
    """What the words found must tell together where search chooses; a word that no other memory has tells 1."""
