"""Settings of recall: how much is shown at a time and in a session."""

from __future__ import annotations

from ...values import record


@record
class RecallPolicy:
    """Settings of recall: how many memories are chosen, by which limits, and how much of them is shown."""

    most: int = 5
    """The most memories chosen at a time."""
    manifest_files: int = 200
    answer_tokens: int = 256
    model_seconds: float = 10.0
    """The time limit for a model's choice."""
    wait_seconds: float = 2.0
    """How long a turn waits for a choice in progress."""
    file_lines: int = 200
    file_bytes: int = 4_096
    session_bytes: int = 61_440
    min_share: float = 0.5
    """The least share of a sentence that the words of a memory to be shown unasked make up, rare words weighing more.

    It needs three such words, or two of ``min_strength``."""
    min_strength: float = 1.5
    """The least strength of two words; a word that no other memory has adds 1, and one that many have adds less."""
    min_passage_strength: float = 3.5
    """The least strength of the words in a passage of about 500 characters, if no other memory has half of it there."""
    min_certainty: float = 0.32
    """The least certainty to show a memory unasked by its meaning.

    It is the likeness less half of the nearest other memory's, plus half of the prompt's specificity."""
