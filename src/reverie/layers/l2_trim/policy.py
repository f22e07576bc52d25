"""What trimming may touch, and the numbers it goes by."""

from __future__ import annotations

from typing import Literal

from ...values import field, record

__all__ = ["CLEARED", "TrimPolicy", "cleared_text"]

CLEARED = "[Old tool result content cleared]"


def _clearable() -> frozenset[str]:
    ours = ("Read", "Bash", "Grep", "Glob", "WebFetch", "Edit", "Write", "WebSearch")
    others = ("read", "bash", "grep", "glob", "find", "ls", "edit", "write", "web_search", "web_fetch")
    return frozenset((*ours, *others))


@record
class TrimPolicy:
    """Settings of layer 2."""

    mode: Literal["client", "cache_edit", "provider", "off"] = "client"
    """Who clears: this side; by cache edit where the provider can, and this side where its cache is cold; or the
    provider itself, and then nobody else."""
    clearable: frozenset[str] = field(default_factory=_clearable)
    idle: bool = True
    """Clear whenever the cache is cold."""
    priced: bool = True
    """Clear whenever it pays."""
    keep_cold: int = 5
    keep_priced: int = 3
    forced_share: float = 0.1
    """Where the window is full, clear at any price if that frees this share of it."""
    keep_budget: int = 3
    budget_tokens: int = 40_000
    edit_above: int = 20
    edit_keep: int = 5
    need: float = 1 / 40
    """The chance that a cleared result is wanted again, before a session has shown its own."""

    def may_clear(self, tool: str) -> bool:
        """Say whether results of this tool may be cleared; results of MCP tools never."""
        return tool in self.clearable and not tool.startswith("mcp__")


def cleared_text(tool_use_id: str) -> str:
    """Return what stands where a result was, with the handle by which it can be read back."""
    return f"{CLEARED} handle: {tool_use_id}"
