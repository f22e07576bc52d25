"""The closed union of events; a session sends each one to its listeners as it happens.

Every event has the field ``session``: the name of the session it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, get_args

import msgspec

from .conversation.decisions import Decision, body_of
from .values import field, fields_of, record, snake_case


@record
class SessionOpened:
    """A session was opened and its log of ``entries`` entries read; ``mode`` is ``write`` or ``read``."""

    session: str
    entries: int
    mode: str


@record
class LogDamaged:
    """A damaged line was found while the log was read; it is skipped unless its entry could be rescued."""

    session: str
    line: int
    reason: str


@record
class EntryAppended:
    """A message or metadata was stored in the log."""

    session: str
    uuid: str
    kind: str


@record
class DecisionMade:
    """A layer's decision was stored in the log."""

    session: str
    uuid: str
    decision: Decision


@record
class RequestPrepared:
    """A request is ready to be sent; ``tokens`` is its estimated size and ``window`` the context window."""

    session: str
    messages: int
    tokens: int
    window: int


@record
class ReplyObserved:
    """A model's reply was stored in the log."""

    session: str
    message_id: str
    model: str
    usage: dict[str, Any]


@record
class InboxDrained:
    """The session ran the commands that other processes left in its inbox.

    ``stop`` says that one of them asks its loop to stop: an agent interrupts its query, a loop of your own decides.
    """

    session: str
    commands: int
    stop: bool = False


@record
class FellBack:
    """A step failed (``what``, because of ``why``) and the session used a simpler way instead."""

    session: str
    what: str
    why: str


@record
class ResultsTrimmed:
    """Old tool results were cleared by layer 2 or by the provider; ``tools`` and ``paths`` name them, if known."""

    session: str
    trigger: str
    tools: list[str]
    paths: list[str]
    tokens_before: int
    tokens_after: int
    handles: list[str] = field(default_factory=lambda: [])
    """The handles by which the results can be read back."""


@record
class CacheBroken:
    """A cache miss: a call read ``tokens`` fewer tokens from the provider's cache than expected."""

    session: str
    reason: str
    tokens: int
    lost_usd: float | None


@record
class TextStreamed:
    """A part of a reply's text arrived; only the complete reply is logged."""

    session: str
    text: str


@record
class PromptAdded:
    """A prompt that the user sent while the model worked was added to the running query."""

    session: str
    text: str


@record
class ThinkingStreamed:
    """A part of a reply's thinking arrived."""

    session: str
    text: str


@record
class ToolStarted:
    """A tool call of the model is about to run."""

    session: str
    id: str
    name: str
    input: dict[str, Any]


@record
class ToolFinished:
    """A tool call ended or could not run; ``text`` is the beginning of its result, ``end`` the end of a longer one, and
    ``lines`` the total number of lines."""

    session: str
    id: str
    name: str
    is_error: bool
    text: str
    seconds: float
    lines: int = 0
    end: str = ""


@record
class PermissionDecided:
    """A tool call was allowed or denied; ``by`` says if a rule, the mode, a hook or the user decided."""

    session: str
    tool: str
    allowed: bool
    by: str
    reason: str
    id: str = ""
    """The id of the call; empty for a call of background work."""
    input: dict[str, Any] = field(default_factory=lambda: {})


@record
class ModelRetried:
    """A model did not answer; the request is sent again after ``wait_seconds``, ``attempts`` times in all."""

    session: str
    model: str
    attempt: int
    wait_seconds: float
    why: str
    attempts: int = 0


@record
class ModelChanged:
    """The next request goes to another model, which has to write the whole conversation to its own cache."""

    session: str
    before: str
    after: str
    thinking: int
    """The number of replies in view with thinking."""
    readable: int
    """The number of those whose thinking the new model reads; the provider leaves out the rest, without an error."""
    tokens: int
    """The tokens that its empty cache has to take up."""
    cost_usd: float | None

    @property
    def line(self) -> str:
        """The event in one line, for people."""
        price = f" (about ${self.cost_usd:.2f})" if self.cost_usd is not None else ""
        reads = f"reads the thinking of {self.readable} of {self.thinking} replies; " if self.thinking else ""
        return f"{self.after} after {self.before}: {reads}its empty cache takes {self.tokens:,} tokens{price}"


@record
class HookRan:
    """A hook ran at a moment such as ``before_tool``; ``problem`` is its error, ``message`` its note to the user."""

    session: str
    hook: str
    moment: str
    message: str = ""
    problem: str = ""


@record
class CompactionProgressed:
    """The phase of a running compaction: ``hooks before``, ``compacting`` (with the number of characters written so
    far), ``hooks after`` or ``done``."""

    session: str
    phase: str
    characters: int = 0


@record
class CompactionEnded:
    """A compaction replaced old messages by a summary; ``lost`` counts the exact names that left the view."""

    session: str
    trigger: str
    method: str
    tokens_before: int
    tokens_after: int
    lost: int
    model_calls: int
    cost_usd: float | None = None
    metrics: dict[str, Any] = field(default_factory=lambda: {})
    unchanged_tokens_written_again: int = 0
    """The tokens of kept messages behind the summary, which the next request writes to the cache again."""


@record
class NotesWritten:
    """The session notes were updated; ``by`` says if a model, the local note-taker or a person wrote them."""

    session: str
    by: str
    sections: list[str]
    covered: str | None = None


@record
class BackgroundChanged:
    """The background task ``what``, such as notes or compaction, was started, completed, failed, killed or skipped."""

    session: str
    what: str
    state: str
    detail: str = ""


@record
class DreamChanged:
    """A dream changed state to starting, updating, completed, failed or killed; ``text`` is its latest output."""

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
    """A sub-agent made progress; ``line`` describes it in a few words."""

    session: str
    agent: str
    line: str


@record
class AgentEnded:
    """A sub-agent ended; ``status`` is completed, failed or killed."""

    session: str
    agent: str
    status: str
    summary: str
    turns: int = 0
    tokens: int = 0
    cost_usd: float | None = None


@record
class MessageArrived:
    """A message from another agent or process was stored in the log."""

    session: str
    id: str
    sender: str
    summary: str


@record
class UserMessaged:
    """An agent sent a message to the user; ``sender`` is the agent's name."""

    session: str
    sender: str
    text: str
    summary: str = ""


@record
class QueryEnded:
    """A query ended; ``end`` is ``completed``, ``blocking_limit``, ``prompt_too_long``, ``model_error``, ``aborted``,
    ``hook_stopped``, ``max_turns`` or ``budget``."""

    session: str
    end: str
    detail: str
    turns: int
    cost_usd: float | None = None


@record
class SessionClosed:
    """A session was closed and its lease released."""

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
    | PromptAdded
    | ToolStarted
    | ToolFinished
    | PermissionDecided
    | ModelRetried
    | ModelChanged
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
    | UserMessaged
    | QueryEnded
    | SessionClosed
)
Listener: TypeAlias = Callable[[Event], None]


EVENTS: Final[dict[type[Any], str]] = {kind: snake_case(kind.__name__) for kind in get_args(Event)}


def event_body(event: Event) -> dict[str, Any]:
    """Return the event as a dict of JSON values, with its snake-case name under ``event``."""
    body: dict[str, Any] = {"event": EVENTS[type(event)]}
    for name in fields_of(event):
        value = getattr(event, name)
        body[name] = body_of(value) if name == "decision" else msgspec.to_builtins(value)
    return body
