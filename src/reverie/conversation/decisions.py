"""The closed union of decisions: each is one change that a layer makes to the view, as data in the log.

A logged decision is never changed. It names its layer and reason, the tokens it frees, and whether it changes the
cached prefix. It carries the exact text it puts into the view, so every request can be rebuilt from the log alone,
independent of later code and settings.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, get_args

import msgspec

from ..values import field, fields_of, record, snake_case
from .causes import Cause, SaidItem
from .causes import Image as Image
from .causes import Replacement as Replacement
from .plans import PlanChanged
from .result_decisions import (
    CacheEdits,
    ClearingBoundaryMoved,
    ImagesDropped,
    ResultOffloaded,
    ResultsCleared,
    ResultsClearedByProvider,
    ResultsKept,
    ResultsRestored,
    ResultStubbed,
)


@record
class PrefixRendered:
    """The model, system prompt, tools and options of every request from here on."""

    cause: Cause
    model: str
    system: Any = None
    tools: list[dict[str, Any]] = field(default_factory=lambda: [])
    options: dict[str, Any] = field(default_factory=lambda: {})
    ttl: str = "5m"
    betas: list[str] = field(default_factory=lambda: [])
    """The beta features that the request asks for."""
    capabilities: list[str] = field(default_factory=lambda: [])
    """Features of this provider beyond the public API, such as ``cache_edits``."""
    max_images: int = 100
    max_image_bytes: int = 10_000_000
    """The largest image that the model takes, counted in base64 characters."""
    max_body_bytes: int = 32_000_000
    documents_are_images: bool = False
    """Whether PDF documents count among the many images that have to be smaller."""
    checked: bool = False
    """Whether a session has checked the options by the facts of the model, which the user may have corrected."""
    choices: str = ""
    """The user's choices that an agent's own texts depend on; empty for a prompt and tools of another author."""


@record
class ReloadAsked:
    """The next request renders system prompt and tools anew, even if both could be changed at the end."""

    cause: Cause


@record
class PrefixAmended:
    """The caller changed the system prompt or the tools; ``message`` tells it at the end and the prefix stays."""

    cause: Cause
    system: Any
    tools: list[dict[str, Any]]
    message: dict[str, Any]
    choices: str = ""


@record
class ThinkingDropped:
    """The thinking of these replies is never sent again, because content before it has changed."""

    cause: Cause
    messages: list[str]
    changed_by: str = ""
    """The entry that changed the content before the first of these replies; empty if it is unknown."""
    tokens: int = 0
    """The estimated tokens of this thinking, which the model would have to write again."""


@record
class Redacted:
    """A secret was taken out of the entries before this one, which are therefore not as they were sent."""

    cause: Cause
    occurrences: int
    entries: int
    """The number of entries that were changed."""


@record
class ThinkingRepaired:
    """The provider refused a thinking block; from here on requests ask it to drop such blocks instead."""

    cause: Cause
    error: str
    field: str = "prefix_mismatch_behavior"
    """The field of ``thinking.block_binding`` that asks for this; platforms spell it differently."""


NO_PREFIX: Final = PrefixRendered(Cause("request", "no prefix was ever rendered"), "")


@record
class Snipped:
    """Whole rounds were removed from the view."""

    cause: Cause
    messages: list[str]
    handle: str = ""


@record
class Collapsed:
    """The finished messages from ``first`` to ``last`` were replaced by a short text."""

    cause: Cause
    first: str
    last: str
    text: str


@record
class NotesUpdated:
    """Sections of the session notes changed."""

    cause: Cause
    sections: dict[str, str]
    covered: str | None = None
    """The last message that the notes cover."""
    by: str = "local"
    """The author: ``local``, ``model`` or ``person``."""
    tokens: int = 0
    """The token count of the view when the notes were updated."""
    calls: int = 0
    """The number of the session's tool calls when the notes were updated."""
    projection: str = ""
    """The hash of the document written to the notes file."""


@record
class Compacted:
    """A summary replaced old messages; messages from ``first_kept`` on stay, or those before ``from_message``."""

    cause: Cause
    trigger: str
    """``auto``, ``manual`` or ``reactive``."""
    method: str
    """``notes``, ``full``, ``from``, ``up_to`` or ``provider``."""
    summary: str
    tokens_before: int
    """Tokens of the whole view, with everything that the provider had cleared."""
    last_before: str | None
    first_kept: str | None
    attachments: list[dict[str, Any]] = field(default_factory=lambda: [])
    discovered_tools: list[str] = field(default_factory=lambda: [])
    """The deferred tools that were found so far."""
    from_message: str | None = None
    """If set, the summary replaces the messages from this one on, and the messages before it stay."""
    preserved: dict[str, str] = field(default_factory=lambda: {})
    """The messages that stay: ``head`` and ``tail`` are the first and last, ``anchor`` is the summary's handle."""
    handle: str = ""
    tokens_after: int = 0
    loss: dict[str, Any] = field(default_factory=lambda: {})
    """By kind: how many exact names the replaced messages had, and how many of them left the view."""
    block: dict[str, Any] = field(default_factory=lambda: {})
    """The provider's signed summary, exactly as it came; sent in place of ``summary``, which is its text."""
    covers: dict[str, Any] = field(default_factory=lambda: {})
    """The digests of the messages that ``block`` replaces, as they were sent (see ``conversation.thinking``)."""


@record
class CompactionPrepared:
    """A compaction was written in the background; ``compaction`` is the body of its decision."""

    cause: Cause
    compaction: dict[str, Any]


@record
class CompactionUndone:
    """A compaction was undone; the messages it replaced are shown again, byte for byte."""

    cause: Cause
    compaction: str


@record
class CompactionFailed:
    """A compaction was attempted and failed; the view is unchanged."""

    cause: Cause
    error: str
    declined: bool = False
    """Whether the provider wrote no summary and would not write one if asked again."""


@record
class WindowLearned:
    """A refusal showed that this model's window has only so many tokens."""

    cause: Cause
    model: str
    tokens: int
    is_named: bool = True
    """Whether the provider named the number; one that was inferred holds in this session only."""


@record
class ContextSaid:
    """The request shows items of standing context: new ones, changed ones, and those that a cut had removed."""

    cause: Cause
    items: list[SaidItem]
    role: str = "user"
    """``system`` for facts of the program itself, where the model takes them; otherwise ``user``."""
    opening: bool = False
    """Whether this opens the session; compactions keep it, except those by the provider."""
    heading: str = ""
    cuts: int = 0
    """The number of cuts in the view when this was said."""
    later_words: str = ""
    """The user's words that no notes have compared yet with the rules among the items."""


@record
class MemoriesSurfaced:
    """Memories were shown to the model; ``text`` is the exact text if ``items`` is empty, as in old logs."""

    cause: Cause
    names: list[str]
    text: str
    items: list[SaidItem] = field(default_factory=lambda: [])


@record
class MemoriesExtracted:
    """Memories were saved from this session."""

    cause: Cause
    names: list[str]
    usage: dict[str, Any] = field(default_factory=lambda: {})


@record
class CursorMoved:
    """A layer has processed the conversation up to ``message``; ``cursor`` is the name of this position."""

    cause: Cause
    cursor: str
    message: str


@record
class InstructionsAttached:
    """Instruction files near a touched file were shown to the model; old logs have their ``text`` and no items."""

    cause: Cause
    paths: list[str]
    text: str
    items: list[SaidItem] = field(default_factory=lambda: [])


@record
class Pinned:
    """Trimming keeps these tool results and messages; snips and collapses keep the messages.

    A compaction may still replace them; its summary quotes pinned messages of the user first.
    """

    cause: Cause
    messages: list[str] = field(default_factory=lambda: [])
    tool_use_ids: list[str] = field(default_factory=lambda: [])


@record
class MessageQueued:
    """A message from another agent or process arrived in this session."""

    cause: Cause
    id: str
    text: str
    sender: str = ""


@record
class ToolsDeferred:
    """These tools are declared only after they were found; each has the estimated tokens of its definition."""

    cause: Cause
    tools: dict[str, int]


@record
class ToolsFound:
    """These deferred tools were found; requests declare them from here on, in this order."""

    cause: Cause
    names: list[str]


@record
class AgentSpawned:
    """A sub-agent or fork was started."""

    cause: Cause
    agent: str
    directive: str
    options: dict[str, Any] = field(default_factory=lambda: {})


@record
class AgentFinished:
    """A sub-agent or fork ended."""

    cause: Cause
    agent: str
    status: str
    text: str
    usage: dict[str, Any] = field(default_factory=lambda: {})


@record
class CallRecorded:
    """The usage and cost of one model call."""

    cause: Cause
    model: str
    usage: dict[str, Any]
    cost_usd: float | None = None
    source: str = "main"
    message_id: str = ""
    cache: dict[str, Any] = field(default_factory=lambda: {})
    """The state of the provider's cache after the call, for a session that resumes here."""


@record
class Unknown:
    """A decision that this version cannot read; it stays in the log and changes nothing."""

    name: str
    body: dict[str, Any]


Decision: TypeAlias = (
    PrefixRendered
    | PrefixAmended
    | ReloadAsked
    | ThinkingDropped
    | ThinkingRepaired
    | Redacted
    | ResultOffloaded
    | ResultsKept
    | ResultsCleared
    | ClearingBoundaryMoved
    | ResultsClearedByProvider
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
    | CompactionPrepared
    | WindowLearned
    | ContextSaid
    | MemoriesSurfaced
    | MemoriesExtracted
    | CursorMoved
    | InstructionsAttached
    | Pinned
    | PlanChanged
    | MessageQueued
    | ToolsDeferred
    | ToolsFound
    | AgentSpawned
    | AgentFinished
    | CallRecorded
)


DECISIONS: Final[dict[str, type[Any]]] = {snake_case(kind.__name__): kind for kind in get_args(Decision)}
_NAMES: Final[dict[type[Any], str]] = {kind: name for name, kind in DECISIONS.items()}
_FIELDS: Final[dict[type[Any], tuple[str, ...]]] = {
    kind: tuple(name for name in fields_of(kind) if name != "cause") for kind in DECISIONS.values()
}


def name_of(decision: Decision) -> str:
    """Return the decision's name in the log: its class name in snake case."""
    return _NAMES[type(decision)]


def body_of(decision: Decision) -> dict[str, Any]:
    """Return the body of the decision's log entry as a dict of JSON values."""
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
    """Return the decision in the body of a log entry, or ``Unknown`` if this version cannot read it."""
    name = body.get("decision")
    kind = DECISIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        return Unknown(str(name), body)
    try:
        cause = msgspec.convert(body, Cause)
        return msgspec.convert({**body, "cause": cause}, kind)
    except (msgspec.ValidationError, RecursionError):
        return Unknown(str(name), body)
