"""Every event there is: one closed union, streamed to listeners as things happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final, TypeAlias, get_args

import msgspec

from .conversation.decisions import Decision, body_of
from .values import record

__all__ = [
    "EVENTS",
    "CacheBroken",
    "DecisionMade",
    "EntryAppended",
    "Event",
    "FellBack",
    "InboxDrained",
    "Listener",
    "LogDamaged",
    "ReplyObserved",
    "RequestPrepared",
    "ResultsTrimmed",
    "SessionClosed",
    "SessionOpened",
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
    | SessionClosed
)
Listener: TypeAlias = Callable[[Event], None]


def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


EVENTS: Final[dict[type[Any], str]] = {kind: _snake(kind.__name__) for kind in get_args(Event)}


def event_body(event: Event) -> dict[str, Any]:
    """Return the event as plain JSON, its name first."""
    body: dict[str, Any] = {"event": EVENTS[type(event)]}
    for item in fields(event):
        value = getattr(event, item.name)
        body[item.name] = body_of(value) if item.name == "decision" else msgspec.to_builtins(value)
    return body
