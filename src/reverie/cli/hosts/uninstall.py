"""``reverie uninstall``: the way back from ``reverie install``."""

from __future__ import annotations

from .install import remove as command

__all__ = ["command"]
