"""The open spans of one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..events import CompactionEnded, QueryEnded, ToolFinished, ToolStarted
from . import semconv as names

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanKind, Tracer

# A query with one of these ends has failed.
_FAILED_ENDS: Final = frozenset({"blocking_limit", "prompt_too_long", "model_error"})
_OPENING_PHASES: Final = frozenset({"hooks before", "compacting"})


def start_span(
    tracer: Tracer, parent: Span, name: str, attributes: dict[str, Any], at: int, *, kind: SpanKind | None = None
) -> Span:
    """Start a span inside another at a time in nanoseconds, and return it; the default kind is internal."""
    from opentelemetry.trace import SpanKind, set_span_in_context

    return tracer.start_span(
        name,
        context=set_span_in_context(parent),
        kind=SpanKind.INTERNAL if kind is None else kind,
        attributes=attributes,
        start_time=at,
    )


def end_as_error(span: Span, why: str, at: int) -> None:
    """End a span with an error status and the reason ``why``."""
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR, why)
    span.end(at)


class SessionSpans:
    """One session's span and the open spans inside it; times are in nanoseconds."""

    def __init__(self, session: str, span: Span) -> None:
        self.session = session
        self.span = span
        self.model = ""
        self.request: Span | None = None
        self.asked_ns = 0
        self._tools: dict[str, Span] = {}
        self._compaction: Span | None = None
        self._done_ns: int | None = None
        self._query_ns: int | None = None

    def give_up_request(self, at: int) -> bool:
        """End the span of a request without an observed reply as an error; return whether there was one."""
        span, self.request = self.request, None
        if span is not None:
            end_as_error(span, "no reply was observed", at)
        return span is not None

    def start_tool(self, tracer: Tracer, event: ToolStarted, at: int) -> None:
        """Start a tool call's span; an open span with the same call id ends as an error."""
        given_up = self._tools.pop(event.id, None)
        if given_up is not None:
            end_as_error(given_up, "it did not return", at)
        self._tools[event.id] = self._tool_span(tracer, event.id, event.name, at)

    def finish_tool(self, tracer: Tracer, event: ToolFinished, at: int) -> None:
        """End a tool call's span; without a start event, make one that begins the reported seconds earlier."""
        span = self._tools.pop(event.id, None)
        if span is None:
            span = self._tool_span(tracer, event.id, event.name, at - max(0, int(event.seconds * 1e9)))
        if event.is_error:
            end_as_error(span, "the tool reported an error", at)
        else:
            span.end(at)

    def _tool_span(self, tracer: Tracer, called: str, name: str, at: int) -> Span:
        attributes = {
            names.OPERATION_NAME: names.EXECUTE_TOOL,
            names.CONVERSATION_ID: self.session,
            names.TOOL_NAME: name,
            names.TOOL_CALL_ID: called,
        }
        return start_span(tracer, self.span, f"{names.EXECUTE_TOOL} {name}", attributes, at)

    def note_compaction_phase(self, tracer: Tracer, phase: str, at: int) -> None:
        """Start a compaction's span at its first phase; at ``done`` note the time: the end event may come later."""
        if phase == "done":
            self._done_ns = at
        elif phase in _OPENING_PHASES:
            if self._done_ns is not None:
                self._leave_compaction(at)
            if self._compaction is None:
                attributes = {names.CONVERSATION_ID: self.session}
                self._compaction = start_span(tracer, self.span, names.COMPACTION_SPAN, attributes, at)

    def end_compaction(self, event: CompactionEnded, at: int) -> None:
        """End the compaction's span with its figures; without one, add them as an event to the session's span."""
        attributes: dict[str, Any] = {
            names.TRIGGER: event.trigger,
            names.METHOD: event.method,
            names.TOKENS_BEFORE: event.tokens_before,
            names.TOKENS_AFTER: event.tokens_after,
            names.LOST: event.lost,
            names.MODEL_CALLS: event.model_calls,
        }
        if event.cost_usd is not None:
            attributes[names.COST_USD] = event.cost_usd
        span, self._compaction, self._done_ns = self._compaction, None, None
        if span is None:
            self.span.add_event("compaction_ended", attributes, at)
            return
        span.set_attributes(attributes)
        span.end(at)

    def _leave_compaction(self, at: int) -> None:
        """End the span of a compaction without an end event, as an error unless its last phase was noted."""
        span, done, self._compaction, self._done_ns = self._compaction, self._done_ns, None, None
        if span is not None and done is not None:
            span.end(done)
        elif span is not None:
            end_as_error(span, "it did not end", at)

    def note_query_start(self, at: int, kind: str = "user") -> None:
        """Note when a query began, if none is open: with an entry of the kind ``user``, or with a request."""
        if self._query_ns is None and kind == "user":
            self._query_ns = at

    def end_query(self, tracer: Tracer, event: QueryEnded, at: int) -> None:
        """Add the whole span of a query that is over, with its end, turns and cost."""
        began, self._query_ns = self._query_ns, None
        attributes: dict[str, Any] = {
            names.OPERATION_NAME: names.INVOKE_AGENT,
            names.CONVERSATION_ID: self.session,
            names.END: event.end,
            names.TURNS: event.turns,
        }
        if event.cost_usd is not None:
            attributes[names.COST_USD] = event.cost_usd
        span = start_span(tracer, self.span, names.INVOKE_AGENT, attributes, at if began is None else began)
        if event.end in _FAILED_ENDS:
            end_as_error(span, event.end, at)
        else:
            span.end(at)

    def close(self, at: int) -> None:
        """End the session's span and all open spans of tools and compactions in it, but not that of a request."""
        for span in self._tools.values():
            end_as_error(span, "it did not return", at)
        self._tools.clear()
        self._leave_compaction(at)
        self.span.end(at)
