"""The parts that decisions consist of: a cause, a replaced result, an image, an item of standing context."""

from __future__ import annotations

from ..values import record


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


@record
class SaidItem:
    """A saying of an item of standing context: a lead and its value, or only the lead."""

    key: str
    source: str
    """The name of the source that gave the item."""
    name: str
    """The item in a sentence, such as ``the date``."""
    value: str = ""
    digest: str = ""
    """The identity of the value: an item with another digest has changed."""
    lead: str = ""
    state: str = "said"
    """``said``, ``named`` (only the lead was said: how to read it), ``kept`` (an older saying of the same value is in
    view) or ``ended`` (it no longer holds)."""
    held: bool = False
    """Whether the log is the only place of the value, so that no source can say it again."""
    budget: str = "whole"
    shown_by: tuple[str, ...] = ()
    """The tool calls and log entries that show this value by themselves; it was said because one was not in view."""
    not_shown_by: tuple[str, ...] = ()
    """The tool calls that set the item before and show other values of it."""

    @property
    def text(self) -> str:
        """The text that the model read."""
        if self.state != "said":
            return self.lead
        return f"{self.lead}\n\n{self.value}" if self.lead else self.value
