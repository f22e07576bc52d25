"""Spans and metrics are derived from events, with the names of the conventions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from reverie.events import (
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
from reverie.telemetry import OpenTelemetry, otel, semconv
from reverie.telemetry.otel import token_counts

Live = Callable[..., list[Event]]


class Collected:
    """An SDK that keeps what it is given in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracing, self.metering = TracerProvider(), MeterProvider([self.reader])
        self.tracing.add_span_processor(SimpleSpanProcessor(self.exporter))
        seconds = count(1_000, 2)
        self.listener = OpenTelemetry(
            tracer_provider=self.tracing,
            meter_provider=self.metering,
            clock=lambda: next(seconds) * 1_000_000_000,
        )

    def spans(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(start)]

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        metrics = [
            one
            for part in (data.resource_metrics if data else [])
            for scope in part.scope_metrics
            for one in scope.metrics
        ]
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.mark.requirement("F3")
def test_a_session_is_a_span_and_every_request_one_inside_it(collected: Collected, watched_life: Live) -> None:
    watched_life(collected.listener)
    (session,) = collected.spans("reverie.session")
    answered, unanswered = collected.spans("chat")
    assert session.attributes is not None
    assert session.attributes["gen_ai.conversation.id"] == "watched"
    for span in (answered, unanswered):
        assert span.parent is not None
        assert span.parent.span_id == session.context.span_id
        assert (span.kind, span.name) == (SpanKind.CLIENT, "chat claude-sonnet-4-5")
    assert answered.status.status_code is not StatusCode.ERROR
    assert unanswered.status.status_code is StatusCode.ERROR
    names = [event.name for event in session.events]
    assert names.count("entry") == 4
    assert names.count("decision") == 4


@pytest.mark.requirement("F3")
def test_a_reply_reports_its_tokens_under_the_newer_and_the_older_names(
    collected: Collected, watched_life: Live
) -> None:
    watched_life(collected.listener)
    attributes = collected.spans("chat")[0].attributes
    assert attributes is not None
    assert {name: attributes[name] for name in attributes if name.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.system": "anthropic",
        "gen_ai.conversation.id": "watched",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.response.model": "claude-sonnet-4-5-20250929",
        "gen_ai.response.id": "msg_1",
        "gen_ai.usage.input_tokens": 2_410,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 2_000,
        "gen_ai.usage.cache_write.input_tokens": 400,
        "gen_ai.usage.cache_creation.input_tokens": 400,
    }


@pytest.mark.requirement("F3")
def test_metrics_count_what_happened(collected: Collected, watched_life: Live) -> None:
    watched_life(collected.listener)
    tokens = {point.attributes["gen_ai.token.type"]: point.sum for point in collected.points(semconv.TOKEN_USAGE)}
    assert tokens == {"input": 2_410, "output": 7, "cache_read": 2_000, "cache_write": 400}
    (duration,) = collected.points(semconv.OPERATION_DURATION)
    assert duration.sum > 0
    decided = {point.attributes["reverie.decision"]: point.value for point in collected.points("reverie.decisions")}
    assert decided == {"prefix_rendered": 2, "call_recorded": 1, "results_cleared": 1}
    assert [point.value for point in collected.points("reverie.tokens.freed")] == [120]
    assert [point.value for point in collected.points("reverie.prefix.moves")] == [1, 1]
    assert [point.value for point in collected.points("reverie.requests.unanswered")] == [1]
    assert sum(point.count for point in collected.points("reverie.window.share")) == 2


@pytest.mark.requirement("F3")
def test_trouble_is_counted_and_named(collected: Collected) -> None:
    events: list[Event] = [
        LogDamaged("s", 7, "not JSON"),
        InboxDrained("s", 3),
        FellBack("s", "tools", "none were given"),
        RequestPrepared("s", 1, 10, 0),
    ]
    for event in events:
        collected.listener(event)
    collected.listener.close()
    collected.listener.close()
    (session,) = collected.spans("reverie.session")
    assert [event.name for event in session.events] == ["log_damaged", "inbox_drained", "fell_back"]
    assert [point.value for point in collected.points("reverie.log.damaged_lines")] == [1]
    assert [point.value for point in collected.points("reverie.inbox.drained")] == [3]
    assert [point.value for point in collected.points("reverie.fallbacks")] == [1]


SECRET = "hunter2"
A_QUERY: list[Event] = [
    EntryAppended("s", "u1", "user"),
    RequestPrepared("s", 1, 10, 100),
    ModelRetried("s", "anthropic:claude-test", 1, 0.5, "overloaded"),
    ThinkingStreamed("s", SECRET),
    TextStreamed("s", SECRET),
    ToolStarted("s", "t1", "Read", {"file_path": SECRET}),
    ToolStarted("s", "t2", "Bash", {"command": SECRET}),
    PermissionDecided("s", "Bash", False, "rule", SECRET),
    ToolFinished("s", "t2", "Bash", True, SECRET, 0.5),
    ToolFinished("s", "t1", "Read", False, SECRET, 1.5),
    HookRan("s", f"./check {SECRET}", "after_tool", SECRET, "exit code 1"),
    ResultsTrimmed("s", "idle", ["Read"], [SECRET], 900, 400),
    CacheBroken("s", "the server", 2_000, None),
    CompactionProgressed("s", "hooks before"),
    CompactionProgressed("s", "compacting", 700),
    CompactionEnded("s", "auto", "notes", 170_000, 30_000, 2, 0, 0.25),
    CompactionProgressed("s", "hooks after"),
    CompactionProgressed("s", "done"),
    NotesWritten("s", "local", ["Worklog", "Current State"]),
    BackgroundChanged("s", "notes", "ended", SECRET),
    DreamChanged("s", "d1", "updating", SECRET, 2, [SECRET]),
    AgentStarted("s", "a1", "explore", SECRET),
    AgentProgressed("s", "a1", SECRET),
    AgentEnded("s", "a1", "completed", SECRET),
    MessageArrived("s", "m1", "worker", SECRET),
    UserMessaged("s", "worker", SECRET, SECRET),
    QueryEnded("s", "completed", SECRET, 2, 0.5),
    SessionClosed("s"),
]


@pytest.mark.requirement("F3")
def test_tools_compactions_and_queries_are_spans_inside_the_session(collected: Collected) -> None:
    for event in A_QUERY:
        collected.listener(event)
    (session,) = collected.spans("reverie.session")
    (query,), (compaction,) = collected.spans("invoke_agent"), collected.spans("reverie.compaction")
    (read,), (bash,) = collected.spans("execute_tool Read"), collected.spans("execute_tool Bash")
    (request,) = collected.spans("chat")
    for span in (query, compaction, read, bash, request):
        assert span.parent is not None
        assert span.parent.span_id == session.context.span_id
    assert read.attributes is not None
    assert (read.attributes["gen_ai.tool.name"], read.attributes["gen_ai.tool.call.id"]) == ("Read", "t1")
    assert (bash.status.status_code, read.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert compaction.attributes is not None
    assert compaction.attributes["reverie.compaction.tokens_after"] == 30_000
    assert compaction.status.status_code is StatusCode.UNSET
    assert query.attributes is not None
    assert (query.attributes["reverie.query.end"], query.attributes["reverie.query.turns"]) == ("completed", 2)
    assert query.start_time is not None
    assert read.start_time is not None
    assert query.start_time < read.start_time, "the query began with what the user said"
    assert [event.name for event in request.events] == ["model_retried"]
    mentioned = {event.name for event in session.events}
    assert {"permission_decided", "hook_ran", "notes_written", "background_changed", "cache_broken"} <= mentioned


@pytest.mark.requirement("F3")
def test_metrics_count_tools_retries_hooks_compactions_and_ends(collected: Collected) -> None:
    for event in A_QUERY:
        collected.listener(event)
    durations = {point.attributes["gen_ai.tool.name"]: point.sum for point in collected.points("reverie.tool.duration")}
    assert durations == {"Read": 1.5, "Bash": 0.5}
    counted = (
        "reverie.requests.retried",
        "reverie.cache.breaks",
        "reverie.hooks",
        "reverie.compactions",
        "reverie.notes.updates",
    )
    assert [[point.value for point in collected.points(name)] for name in counted] == [[1]] * len(counted)
    assert [point.value for point in collected.points("reverie.compactions.tokens_freed")] == [140_000]
    (ended,) = collected.points("reverie.queries")
    assert dict(ended.attributes) == {"reverie.query.end": "completed"}
    (refused,) = collected.points("reverie.permissions")
    assert refused.attributes["reverie.permission.allowed"] is False


@pytest.mark.requirement("F3")
def test_what_never_ends_ends_as_an_error_with_the_session(collected: Collected) -> None:
    events: list[Event] = [
        ToolStarted("s", "t1", "Read", {}),
        ToolStarted("s", "t1", "Read", {}),
        CompactionProgressed("s", "compacting"),
        CompactionProgressed("s", "done"),
        CompactionProgressed("s", "compacting"),
        QueryEnded("s", "model_error", "no answer", 1),
    ]
    for event in events:
        collected.listener(event)
    collected.listener.close()
    ended = [*collected.spans("execute_tool"), *collected.spans("invoke_agent")]
    assert [span.status.status_code for span in ended] == [StatusCode.ERROR] * 3
    planned, broken = collected.spans("reverie.compaction")
    assert (planned.status.status_code, broken.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)


@pytest.mark.requirement("F3")
@pytest.mark.parametrize("told_last", [True, False])
def test_a_compaction_is_one_span_whether_its_end_is_told_before_or_after_it_is_done(
    collected: Collected, told_last: bool
) -> None:
    ended, done = CompactionEnded("s", "auto", "notes", 9, 3, 0, 0), CompactionProgressed("s", "done")
    phases = [CompactionProgressed("s", phase) for phase in ("compacting", "hooks before", "compacting")]
    for event in (*phases, *((done, ended) if told_last else (ended, done))):
        collected.listener(event)
    collected.listener.close()
    (span,) = collected.spans("reverie.compaction")
    assert span.status.status_code is StatusCode.UNSET


def test_a_tool_whose_start_was_not_heard_began_as_long_ago_as_it_says(collected: Collected) -> None:
    collected.listener(ToolFinished("s", "t1", "Read", False, "", 1.5))
    (span,) = collected.spans("execute_tool")
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == 1_500_000_000


def test_nothing_that_an_agent_saw_or_did_leaves_through_telemetry(collected: Collected) -> None:
    for event in A_QUERY:
        collected.listener(event)
    spans = "".join(span.to_json() for span in collected.exporter.get_finished_spans())
    assert SECRET not in spans
    assert SECRET not in str(collected.reader.get_metrics_data())


def test_nothing_that_was_said_leaves_through_telemetry(collected: Collected, watched_life: Live) -> None:
    watched_life(collected.listener)
    spans = "".join(span.to_json() for span in collected.exporter.get_finished_spans())
    assert "cache is cold" in spans
    assert "hunter2" not in spans
    assert "file content" not in spans


def test_sessions_at_the_same_time_have_spans_of_their_own(collected: Collected) -> None:
    for name in ("a", "b"):
        collected.listener(RequestPrepared(name, 1, 10, 100))
    for name in ("a", "b"):
        collected.listener(SessionClosed(name))
    parents = {span.parent.span_id for span in collected.spans("chat") if span.parent}
    assert parents == {span.context.span_id for span in collected.spans("reverie.session")}
    assert len(parents) == 2


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({}, {}),
        ({"input_tokens": 5}, {"input": 5}),
        ({"input_tokens": True, "output_tokens": -1, "cache_read_input_tokens": "9"}, {}),
        ({"input_tokens": 0, "cache_read_input_tokens": 9}, {"input": 9, "cache_read": 9}),
    ],
)
def test_tokens_are_taken_as_reported_or_not_at_all(usage: dict[str, Any], counts: dict[str, int]) -> None:
    assert token_counts(usage) == counts


def test_every_event_is_noted_or_opens_or_ends_a_span_or_is_left_out_on_purpose() -> None:
    spanned = {
        *(SessionOpened, SessionClosed, DecisionMade, RequestPrepared, ReplyObserved, ToolStarted, ToolFinished),
        *(CompactionProgressed, CompactionEnded, QueryEnded),
    }
    assert {*otel.NOTED, *otel.IGNORED, *spanned} == EVENTS.keys()
    assert not otel.NOTED.keys() & spanned


def test_every_name_of_the_conventions_is_one_they_have() -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

    known = {
        value
        for module in (gen_ai_attributes, gen_ai_metrics)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {value for value in vars(semconv).values() if isinstance(value, str) and value.startswith("gen_ai.")}
    ours |= {name for spellings in semconv.USAGE.values() for name in spellings} | set(semconv.PROVIDER_NAMES)
    # The newer spelling of a cache write is ahead of the installed package, or behind it.
    assert ours - known <= {"gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens"}


def test_watching_loads_opentelemetry_only_when_it_is_asked_for() -> None:
    code = "import sys, reverie.telemetry; print('opentelemetry' in {name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


def test_without_the_package_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from reverie.telemetry import OpenTelemetry\n"
        "try:\n    OpenTelemetry()\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("InputError")
    assert "reverie[otel]" in done.stdout
