"""Layer 3, notes: a running summary of this session, kept as the work goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .gathered import Gathered
    from .local import Budget, take_notes
    from .policy import NotesPolicy
    from .sections import HEADINGS, Notes, Template, changed_sections, fitted, overs, parse_notes, render_notes

__all__ = [
    "HEADINGS",
    "Budget",
    "Gathered",
    "Notes",
    "NotesPolicy",
    "Template",
    "changed_sections",
    "fitted",
    "overs",
    "parse_notes",
    "render_notes",
    "take_notes",
]

__getattr__ = lazily(
    __name__,
    {
        "gathered": ("Gathered",),
        "local": ("Budget", "take_notes"),
        "policy": ("NotesPolicy",),
        "sections": (
            "HEADINGS",
            "Notes",
            "Template",
            "changed_sections",
            "fitted",
            "overs",
            "parse_notes",
            "render_notes",
        ),
    },
)
