"""When notes are brought up to date, and how large they may be."""

from __future__ import annotations

from ...values import record

__all__ = ["NotesPolicy"]


@record
class NotesPolicy:
    """Settings of layer 3; in a small window every token count shrinks to its share (T8)."""

    start_tokens: int = 10_000
    step_tokens: int = 5_000
    step_calls: int = 3
    section_tokens: int = 2_000
    total_tokens: int = 12_000
    template_file: str = ""
    """A Markdown file in place of our template."""
    prompt_file: str = ""
    """A Markdown file in place of our directive to the note-taking model."""
