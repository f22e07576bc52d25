"""Layer 3, notes: a running summary of this session, kept as the work goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .activity import Gathered
    from .apply import directive, edited, projection_of, template_of
    from .local import Budget, take_notes
    from .plan import Limits, covered_by, due, enough_tokens, limits_of, worth_logging
    from .policy import NotesPolicy
    from .sections import (
        CURRENT,
        HEADINGS,
        Notes,
        Template,
        changed_sections,
        fitted,
        overs,
        parse_notes,
        render_notes,
    )
    from .skill import render_skill, skill_of, words_since_compaction

__all__ = [
    "CURRENT",
    "HEADINGS",
    "Budget",
    "Gathered",
    "Limits",
    "Notes",
    "NotesPolicy",
    "Template",
    "changed_sections",
    "covered_by",
    "directive",
    "due",
    "edited",
    "enough_tokens",
    "fitted",
    "limits_of",
    "overs",
    "parse_notes",
    "projection_of",
    "render_notes",
    "render_skill",
    "skill_of",
    "take_notes",
    "template_of",
    "words_since_compaction",
    "worth_logging",
]

__getattr__ = lazily(
    __name__,
    {
        "activity": ("Gathered",),
        "apply": (
            "directive",
            "edited",
            "projection_of",
            "template_of",
        ),
        "local": (
            "Budget",
            "take_notes",
        ),
        "plan": (
            "Limits",
            "covered_by",
            "due",
            "enough_tokens",
            "limits_of",
            "worth_logging",
        ),
        "policy": ("NotesPolicy",),
        "sections": (
            "CURRENT",
            "HEADINGS",
            "Notes",
            "Template",
            "changed_sections",
            "fitted",
            "overs",
            "parse_notes",
            "render_notes",
        ),
        "skill": (
            "render_skill",
            "skill_of",
            "words_since_compaction",
        ),
    },
)
