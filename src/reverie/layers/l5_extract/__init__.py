"""Layer 5, extract: what is worth keeping beyond this session, written as memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .local import Candidate, Local, extract
    from .policy import ExtractPolicy

__all__ = ["Candidate", "ExtractPolicy", "Local", "extract"]

__getattr__ = lazily(
    __name__,
    {
        "local": ("Candidate", "Local", "extract"),
        "policy": ("ExtractPolicy",),
    },
)
