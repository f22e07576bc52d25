"""Spans and metrics from events, through OpenTelemetry.

A session is a span from its opening to its closing; every request with its reply, every tool call, every compaction
and every query is a span inside it; all other events are span events on the session's span. Without an SDK set up by
the program all of it costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from ..conversation.decisions import Decision, PrefixRendered, name_of
from ..errors import InputError
from ..events import (
    EVENTS,
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
    PromptAdded,
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
from ..extras import needing
from ..values import record
from . import semconv as names
from .spans import SessionSpans, start_span

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
# The whole reply follows, and an agent's own session reports its steps.
IGNORED: Final = (TextStreamed, ThinkingStreamed, AgentProgressed, PromptAdded)
_PROVIDERS: Final = {"claude": "anthropic", "gpt": "openai", "gemini": "gcp.gemini", "mistral": "mistral_ai"}


@record
class NotedEvent:
    """The attributes of an event on the session's span, and the counter that counts it, with its attributes."""

    attributes: dict[str, Any]
    counter: str = ""
    counted: tuple[str, ...] = ()
    """The attributes of the event that the counter has as well."""
    count: int = 1


# Events that are only noted on the session's span and counted.
NOTED: Final[dict[type[Event], Callable[[Any], NotedEvent]]] = {
    EntryAppended: lambda one: NotedEvent({names.KIND: one.kind, names.ENTRY: one.uuid}, "entries", (names.KIND,)),
    LogDamaged: lambda one: NotedEvent({names.LINE: one.line, names.WHY: one.reason}, "damaged"),
    InboxDrained: lambda one: NotedEvent({names.COMMANDS: one.commands}, "commands", count=one.commands),
    FellBack: lambda one: NotedEvent({names.WHAT: one.what, names.WHY: one.why}, "fallbacks", (names.WHAT,)),
    ResultsTrimmed: lambda one: NotedEvent(
        {names.WHY: one.trigger, names.TOKENS_FREED: one.tokens_before - one.tokens_after}
    ),
    CacheBroken: lambda one: NotedEvent({names.WHY: one.reason, names.TOKENS_LOST: one.tokens}, "breaks"),
    PermissionDecided: lambda one: NotedEvent(
        {names.TOOL_NAME: one.tool, names.ALLOWED: one.allowed, names.BY: one.by},
        "permissions",
        (names.TOOL_NAME, names.ALLOWED, names.BY),
    ),
    ModelRetried: lambda one: NotedEvent(
        {names.REQUEST_MODEL: one.model, names.ATTEMPT: one.attempt, names.WHY: one.why},
        "retries",
        (names.REQUEST_MODEL,),
    ),
    ModelChanged: lambda one: NotedEvent({names.REQUEST_MODEL: one.after, names.COUNTED_TOKENS: one.tokens}),
    HookRan: lambda one: NotedEvent(
        {names.HOOK_EVENT: one.moment, names.FAILED: bool(one.problem)}, "hooks", (names.HOOK_EVENT, names.FAILED)
    ),
    NotesWritten: lambda one: NotedEvent({names.BY: one.by, names.SECTIONS: len(one.sections)}, "notes", (names.BY,)),
    BackgroundChanged: lambda one: NotedEvent(
        {names.WORK: one.what, names.STATE: one.state}, "background", (names.WORK, names.STATE)
    ),
    DreamChanged: lambda one: NotedEvent(
        {names.WORK: "dream", names.STATE: one.state, names.DREAM: one.dream}, "background", (names.WORK, names.STATE)
    ),
    AgentStarted: lambda one: NotedEvent(
        {names.AGENT: one.agent, names.AGENT_KIND: one.kind}, "agents", (names.AGENT_KIND,)
    ),
    AgentEnded: lambda one: NotedEvent(
        {names.AGENT: one.agent, names.STATE: one.status}, "agents_ended", (names.STATE,)
    ),
    MessageArrived: lambda one: NotedEvent({names.MESSAGE_ID: one.id, names.SENDER: one.sender}, "messages"),
    UserMessaged: lambda one: NotedEvent({names.SENDER: one.sender}),
}


class OpenTelemetry:
    """A listener that turns events into spans and metrics; one listener may serve any number of sessions."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        clock: Callable[[], int] = time_ns,
    ) -> None:
        with needing("otel", "OpenTelemetry is not installed", InputError):
            from opentelemetry.metrics import get_meter
            from opentelemetry.trace import get_tracer
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
            case DecisionMade():
                if isinstance(event.decision, PrefixRendered):
                    spans.model = event.decision.model
                decided = {**decision_attributes(event.decision), names.ENTRY: event.uuid}
                spans.span.add_event("decision", decided, at)
                self._metrics.decision(event.decision)
            case _ if type(event) in NOTED:
                self._note(spans, event, at)
            case _:
                self._record_step(spans, event, at)

    def _record_step(self, spans: SessionSpans, event: Event, at: int) -> None:
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
            case _:
                assert isinstance(event, IGNORED), event

    def _note(self, spans: SessionSpans, event: Event, at: int) -> None:
        """Add an event to the session's span, a retry to its request's, and count it."""
        noted, name, span = NOTED[type(event)](event), EVENTS[type(event)], spans.span
        if isinstance(event, EntryAppended):
            spans.note_query_start(at, event.kind)
            name = "entry"
        elif isinstance(event, ModelRetried):
            span = spans.request or span
        span.add_event(name, noted.attributes, at)
        if noted.counter:
            counted = {name: noted.attributes[name] for name in noted.counted}
            getattr(self._metrics, noted.counter).add(noted.count, counted)

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
        if spans.give_up_request(at):
            self._metrics.unanswered.add(1, model_attributes(spans.model))

    def _finish_tool(self, spans: SessionSpans, event: ToolFinished, at: int) -> None:
        spans.finish_tool(self._tracer, event, at)
        self._metrics.tool_duration.record(event.seconds, {names.TOOL_NAME: event.name, names.FAILED: event.is_error})


class Metrics:
    """All metric instruments, created from one OpenTelemetry meter."""

    def __init__(self, meter: Any) -> None:
        counter, histogram = meter.create_counter, meter.create_histogram
        self.sessions = counter("reverie.sessions", "{session}", "Sessions opened.")
        self.entries = counter("reverie.entries", "{entry}", "Messages and metadata logged.")
        self.decisions = counter("reverie.decisions", "{decision}", "Decisions logged.")
        self.freed = counter("reverie.tokens.freed", "{token}", "Tokens that decisions took out of view.")
        self.moves = counter("reverie.prefix.moves", "{move}", "Decisions that moved the cached prefix.")
        self.breaks = counter("reverie.cache.breaks", "{break}", "Calls that read less from the cache.")
        self.damaged = counter("reverie.log.damaged_lines", "{line}", "Lines of logs that could not be read.")
        self.commands = counter("reverie.inbox.drained", "{command}", "Commands taken from inboxes.")
        self.fallbacks = counter("reverie.fallbacks", "{fallback}", "Fallbacks taken.")
        self.unanswered = counter("reverie.requests.unanswered", "{request}", "Requests without an observed reply.")
        self.retries = counter("reverie.requests.retried", "{retry}", "Requests that were sent again.")
        self.permissions = counter("reverie.permissions", "{decision}", "Tool calls allowed or denied.")
        self.hooks = counter("reverie.hooks", "{run}", "Hooks that ran.")
        self.queries = counter("reverie.queries", "{query}", "Queries, by how they ended.")
        self.compactions = counter("reverie.compactions", "{compaction}", "Compactions.")
        self.compacted = counter("reverie.compactions.tokens_freed", "{token}", "Tokens that compactions freed.")
        self.notes = counter("reverie.notes.updates", "{update}", "Updates of running notes.")
        self.background = counter("reverie.background", "{change}", "Background work, by state.")
        self.agents = counter("reverie.agents", "{agent}", "Agents started, by type.")
        self.agents_ended = counter("reverie.agents.ended", "{agent}", "Agents ended, by status.")
        self.messages = counter("reverie.messages", "{message}", "Messages from other agents.")
        self.share = histogram("reverie.window.share", "1", "Share of the window a request counts.")
        self.tokens = histogram(names.TOKEN_USAGE, "{token}", "Tokens of a reply, by type.")
        self.duration = histogram(names.OPERATION_DURATION, "s", "From request to reply.")
        self.tool_duration = histogram("reverie.tool.duration", "s", "How long a tool ran.")

    def decision(self, decision: Decision) -> None:
        """Count a decision, the tokens it frees and whether it moves the cached prefix."""
        made = {names.DECISION: name_of(decision), names.LAYER: decision.cause.layer}
        self.decisions.add(1, made)
        if decision.cause.frees > 0:
            self.freed.add(decision.cause.frees, made)
        if decision.cause.moves_prefix:
            self.moves.add(1, made)

    def compaction(self, event: CompactionEnded) -> None:
        """Count a finished compaction and the tokens it freed."""
        how = {names.TRIGGER: event.trigger, names.METHOD: event.method}
        self.compactions.add(1, how)
        self.compacted.add(max(0, event.tokens_before - event.tokens_after), how)


def decision_attributes(decision: Decision) -> dict[str, Any]:
    """Return a dict of a decision's name, layer, reason and effect, without any words of the conversation."""
    cause = decision.cause
    return {
        names.DECISION: name_of(decision),
        names.LAYER: cause.layer,
        names.REASON: cause.reason,
        names.FREES: cause.frees,
        names.MOVES_PREFIX: cause.moves_prefix,
    }


def model_attributes(model: str) -> dict[str, Any]:
    """Return a dict of the operation, the model and, if the model's name implies it, the provider."""
    bare = model.lower().split("/")[-1]
    provider = next((name for start, name in _PROVIDERS.items() if bare.startswith(start)), None)
    found: dict[str, Any] = {names.OPERATION_NAME: names.CHAT}
    if model:
        found[names.REQUEST_MODEL] = model
    if provider is not None:
        found.update(dict.fromkeys(names.PROVIDER_NAMES, provider))
    return found


def token_counts(usage: Mapping[str, Any]) -> dict[str, int]:
    """Return the reported tokens of a reply by kind; ``input`` includes cached input, as the conventions define it."""
    read, written = _whole(usage, "cache_read_input_tokens"), _whole(usage, "cache_creation_input_tokens")
    uncached, output = _whole(usage, "input_tokens"), _whole(usage, "output_tokens")
    counts = {"cache_read": read, "cache_write": written, "output": output}
    found = {kind: tokens for kind, tokens in counts.items() if tokens is not None}
    if uncached is not None:
        found["input"] = uncached + (read or 0) + (written or 0)
    return found


def _whole(usage: Mapping[str, Any], key: str) -> int | None:
    value = usage.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
