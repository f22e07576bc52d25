"""What an agent can do, one file a tool."""

from __future__ import annotations

from .tool import Access, Output, Tool

__all__ = ["Access", "Output", "Tool"]
