"""Layer 3, notes: a running summary of this session, kept as the work goes on."""

from __future__ import annotations

from .policy import NotesPolicy

__all__ = ["NotesPolicy"]
