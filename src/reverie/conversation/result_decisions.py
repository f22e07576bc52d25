"""The decisions about tool results and images: offloaded, cleared, restored, dropped (layers 1 and 2)."""

from __future__ import annotations

from ..values import field, record
from .causes import Cause, Image, Replacement


@record
class ResultOffloaded:
    """A large tool result was moved to a file; the view shows a preview."""

    cause: Cause
    tool_use_id: str
    text: str
    path: str
    sha256: str
    size: int
    media: str = "text"


@record
class ResultsKept:
    """These tool results are never offloaded with their message; trimming and compaction may still remove them."""

    cause: Cause
    tool_use_ids: list[str]


@record
class ResultsCleared:
    """Old tool results were replaced by short texts; each can be read again by its handle."""

    cause: Cause
    cleared: list[Replacement]


@record
class ClearingBoundaryMoved:
    """From here on the provider leaves the results of all calls up to ``upto`` out of every request."""

    cause: Cause
    upto: str
    """The last call whose result is left out; the calls of one reply are left out or kept together."""
    excluded: list[str] = field(default_factory=lambda: [])
    """The tools whose results stay."""
    results: int = 0
    """How many results that were shown before are left out."""


@record
class ResultsClearedByProvider:
    """The provider left these tool results out of a request; every request still contains them."""

    cause: Cause
    tool_use_ids: list[str]
    """The results that it left out for the first time."""
    text: str = ""
    """The line that names their handles to the model."""
    tokens: int = 0
    """The input tokens of everything that it left out of this request."""
    count: int = 0
    """The number of results that it says it left out of this request."""
    computed: int = 0
    """The number of results that its rule leaves out by our calculation."""
    shown_again: list[str] = field(default_factory=lambda: [])


@record
class ResultsRestored:
    """Cleared tool results are shown in full again."""

    cause: Cause
    tool_use_ids: list[str]


@record
class ResultStubbed:
    """A tool result never arrived; the view shows ``text`` in its place, as an error."""

    cause: Cause
    tool_use_id: str
    text: str


@record
class ImagesDropped:
    """Images were removed from the view; ``text`` is shown in place of each."""

    cause: Cause
    images: list[Image]
    text: str


@record
class CacheEdits:
    """Tool results were deleted from the provider's cached prefix; ``anchor`` is the message the edit follows."""

    cause: Cause
    tool_use_ids: list[str]
    anchor: str
