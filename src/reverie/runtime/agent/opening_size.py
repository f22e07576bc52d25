"""The size of an agent's opening, which every request carries, against its window."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, Final

from ...conversation.tokens.estimate import estimate_request
from ...conversation.tokens.window import Thresholds
from ...errors import WindowFull

_CONVERSATION: Final = 0.25
"""The share of the effective window that a summary and the newest messages need beside the opening."""
_OPENING: Final = 0.54
"""The share of a small window that the opening may take: all of it but the output reserve and the conversation."""


def check_opening(at: Thresholds, *, model: str, system: str, tools: Sequence[dict[str, Any]], context: str) -> None:
    """Raise ``WindowFull`` if a window cannot hold system prompt, tools, context and a short conversation."""
    parts = {
        "system prompt": estimate_request([], system=system),
        "tools": estimate_request([], tools=list(tools)),
        "context": estimate_request([{"role": "user", "content": context}]) if context else 0,
    }
    tokens = sum(parts.values())
    if tokens + int(_CONVERSATION * at.effective) < at.blocking:
        return
    least = ceil(tokens / _OPENING / 1_000) * 1_000
    sizes = ", ".join(f"{name} {size:,}" for name, size in parts.items())
    raise WindowFull(
        f"the agent's opening needs about {tokens:,} tokens ({sizes}), too many for a conversation in the window of "
        f"{model}, {at.window:,}: use a model with at least {least:,}, fewer tools, a shorter system prompt or shorter "
        "instruction files",
        tokens=tokens,
        limit=at.blocking,
    )
