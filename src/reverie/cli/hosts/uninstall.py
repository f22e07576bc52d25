"""``reverie uninstall``: see ``install``, which defines both commands."""

from __future__ import annotations

from .install import remove as command

__all__ = ["command"]
