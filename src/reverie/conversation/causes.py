"""The parts that decisions consist of: a cause, a replaced result, an image."""

from __future__ import annotations

from ..values import record

__all__ = ["Cause", "Image", "Replacement"]


@record
class Cause:
    """The layer that made a decision, its reason, and its effect on the tokens and the cache."""

    layer: str
    reason: str
    frees: int = 0
    """Tokens that leave the view."""
    moves_prefix: bool = False
    """Whether the decision changes the cached prefix, so that the next call misses the cache."""


@record
class Replacement:
    """The new text of a tool result, the handle that reads the old text, and the old text's tokens."""

    tool_use_id: str
    text: str
    handle: str = ""
    tokens: int = 0


@record
class Image:
    """An image of a message, by its position among the message's images."""

    message: str
    ordinal: int
