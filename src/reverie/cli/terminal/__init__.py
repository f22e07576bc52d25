"""The user interface of ``reverie chat``: interactive, plain lines, or one printed answer."""

from __future__ import annotations

__all__: list[str] = []
