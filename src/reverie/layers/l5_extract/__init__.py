"""Layer 5, extract: what is worth keeping beyond this session, written as memories."""

from __future__ import annotations

from .local import Candidate, Local, extract
from .policy import ExtractPolicy

__all__ = ["Candidate", "ExtractPolicy", "Local", "extract"]
