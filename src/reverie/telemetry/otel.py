"""Spans and metrics from events, through OpenTelemetry.

A session is a span from its opening to its closing; every request with its reply is a span inside it; everything
else is an event on the session's span. Without an SDK set up by the program all of it costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from ..conversation.decisions import Decision, PrefixRendered, name_of
from ..errors import InputError
from ..events import (
    CacheBroken,
    DecisionMade,
    EntryAppended,
    Event,
    FellBack,
    InboxDrained,
    LogDamaged,
    ReplyObserved,
    RequestPrepared,
    ResultsTrimmed,
    SessionClosed,
    SessionOpened,
)
from . import semconv as names

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["OpenTelemetry", "token_counts"]

_PROVIDERS = {"claude": "anthropic", "gpt": "openai", "gemini": "gcp.gemini", "mistral": "mistral_ai"}


class Clock(Protocol):
    """What gives the time in nanoseconds."""

    def __call__(self) -> int:
        """Return nanoseconds since 1970."""
        ...


class Watched:
    """The open spans of one session."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.model = ""
        self.request: Span | None = None
        self.asked_ns = 0


class OpenTelemetry:
    """A listener that makes spans and metrics; one may serve any number of sessions."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        clock: Clock = time_ns,
    ) -> None:
        try:
            from opentelemetry.metrics import get_meter
            from opentelemetry.trace import get_tracer
        except ImportError:
            raise InputError("OpenTelemetry is not installed: pip install 'reverie[otel]'") from None
        self._tracer = get_tracer("reverie", tracer_provider=tracer_provider)
        self._metrics = Metrics(get_meter("reverie", meter_provider=meter_provider))
        self._clock = clock
        self._sessions: dict[str, Watched] = {}

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
            case EntryAppended():
                watched.span.add_event("entry", {names.KIND: event.kind, names.ENTRY: event.uuid}, at)
                self._metrics.entries.add(1, {names.KIND: event.kind})
            case DecisionMade():
                if isinstance(event.decision, PrefixRendered):
                    watched.model = event.decision.model
                watched.span.add_event("decision", {**decision_attributes(event.decision), names.ENTRY: event.uuid}, at)
                self._metrics.decision(event.decision)
            case LogDamaged():
                watched.span.add_event("log_damaged", {names.LINE: event.line, names.WHY: event.reason}, at)
                self._metrics.damaged.add(1)
            case InboxDrained():
                watched.span.add_event("inbox_drained", {names.COMMANDS: event.commands}, at)
                self._metrics.commands.add(event.commands)
            case FellBack():
                watched.span.add_event("fell_back", {names.WHAT: event.what, names.WHY: event.why}, at)
                self._metrics.fallbacks.add(1, {names.WHAT: event.what})
            case ResultsTrimmed():
                freed = event.tokens_before - event.tokens_after
                watched.span.add_event("results_trimmed", {names.WHY: event.trigger, "reverie.tokens_freed": freed}, at)
            case CacheBroken():
                watched.span.add_event("cache_broken", {names.WHY: event.reason, "reverie.tokens": event.tokens}, at)
            case _:
                assert_never(event)

    def close(self) -> None:
        """End the spans of sessions that were not closed."""
        for session, watched in list(self._sessions.items()):
            self._close(session, watched, self._clock())

    def _open(self, session: str) -> Watched:
        attributes = {names.CONVERSATION_ID: session}
        span = self._tracer.start_span(names.SESSION_SPAN, attributes=attributes, start_time=self._clock())
        watched = self._sessions[session] = Watched(span)
        return watched

    def _close(self, session: str, watched: Watched, at: int) -> None:
        self._give_up(watched, at)
        watched.span.end(at)
        del self._sessions[session]

    def _ask(self, watched: Watched, event: RequestPrepared, at: int) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context

        self._give_up(watched, at)
        attributes: dict[str, Any] = {
            **model_attributes(watched.model),
            names.CONVERSATION_ID: event.session,
            names.MESSAGES: event.messages,
            names.COUNTED_TOKENS: event.tokens,
            names.WINDOW_TOKENS: event.window,
        }
        watched.request = self._tracer.start_span(
            f"{names.CHAT} {watched.model}".rstrip(),
            context=set_span_in_context(watched.span),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=at,
        )
        watched.asked_ns = at
        if event.window > 0:
            self._metrics.share.record(event.tokens / event.window, model_attributes(watched.model))

    def _answer(self, watched: Watched, event: ReplyObserved, at: int) -> None:
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

    def _give_up(self, watched: Watched, at: int) -> None:
        """End a request that no reply was observed for."""
        from opentelemetry.trace import StatusCode

        span, watched.request = watched.request, None
        if span is not None:
            span.set_status(StatusCode.ERROR, "no reply was observed")
            span.end(at)
            self._metrics.unanswered.add(1, model_attributes(watched.model))


class Metrics:
    """Every instrument there is."""

    def __init__(self, meter: Any) -> None:
        self.sessions = meter.create_counter(names.SESSIONS, "{session}", "Sessions opened.")
        self.entries = meter.create_counter(names.APPENDED, "{entry}", "Messages and metadata logged.")
        self.decisions = meter.create_counter(names.DECISIONS, "{decision}", "Decisions logged.")
        self.freed = meter.create_counter(names.FREED_TOKENS, "{token}", "Tokens that decisions took out of view.")
        self.moves = meter.create_counter(names.PREFIX_MOVES, "{move}", "Decisions that moved the cached prefix.")
        self.damaged = meter.create_counter(names.DAMAGED_LINES, "{line}", "Lines of logs that could not be read.")
        self.commands = meter.create_counter(names.INBOX_COMMANDS, "{command}", "Commands taken from inboxes.")
        self.fallbacks = meter.create_counter(names.FALLBACKS, "{fallback}", "Lesser ways taken.")
        self.unanswered = meter.create_counter(names.UNANSWERED, "{request}", "Requests without an observed reply.")
        self.share = meter.create_histogram(names.WINDOW_SHARE, "1", "Share of the window a request counts.")
        self.tokens = meter.create_histogram(names.TOKEN_USAGE, "{token}", "Tokens of a reply, by type.")
        self.duration = meter.create_histogram(names.OPERATION_DURATION, "s", "From request to reply.")

    def decision(self, decision: Decision) -> None:
        """Count a decision and what it does to the bill."""
        made = {names.DECISION: name_of(decision), names.LAYER: decision.cause.layer}
        self.decisions.add(1, made)
        if decision.cause.frees > 0:
            self.freed.add(decision.cause.frees, made)
        if decision.cause.moves_prefix:
            self.moves.add(1, made)


def decision_attributes(decision: Decision) -> dict[str, Any]:
    """Say who decided what and why, and nothing of what was said."""
    cause = decision.cause
    return {
        names.DECISION: name_of(decision),
        names.LAYER: cause.layer,
        names.REASON: cause.reason,
        names.FREES: cause.frees,
        names.MOVES_PREFIX: cause.moves_prefix,
    }


def model_attributes(model: str) -> dict[str, Any]:
    """Name the operation, the model and, where its name tells, the provider."""
    bare = model.lower().split("/")[-1]
    provider = next((name for start, name in _PROVIDERS.items() if bare.startswith(start)), None)
    found: dict[str, Any] = {names.OPERATION_NAME: names.CHAT}
    if model:
        found[names.REQUEST_MODEL] = model
    if provider is not None:
        found.update(dict.fromkeys(names.PROVIDER_NAMES, provider))
    return found


def token_counts(usage: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens of a reply by kind; input is all input, cached or not, as the conventions have it."""
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
