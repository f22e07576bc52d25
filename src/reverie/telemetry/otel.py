"""Spans and metrics from events, through OpenTelemetry.

A session is a span from its opening to its closing; every request with its reply, every tool, every compaction and
every query is a span inside it; everything else is an event on the session's span. Without an SDK set up by the
program all of it costs next to nothing.
"""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from ..conversation.decisions import PrefixRendered
from ..errors import InputError
from ..events import (
    AgentEnded,
    AgentProgressed,
    AgentStarted,
    BackgroundChanged,
    CacheBroken,
    CompactionEnded,
    CompactionProgressed,
    DecisionMade,
    DreamChanged,
    EntryAppended,
    Event,
    FellBack,
    HookRan,
    InboxDrained,
    LogDamaged,
    MessageArrived,
    ModelRetried,
    NotesWritten,
    PermissionDecided,
    QueryEnded,
    ReplyObserved,
    RequestPrepared,
    ResultsTrimmed,
    SessionClosed,
    SessionOpened,
    TextStreamed,
    ThinkingStreamed,
    ToolFinished,
    ToolStarted,
)
from . import semconv as names
from .metrics import Metrics, decision_attributes, model_attributes, token_counts
from .spans import SessionSpans, start_span

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["OpenTelemetry"]


class NanosecondClock(Protocol):
    """What gives the time in nanoseconds."""

    def __call__(self) -> int:
        """Return nanoseconds since 1970."""
        ...


class OpenTelemetry:
    """A listener that makes spans and metrics; one may serve any number of sessions."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        clock: NanosecondClock = time_ns,
    ) -> None:
        try:
            from opentelemetry.metrics import get_meter
            from opentelemetry.trace import get_tracer
        except ImportError:
            raise InputError("OpenTelemetry is not installed: pip install 'reverie[otel]'") from None
        self._tracer = get_tracer("reverie", tracer_provider=tracer_provider)
        self._metrics = Metrics(get_meter("reverie", meter_provider=meter_provider))
        self._clock = clock
        self._sessions: dict[str, SessionSpans] = {}

    def __call__(self, event: Event) -> None:
        """Turn one event into what it means."""
        watched = self._sessions.get(event.session) or self._open(event.session)
        at = self._clock()
        match event:
            case SessionOpened():
                watched.span.set_attributes({names.MODE: event.mode, names.ENTRIES: event.entries})
                self._metrics.sessions.add(1, {names.MODE: event.mode})
            case SessionClosed():
                self._close(event.session, watched, at)
            case RequestPrepared():
                self._ask(watched, event, at)
            case ReplyObserved():
                self._answer(watched, event, at)
            case ToolStarted():
                watched.start_tool(self._tracer, event, at)
            case ToolFinished():
                self._finish_tool(watched, event, at)
            case CompactionProgressed():
                watched.compaction_stands(self._tracer, event.phase, at)
            case CompactionEnded():
                watched.end_compaction(event, at)
                self._metrics.compaction(event)
            case QueryEnded():
                watched.end_query(self._tracer, event, at)
                self._metrics.queries.add(1, {names.END: event.end})
            case TextStreamed() | ThinkingStreamed():
                pass  # a piece of a reply says nothing that the reply does not
            case _:
                self._mention(watched, event, at)

    def _mention(self, watched: SessionSpans, event: SpanEvent, at: int) -> None:
        """Put an event that is no span of its own on the session's span, and count it."""
        span, metrics = watched.span, self._metrics
        match event:
            case EntryAppended():
                watched.query_begins(at, event.kind)
                span.add_event("entry", {names.KIND: event.kind, names.ENTRY: event.uuid}, at)
                metrics.entries.add(1, {names.KIND: event.kind})
            case DecisionMade():
                if isinstance(event.decision, PrefixRendered):
                    watched.model = event.decision.model
                span.add_event("decision", {**decision_attributes(event.decision), names.ENTRY: event.uuid}, at)
                metrics.decision(event.decision)
            case LogDamaged():
                span.add_event("log_damaged", {names.LINE: event.line, names.WHY: event.reason}, at)
                metrics.damaged.add(1)
            case InboxDrained():
                span.add_event("inbox_drained", {names.COMMANDS: event.commands}, at)
                metrics.commands.add(event.commands)
            case FellBack():
                span.add_event("fell_back", {names.WHAT: event.what, names.WHY: event.why}, at)
                metrics.fallbacks.add(1, {names.WHAT: event.what})
            case ResultsTrimmed():
                freed = event.tokens_before - event.tokens_after
                span.add_event("results_trimmed", {names.WHY: event.trigger, names.TOKENS_FREED: freed}, at)
            case CacheBroken():
                span.add_event("cache_broken", {names.WHY: event.reason, names.TOKENS_LOST: event.tokens}, at)
                metrics.breaks.add(1)
            case PermissionDecided():
                decided = {names.TOOL_NAME: event.tool, names.ALLOWED: event.allowed, names.BY: event.by}
                span.add_event("permission_decided", decided, at)
                metrics.permissions.add(1, decided)
            case ModelRetried():
                again = {names.REQUEST_MODEL: event.model, names.ATTEMPT: event.attempt, names.WHY: event.why}
                (watched.request or span).add_event("model_retried", again, at)
                metrics.retries.add(1, {names.REQUEST_MODEL: event.model})
            case HookRan():
                span.add_event("hook_ran", {names.HOOK_EVENT: event.moment, names.FAILED: bool(event.problem)}, at)
                metrics.hooks.add(1, {names.HOOK_EVENT: event.moment, names.FAILED: bool(event.problem)})
            case NotesWritten():
                span.add_event("notes_written", {names.BY: event.by, names.SECTIONS: len(event.sections)}, at)
                metrics.notes.add(1, {names.BY: event.by})
            case BackgroundChanged():
                work = {names.WORK: event.what, names.STATE: event.state}
                span.add_event("background_changed", work, at)
                metrics.background.add(1, work)
            case DreamChanged():
                work = {names.WORK: "dream", names.STATE: event.state}
                span.add_event("dream_changed", {**work, names.DREAM: event.dream}, at)
                metrics.background.add(1, work)
            case AgentStarted():
                started = {names.AGENT: event.agent, names.AGENT_KIND: event.kind}
                span.add_event("agent_started", started, at)
                metrics.agents.add(1, {names.AGENT_KIND: event.kind})
            case AgentProgressed():
                pass  # for people who watch; the agent's own session tells what it does
            case AgentEnded():
                span.add_event("agent_ended", {names.AGENT: event.agent, names.STATE: event.status}, at)
                metrics.agents_ended.add(1, {names.STATE: event.status})
            case MessageArrived():
                span.add_event("message_arrived", {names.MESSAGE_ID: event.id, names.SENDER: event.sender}, at)
                metrics.messages.add(1)
            case _:
                assert_never(event)

    def close(self) -> None:
        """End the spans of sessions that were not closed."""
        for session, watched in list(self._sessions.items()):
            self._close(session, watched, self._clock())

    def _open(self, session: str) -> SessionSpans:
        attributes = {names.CONVERSATION_ID: session}
        span = self._tracer.start_span(names.SESSION_SPAN, attributes=attributes, start_time=self._clock())
        watched = self._sessions[session] = SessionSpans(session, span)
        return watched

    def _close(self, session: str, watched: SessionSpans, at: int) -> None:
        self._give_up(watched, at)
        watched.close(at)
        del self._sessions[session]

    def _ask(self, watched: SessionSpans, event: RequestPrepared, at: int) -> None:
        from opentelemetry.trace import SpanKind

        self._give_up(watched, at)
        watched.query_begins(at)
        attributes: dict[str, Any] = {
            **model_attributes(watched.model),
            names.CONVERSATION_ID: event.session,
            names.MESSAGES: event.messages,
            names.COUNTED_TOKENS: event.tokens,
            names.WINDOW_TOKENS: event.window,
        }
        name = f"{names.CHAT} {watched.model}".rstrip()
        watched.request = start_span(self._tracer, watched.span, name, attributes, at, kind=SpanKind.CLIENT)
        watched.asked_ns = at
        if event.window > 0:
            self._metrics.share.record(event.tokens / event.window, model_attributes(watched.model))

    def _answer(self, watched: SessionSpans, event: ReplyObserved, at: int) -> None:
        counts = token_counts(event.usage)
        asked = {**model_attributes(watched.model or event.model), names.RESPONSE_MODEL: event.model}
        for kind, tokens in counts.items():
            self._metrics.tokens.record(tokens, {**asked, names.TOKEN_TYPE: kind})
        span, watched.request = watched.request, None
        if span is None:  # a reply to a request made elsewhere
            return
        span.set_attributes({names.RESPONSE_ID: event.message_id, names.RESPONSE_MODEL: event.model})
        span.set_attributes({name: tokens for kind, tokens in counts.items() for name in names.USAGE[kind]})
        span.end(at)
        self._metrics.duration.record((at - watched.asked_ns) / 1e9, asked)

    def _give_up(self, watched: SessionSpans, at: int) -> None:
        """End a request that no reply was observed for."""
        if watched.give_up_request(at):
            self._metrics.unanswered.add(1, model_attributes(watched.model))

    def _finish_tool(self, watched: SessionSpans, event: ToolFinished, at: int) -> None:
        watched.finish_tool(self._tracer, event, at)
        self._metrics.tool_duration.record(event.seconds, {names.TOOL_NAME: event.name, names.FAILED: event.is_error})


SpanEvent = (
    EntryAppended
    | DecisionMade
    | LogDamaged
    | InboxDrained
    | FellBack
    | ResultsTrimmed
    | CacheBroken
    | PermissionDecided
    | ModelRetried
    | HookRan
    | NotesWritten
    | BackgroundChanged
    | DreamChanged
    | AgentStarted
    | AgentProgressed
    | AgentEnded
    | MessageArrived
)
