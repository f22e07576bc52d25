"""Every event there is: one closed union, streamed to listeners as things happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, get_args

import msgspec

from .conversation.decisions import Decision, body_of
from .values import field, fields_of, record

__all__ = [
    "EVENTS",
    "AgentEnded",
    "AgentProgressed",
    "AgentStarted",
    "BackgroundChanged",
    "CacheBroken",
    "CompactionEnded",
    "CompactionProgressed",
    "DecisionMade",
    "DreamChanged",
    "EntryAppended",
    "Event",
    "FellBack",
    "HookRan",
    "InboxDrained",
    "Listener",
    "LogDamaged",
    "MessageArrived",
    "ModelRetried",
    "NotesWritten",
    "PermissionDecided",
    "QueryEnded",
    "ReplyObserved",
    "RequestPrepared",
    "ResultsTrimmed",
    "SessionClosed",
    "SessionOpened",
    "TextStreamed",
    "ThinkingStreamed",
    "ToolFinished",
    "ToolStarted",
    "event_body",
]


@record
class SessionOpened:
    """A session was opened and its log folded."""

    session: str
    entries: int
    mode: str


@record
class LogDamaged:
    """A line of the log could not be read; it is set aside and everything else was loaded."""

    session: str
    line: int
    reason: str


@record
class EntryAppended:
    """A message or metadata is in the log, safe."""

    session: str
    uuid: str
    kind: str


@record
class DecisionMade:
    """A layer decided something and it is in the log."""

    session: str
    uuid: str
    decision: Decision


@record
class RequestPrepared:
    """A request is about to leave."""

    session: str
    messages: int
    tokens: int
    window: int


@record
class ReplyObserved:
    """A reply is in the log."""

    session: str
    message_id: str
    model: str
    usage: dict[str, Any]


@record
class InboxDrained:
    """Commands that other processes left were taken in."""

    session: str
    commands: int


@record
class FellBack:
    """Something could not be done and a lesser way was taken; nothing is silent towards the user."""

    session: str
    what: str
    why: str


@record
class ResultsTrimmed:
    """Old tool results left the view."""

    session: str
    trigger: str
    tools: list[str]
    paths: list[str]
    tokens_before: int
    tokens_after: int


@record
class CacheBroken:
    """A call read less from the provider's cache than the one before had left there."""

    session: str
    reason: str
    tokens: int
    lost_usd: float | None


@record
class TextStreamed:
    """A part of a reply's text arrived; only a whole reply is logged."""

    session: str
    text: str


@record
class ThinkingStreamed:
    """A part of a reply's thinking arrived."""

    session: str
    text: str


@record
class ToolStarted:
    """A tool the model asked for is about to run."""

    session: str
    id: str
    name: str
    input: dict[str, Any]


@record
class ToolFinished:
    """A tool came back; ``text`` is the beginning of what it gave, ``lines`` how many lines there were in all."""

    session: str
    id: str
    name: str
    is_error: bool
    text: str
    seconds: float
    lines: int = 0


@record
class PermissionDecided:
    """A tool call was allowed or denied, and by whom: a rule, the mode, a hook or the user."""

    session: str
    tool: str
    allowed: bool
    by: str
    reason: str


@record
class ModelRetried:
    """A model did not answer and is asked again."""

    session: str
    model: str
    attempt: int
    wait_seconds: float
    why: str


@record
class HookRan:
    """A hook ran at a moment such as ``before_tool``; ``problem`` says what went wrong with it, ``message`` what it
    wants people to see."""

    session: str
    hook: str
    moment: str
    message: str = ""
    problem: str = ""


@record
class CompactionProgressed:
    """Where a compaction stands: ``hooks before``, ``compacting`` (with the characters so far), ``hooks after``,
    ``done``."""

    session: str
    phase: str
    characters: int = 0


@record
class CompactionEnded:
    """The past became a summary."""

    session: str
    trigger: str
    method: str
    tokens_before: int
    tokens_after: int
    lost: int
    model_calls: int
    cost_usd: float | None = None
    metrics: dict[str, Any] = field(default_factory=lambda: {})


@record
class NotesWritten:
    """The running notes were brought up to date, by a model or by the local note-taker."""

    session: str
    by: str
    sections: list[str]
    covered: str | None = None


@record
class BackgroundChanged:
    """Work behind the conversation began or ended: notes, extraction, a dream, a shell command."""

    session: str
    what: str
    state: str
    detail: str = ""


@record
class DreamChanged:
    """A dream moved on: ``state`` is starting, updating, completed, failed or killed; ``text`` is what it says now."""

    session: str
    dream: str
    state: str
    text: str = ""
    tools: int = 0
    paths: list[str] = field(default_factory=lambda: [])


@record
class AgentStarted:
    """A sub-agent or fork was started; ``kind`` is its type, or ``fork``."""

    session: str
    agent: str
    kind: str
    description: str
    background: bool = False


@record
class AgentProgressed:
    """What an agent is doing, in a few words."""

    session: str
    agent: str
    line: str


@record
class AgentEnded:
    """An agent came to its end: ``status`` is completed, failed or killed."""

    session: str
    agent: str
    status: str
    summary: str
    turns: int = 0
    tokens: int = 0
    cost_usd: float | None = None


@record
class MessageArrived:
    """A message from another agent or process is in the log."""

    session: str
    id: str
    sender: str
    summary: str


@record
class QueryEnded:
    """A query came to its end: ``completed``, ``blocking_limit``, ``prompt_too_long``, ``model_error``, ``aborted``,
    ``hook_stopped``, ``max_turns`` or ``budget``."""

    session: str
    end: str
    detail: str
    turns: int
    cost_usd: float | None = None


@record
class SessionClosed:
    """A session was closed and its lease given back."""

    session: str


Event: TypeAlias = (
    SessionOpened
    | LogDamaged
    | EntryAppended
    | DecisionMade
    | RequestPrepared
    | ReplyObserved
    | InboxDrained
    | FellBack
    | ResultsTrimmed
    | CacheBroken
    | TextStreamed
    | ThinkingStreamed
    | ToolStarted
    | ToolFinished
    | PermissionDecided
    | ModelRetried
    | HookRan
    | CompactionProgressed
    | CompactionEnded
    | NotesWritten
    | BackgroundChanged
    | DreamChanged
    | AgentStarted
    | AgentProgressed
    | AgentEnded
    | MessageArrived
    | QueryEnded
    | SessionClosed
)
Listener: TypeAlias = Callable[[Event], None]


def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


EVENTS: Final[dict[type[Any], str]] = {kind: _snake(kind.__name__) for kind in get_args(Event)}


def event_body(event: Event) -> dict[str, Any]:
    """Return the event as plain JSON, its name first."""
    body: dict[str, Any] = {"event": EVENTS[type(event)]}
    for name in fields_of(event):
        value = getattr(event, name)
        body[name] = body_of(value) if name == "decision" else msgspec.to_builtins(value)
    return body
