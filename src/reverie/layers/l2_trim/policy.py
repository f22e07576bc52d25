"""Settings of layer 2: which results may be cleared, and when."""

from __future__ import annotations

from typing import Literal

from ...values import field, record

CLEARED = "[Old tool result content cleared]"


def _clearable() -> frozenset[str]:
    ours = ("Read", "Bash", "Grep", "Glob", "WebFetch", "Edit", "Write", "WebSearch")
    others = ("read", "bash", "grep", "glob", "find", "ls", "edit", "write", "web_search", "web_fetch")
    return frozenset((*ours, *others))


@record
class TrimPolicy:
    """Settings of layer 2: which tools' results may be cleared, when, and how many recent ones stay."""

    mode: Literal["auto", "client", "cache_edit", "provider", "off"] = "auto"
    """How results are cleared: ``auto`` by the provider where the model checks thinking and by us elsewhere,
    ``client`` by us, ``cache_edit`` by the provider's cache edits (by us on a cold cache), ``provider`` by the
    provider alone, or ``off`` not at all."""
    clearable: frozenset[str] = field(default_factory=_clearable)
    idle: bool = True
    """Clear whenever the cache is cold."""
    priced: bool = True
    """Clear whenever that saves money or the window is full, in the modes ``client`` and ``provider``."""
    live: bool = True
    """Clear on a live cache to save money; the preset decides."""
    keep_cold: int = 5
    keep_priced: int = 3
    forced_share: float = 0.1
    """With a full window, clear at any price if that frees this share of it."""
    keep_budget: int = 3
    budget_tokens: int = 40_000
    edit_above: int = 20
    edit_keep: int = 5
    need: float = 1 / 40
    """The chance that a cleared result is read again, before a session has its own history."""

    def may_clear(self, tool: str) -> bool:
        """Say whether results of this tool may be cleared; those of MCP tools may not."""
        return tool in self.clearable and not tool.startswith("mcp__")


def cleared_text(tool_use_id: str) -> str:
    """Return the text in place of a cleared result, with the handle by which it can be read back."""
    return f"{CLEARED} handle: {tool_use_id}"
