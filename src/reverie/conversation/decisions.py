"""The closed union of decisions: what layers do to the view, as data.

A decision once logged stands. Each names its layer and reason, the tokens it frees and whether it moves the
cached prefix, and carries the exact text it puts into the view, so that every request can be rebuilt from the
log alone, whatever today's code and settings would decide.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, get_args

import msgspec

from ..values import field, fields_of, record

__all__ = [
    "DECISIONS",
    "AgentFinished",
    "AgentSpawned",
    "CacheEdits",
    "CallRecorded",
    "Cause",
    "Collapsed",
    "Compacted",
    "CompactionFailed",
    "CompactionUndone",
    "CursorMoved",
    "Decision",
    "Image",
    "ImagesDropped",
    "InstructionsAttached",
    "MemoriesExtracted",
    "MemoriesSurfaced",
    "MessageQueued",
    "NotesUpdated",
    "Pinned",
    "PrefixRendered",
    "Replacement",
    "ResultOffloaded",
    "ResultStubbed",
    "ResultsCleared",
    "ResultsKept",
    "ResultsRestored",
    "Snipped",
    "Unknown",
    "body_of",
    "decision_of",
    "name_of",
]


@record
class Cause:
    """Who decided, why, and what it does to the bill."""

    layer: str
    reason: str
    frees: int = 0
    moves_prefix: bool = False


@record
class Replacement:
    """A tool result's new text, and the handle by which the old one can be read back."""

    tool_use_id: str
    text: str
    handle: str = ""
    tokens: int = 0


@record
class Image:
    """An image in a message, counted from the message's start."""

    message: str
    ordinal: int


@record
class PrefixRendered:
    """System prompt, tools, model and options as they were sent from here on."""

    cause: Cause
    model: str
    system: Any = None
    tools: list[dict[str, Any]] = field(default_factory=lambda: [])
    options: dict[str, Any] = field(default_factory=lambda: {})
    ttl: str = "5m"
    capabilities: list[str] = field(default_factory=lambda: [])
    """What this provider can do beyond the public rules, such as ``cache_edits``."""


@record
class ResultOffloaded:
    """A big tool result rests in a file; the view shows a preview."""

    cause: Cause
    tool_use_id: str
    text: str
    path: str
    sha256: str
    size: int
    media: str = "text"


@record
class ResultsKept:
    """Seen and left whole, for ever."""

    cause: Cause
    tool_use_ids: list[str]


@record
class ResultsCleared:
    """Old tool results left the view; each can be read back by its handle."""

    cause: Cause
    cleared: list[Replacement]


@record
class ResultsRestored:
    """Cleared results came back into the view."""

    cause: Cause
    tool_use_ids: list[str]


@record
class ResultStubbed:
    """A result that never came; this text stands in for it."""

    cause: Cause
    tool_use_id: str
    text: str


@record
class ImagesDropped:
    """Images left the view; this text stands where each was."""

    cause: Cause
    images: list[Image]
    text: str


@record
class CacheEdits:
    """Results deleted from the server's cached prefix, pinned after a message."""

    cause: Cause
    tool_use_ids: list[str]
    anchor: str


@record
class Snipped:
    """Whole rounds left the view."""

    cause: Cause
    messages: list[str]
    handle: str = ""


@record
class Collapsed:
    """A finished span of the view, folded to a stub."""

    cause: Cause
    first: str
    last: str
    text: str


@record
class NotesUpdated:
    """Sections of the running notes that changed, ``by`` whom (``local``, ``model``, ``person``), the count of tokens
    and of tool calls then, and the hash of the document that was written to the file."""

    cause: Cause
    sections: dict[str, str]
    covered: str | None = None
    by: str = "local"
    tokens: int = 0
    calls: int = 0
    projection: str = ""


@record
class Compacted:
    """The past became a summary; messages from ``first_kept`` on stay, or those before ``from_message``."""

    cause: Cause
    trigger: str
    """``auto``, ``manual`` or ``reactive``."""
    method: str
    """``notes``, ``full``, ``from`` or ``up_to``."""
    summary: str
    tokens_before: int
    last_before: str | None
    first_kept: str | None
    attachments: list[dict[str, Any]] = field(default_factory=lambda: [])
    discovered_tools: list[str] = field(default_factory=lambda: [])
    from_message: str | None = None
    """What stood from this message on became the summary, and what stood before it stays."""
    preserved: dict[str, str] = field(default_factory=lambda: {})
    """The messages that stay: ``head`` and ``tail`` are the first and the last, ``anchor`` is the summary's handle."""
    handle: str = ""
    tokens_after: int = 0
    loss: dict[str, Any] = field(default_factory=lambda: {})
    """By kind, how many exact names the part had and how many of them are out of view now."""


@record
class CompactionUndone:
    """The part before that boundary is back, byte for byte."""

    cause: Cause
    compaction: str


@record
class CompactionFailed:
    """A compaction was tried and not applied."""

    cause: Cause
    error: str


@record
class MemoriesSurfaced:
    """Memories shown to the model, with the fence and age they were shown with."""

    cause: Cause
    names: list[str]
    text: str


@record
class MemoriesExtracted:
    """Memories written from this session."""

    cause: Cause
    names: list[str]
    usage: dict[str, Any] = field(default_factory=lambda: {})


@record
class CursorMoved:
    """A layer has read up to this message."""

    cause: Cause
    cursor: str
    message: str


@record
class InstructionsAttached:
    """Instruction files shown to the model."""

    cause: Cause
    paths: list[str]
    text: str


@record
class Pinned:
    """Messages and results that no layer may remove."""

    cause: Cause
    messages: list[str] = field(default_factory=lambda: [])
    tool_use_ids: list[str] = field(default_factory=lambda: [])


@record
class MessageQueued:
    """Text from another agent or process that reached this session."""

    cause: Cause
    id: str
    text: str
    sender: str = ""


@record
class AgentSpawned:
    """A sub-agent or fork was started."""

    cause: Cause
    agent: str
    directive: str
    options: dict[str, Any] = field(default_factory=lambda: {})


@record
class AgentFinished:
    """A sub-agent or fork came back."""

    cause: Cause
    agent: str
    status: str
    text: str
    usage: dict[str, Any] = field(default_factory=lambda: {})


@record
class CallRecorded:
    """What one model call used and cost."""

    cause: Cause
    model: str
    usage: dict[str, Any]
    cost_usd: float | None = None
    source: str = "main"
    message_id: str = ""
    cache: dict[str, Any] = field(default_factory=lambda: {})
    """What the call left in the provider's cache, so that a resumed session goes on from there."""


@record
class Unknown:
    """A decision this version does not know; it is kept and changes nothing."""

    name: str
    body: dict[str, Any]


Decision: TypeAlias = (
    PrefixRendered
    | ResultOffloaded
    | ResultsKept
    | ResultsCleared
    | ResultsRestored
    | ResultStubbed
    | ImagesDropped
    | CacheEdits
    | Snipped
    | Collapsed
    | NotesUpdated
    | Compacted
    | CompactionUndone
    | CompactionFailed
    | MemoriesSurfaced
    | MemoriesExtracted
    | CursorMoved
    | InstructionsAttached
    | Pinned
    | MessageQueued
    | AgentSpawned
    | AgentFinished
    | CallRecorded
)


def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


DECISIONS: Final[dict[str, type[Any]]] = {_snake(kind.__name__): kind for kind in get_args(Decision)}
_NAMES: Final[dict[type[Any], str]] = {kind: name for name, kind in DECISIONS.items()}
_FIELDS: Final[dict[type[Any], tuple[str, ...]]] = {
    kind: tuple(name for name in fields_of(kind) if name != "cause") for kind in DECISIONS.values()
}


def name_of(decision: Decision) -> str:
    """Return the decision's name in the log."""
    return _NAMES[type(decision)]


def body_of(decision: Decision) -> dict[str, Any]:
    """Return the body of the log entry that carries the decision."""
    kind = type(decision)
    cause = decision.cause
    body: dict[str, Any] = {
        "decision": _NAMES[kind],
        "layer": cause.layer,
        "reason": cause.reason,
        "frees": cause.frees,
        "moves_prefix": cause.moves_prefix,
    }
    for name in _FIELDS[kind]:
        body[name] = msgspec.to_builtins(getattr(decision, name))
    return body


def decision_of(body: dict[str, Any]) -> Decision | Unknown:
    """Read a decision from its log entry; one that cannot be read is Unknown and changes nothing."""
    name = body.get("decision")
    kind = DECISIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        return Unknown(str(name), body)
    try:
        cause = msgspec.convert(body, Cause)
        return msgspec.convert({**body, "cause": cause}, kind)
    except (msgspec.ValidationError, RecursionError):
        return Unknown(str(name), body)
