"""Layer 4, compact: the past becomes a summary that can be read back and undone."""

from __future__ import annotations

from .policy import CompactPolicy

__all__ = ["CompactPolicy"]
