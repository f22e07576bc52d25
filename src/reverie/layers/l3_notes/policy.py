"""Settings of layer 3: when notes are updated, and their size."""

from __future__ import annotations

from ...values import record


@record
class NotesPolicy:
    """Settings of layer 3: when notes are updated, and their size; in a small window token counts shrink (T8)."""

    start_tokens: int = 10_000
    step_tokens: int = 5_000
    step_calls: int = 3
    section_tokens: int = 2_000
    total_tokens: int = 12_000
    template_file: str = ""
    """Path of a Markdown file that replaces our template; empty for ours."""
    prompt_file: str = ""
    """Path of a Markdown file that replaces our prompt for updating notes; empty for ours."""
