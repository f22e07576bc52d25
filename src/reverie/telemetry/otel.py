"""Spans and metrics from events, through OpenTelemetry.

A session is a span from its opening to its closing; every request with its reply, every tool call, every compaction
and every query is a span inside it; all other events are span events on the session's span. Without an SDK set up by
the program all of it costs next to nothing.
"""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, assert_never

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
    ModelChanged,
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
    UserMessaged,
)
from . import semconv as names
from .metrics import Metrics, decision_attributes, model_attributes, token_counts
from .spans import SessionSpans, start_span

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["OpenTelemetry"]


StepEvent: TypeAlias = (
    RequestPrepared | ReplyObserved | ToolStarted | ToolFinished | CompactionProgressed | CompactionEnded | QueryEnded
)
LogEvent: TypeAlias = EntryAppended | DecisionMade | LogDamaged | InboxDrained | FellBack | ResultsTrimmed | CacheBroken
WorkEvent: TypeAlias = (
    PermissionDecided | ModelRetried | ModelChanged | HookRan | NotesWritten | BackgroundChanged | DreamChanged
)
AgentEvent: TypeAlias = AgentStarted | AgentEnded | MessageArrived | UserMessaged


class NanosecondClock(Protocol):
    """A function that returns the time in nanoseconds."""

    def __call__(self) -> int:
        """Return the nanoseconds since the start of 1970."""
        ...


class OpenTelemetry:
    """A listener that turns events into spans and metrics; one listener may serve any number of sessions."""

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
        """Record one event in spans and metrics; streamed text and the progress of agents are ignored."""
        spans = self._sessions.get(event.session) or self._open(event.session)
        at = self._clock()
        match event:
            case SessionOpened():
                spans.span.set_attributes({names.MODE: event.mode, names.ENTRIES: event.entries})
                self._metrics.sessions.add(1, {names.MODE: event.mode})
            case SessionClosed():
                self._close(event.session, spans, at)
            case (
                RequestPrepared()
                | ReplyObserved()
                | ToolStarted()
                | ToolFinished()
                | CompactionProgressed()
                | CompactionEnded()
                | QueryEnded()
            ):
                self._record_step(spans, event, at)
            case (
                EntryAppended()
                | DecisionMade()
                | LogDamaged()
                | InboxDrained()
                | FellBack()
                | ResultsTrimmed()
                | CacheBroken()
            ):
                self._record_log_change(spans, event, at)
            case (
                PermissionDecided()
                | ModelRetried()
                | ModelChanged()
                | HookRan()
                | NotesWritten()
                | BackgroundChanged()
                | DreamChanged()
            ):
                self._record_work(spans, event, at)
            case AgentStarted() | AgentEnded() | MessageArrived() | UserMessaged():
                self._record_agent(spans, event, at)
            case TextStreamed() | ThinkingStreamed() | AgentProgressed():
                pass  # the whole reply follows, and an agent's own session reports its steps
            case _:
                assert_never(event)

    def _record_step(self, spans: SessionSpans, event: StepEvent, at: int) -> None:
        """Start or end the span of a request, a tool call, a compaction or a query, and record its metrics."""
        match event:
            case RequestPrepared():
                self._ask(spans, event, at)
            case ReplyObserved():
                self._answer(spans, event, at)
            case ToolStarted():
                spans.start_tool(self._tracer, event, at)
            case ToolFinished():
                self._finish_tool(spans, event, at)
            case CompactionProgressed():
                spans.note_compaction_phase(self._tracer, event.phase, at)
            case CompactionEnded():
                spans.end_compaction(event, at)
                self._metrics.compaction(event)
            case QueryEnded():
                spans.end_query(self._tracer, event, at)
                self._metrics.queries.add(1, {names.END: event.end})

    def _record_log_change(self, spans: SessionSpans, event: LogEvent, at: int) -> None:
        """Add a change of the log or of the view, or a fallback, to the session's span, and count it.

        Trimmed results are added but not counted.
        """
        span, metrics = spans.span, self._metrics
        match event:
            case EntryAppended():
                spans.note_query_start(at, event.kind)
                span.add_event("entry", {names.KIND: event.kind, names.ENTRY: event.uuid}, at)
                metrics.entries.add(1, {names.KIND: event.kind})
            case DecisionMade():
                if isinstance(event.decision, PrefixRendered):
                    spans.model = event.decision.model
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

    def _record_work(self, spans: SessionSpans, event: WorkEvent, at: int) -> None:
        """Add a permission, a retry, a hook, notes or background work to the session's spans, and count it."""
        span, metrics = spans.span, self._metrics
        match event:
            case PermissionDecided():
                decided = {names.TOOL_NAME: event.tool, names.ALLOWED: event.allowed, names.BY: event.by}
                span.add_event("permission_decided", decided, at)
                metrics.permissions.add(1, decided)
            case ModelRetried():
                again = {names.REQUEST_MODEL: event.model, names.ATTEMPT: event.attempt, names.WHY: event.why}
                (spans.request or span).add_event("model_retried", again, at)
                metrics.retries.add(1, {names.REQUEST_MODEL: event.model})
            case ModelChanged():
                span.add_event(
                    "model_changed", {names.REQUEST_MODEL: event.after, names.COUNTED_TOKENS: event.tokens}, at
                )
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

    def _record_agent(self, spans: SessionSpans, event: AgentEvent, at: int) -> None:
        """Add another agent's start, end or message to the session's span, and count it."""
        span, metrics = spans.span, self._metrics
        match event:
            case AgentStarted():
                started = {names.AGENT: event.agent, names.AGENT_KIND: event.kind}
                span.add_event("agent_started", started, at)
                metrics.agents.add(1, {names.AGENT_KIND: event.kind})
            case AgentEnded():
                span.add_event("agent_ended", {names.AGENT: event.agent, names.STATE: event.status}, at)
                metrics.agents_ended.add(1, {names.STATE: event.status})
            case MessageArrived():
                span.add_event("message_arrived", {names.MESSAGE_ID: event.id, names.SENDER: event.sender}, at)
                metrics.messages.add(1)
            case UserMessaged():
                span.add_event("user_messaged", {names.SENDER: event.sender}, at)

    def close(self) -> None:
        """End all spans of sessions that are still open."""
        for session, spans in list(self._sessions.items()):
            self._close(session, spans, self._clock())

    def _open(self, session: str) -> SessionSpans:
        attributes = {names.CONVERSATION_ID: session}
        span = self._tracer.start_span(names.SESSION_SPAN, attributes=attributes, start_time=self._clock())
        spans = self._sessions[session] = SessionSpans(session, span)
        return spans

    def _close(self, session: str, spans: SessionSpans, at: int) -> None:
        self._give_up(spans, at)
        spans.close(at)
        del self._sessions[session]

    def _ask(self, spans: SessionSpans, event: RequestPrepared, at: int) -> None:
        from opentelemetry.trace import SpanKind

        self._give_up(spans, at)
        spans.note_query_start(at)
        attributes: dict[str, Any] = {
            **model_attributes(spans.model),
            names.CONVERSATION_ID: event.session,
            names.MESSAGES: event.messages,
            names.COUNTED_TOKENS: event.tokens,
            names.WINDOW_TOKENS: event.window,
        }
        name = f"{names.CHAT} {spans.model}".rstrip()
        spans.request = start_span(self._tracer, spans.span, name, attributes, at, kind=SpanKind.CLIENT)
        spans.asked_ns = at
        if event.window > 0:
            self._metrics.share.record(event.tokens / event.window, model_attributes(spans.model))

    def _answer(self, spans: SessionSpans, event: ReplyObserved, at: int) -> None:
        counts = token_counts(event.usage)
        asked = {**model_attributes(spans.model or event.model), names.RESPONSE_MODEL: event.model}
        for kind, tokens in counts.items():
            self._metrics.tokens.record(tokens, {**asked, names.TOKEN_TYPE: kind})
        span, spans.request = spans.request, None
        if span is None:  # a reply to a request that this listener did not see
            return
        span.set_attributes({names.RESPONSE_ID: event.message_id, names.RESPONSE_MODEL: event.model})
        span.set_attributes({name: tokens for kind, tokens in counts.items() for name in names.USAGE[kind]})
        span.end(at)
        self._metrics.duration.record((at - spans.asked_ns) / 1e9, asked)

    def _give_up(self, spans: SessionSpans, at: int) -> None:
        """End the span of a request for which no reply was observed, if there is one, and count it."""
        if spans.give_up_request(at):
            self._metrics.unanswered.add(1, model_attributes(spans.model))

    def _finish_tool(self, spans: SessionSpans, event: ToolFinished, at: int) -> None:
        spans.finish_tool(self._tracer, event, at)
        self._metrics.tool_duration.record(event.seconds, {names.TOOL_NAME: event.name, names.FAILED: event.is_error})
