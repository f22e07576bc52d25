"""Every act is one event of a closed union, and every event can be written down."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, assert_never, get_args

import anyio
import msgspec
import pytest

from reverie import InMemoryStorage, Session, Settings, events
from reverie.conversation.decisions import DECISIONS, Cause, CursorMoved, Decision, body_of
from reverie.conversation.log import parse_log
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
    event_body,
)
from reverie.runtime.places.projects import inbox_key, log_key, project_slug
from reverie.runtime.session.inbox import post

SAMPLES: list[Event] = [
    SessionOpened("s", 3, "write"),
    LogDamaged("s", 7, "not JSON"),
    EntryAppended("s", "u1", "user"),
    DecisionMade("s", "u2", CursorMoved(Cause("notes", "read so far"), "notes", "u1")),
    RequestPrepared("s", 4, 1_234, 200_000),
    ReplyObserved("s", "msg_1", "claude-test", {"input_tokens": 5, "nested": {"a": [1]}}),
    InboxDrained("s", 2),
    FellBack("s", "tools", "none were given"),
    ResultsTrimmed("s", "idle", ["Read"], ["/a.py"], 9_000, 4_000),
    CacheBroken("s", "tools[3].description changed", 12_000, 0.07),
    TextStreamed("s", "Hel"),
    ThinkingStreamed("s", "Let me"),
    PromptAdded("s", "Also the docs"),
    ToolStarted("s", "t1", "Read", {"file_path": "/a.py", "nested": {"a": [1, None]}}),
    ToolFinished("s", "t1", "Read", False, "1\timport os", 0.25),
    PermissionDecided("s", "Bash", False, "rule", "Bash(rm:*) is denied"),
    ModelRetried("s", "anthropic:claude-test", 2, 1.5, "overloaded"),
    ModelChanged("s", "one", "other", 3, 2, 40_000, 0.05),
    HookRan("s", "./check.sh", "before_tool", "looked at it", "exit code 1"),
    CompactionProgressed("s", "compacting", 1_200),
    CompactionEnded("s", "auto", "notes", 170_000, 30_000, 3, 0, None, {"freed": 0.8}),
    NotesWritten("s", "local", ["Worklog"], "u1"),
    BackgroundChanged("s", "notes", "began"),
    DreamChanged("s", "d1", "updating", "merging two memories", 4, ["feedback_tests.md"]),
    AgentStarted("s", "a1", "explore", "find the parser", True),
    AgentProgressed("s", "a1", "Reading view.py"),
    AgentEnded("s", "a1", "completed", "found it", 4, 12_000, 0.03),
    MessageArrived("s", "m1", "worker-2", "the tests pass"),
    UserMessaged("s", "worker-2", "The tests pass.", "tests"),
    QueryEnded("s", "completed", "", 3, 0.02),
    SessionClosed("s"),
]


def told(event: Event) -> str:
    """Say an event in words; the type checker proves that no event is forgotten."""
    match event:
        case SessionOpened() | SessionClosed():
            return "the session"
        case LogDamaged() | FellBack() | CacheBroken() | ModelRetried():
            return "trouble"
        case EntryAppended() | DecisionMade() | ResultsTrimmed():
            return "the log"
        case RequestPrepared() | ReplyObserved() | TextStreamed() | ThinkingStreamed() | ModelChanged() | QueryEnded():
            return "the model"
        case ToolStarted() | ToolFinished() | PermissionDecided():
            return "tools"
        case (
            PromptAdded()
            | UserMessaged()
            | InboxDrained()
            | HookRan()
            | MessageArrived()
            | AgentStarted()
            | AgentProgressed()
            | AgentEnded()
        ):
            return "others"
        case CompactionProgressed() | CompactionEnded() | NotesWritten() | BackgroundChanged() | DreamChanged():
            return "layers"
        case _:
            assert_never(event)


@pytest.mark.requirement("F3")
def test_the_union_is_closed_over_every_event_there_is() -> None:
    defined = {kind for kind in vars(events).values() if inspect.isclass(kind) and kind.__module__ == events.__name__}
    assert defined == set(get_args(Event)) == set(EVENTS) == {type(sample) for sample in SAMPLES}
    assert len(set(EVENTS.values())) == len(EVENTS)
    assert all(is_dataclass(kind) and next(iter(fields(kind))).name == "session" for kind in EVENTS)
    assert not any(item.name == "event" for kind in EVENTS for item in fields(kind)), "event is the name of the event"


@pytest.mark.requirement("F3")
@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: EVENTS[type(event)])
def test_every_event_can_be_matched_and_written_down(event: Event) -> None:
    assert told(event)
    body = event_body(event)
    assert next(iter(body.items())) == ("event", EVENTS[type(event)])
    assert set(body) == {"event", *(item.name for item in fields(event))}
    assert json.loads(json.dumps(body)) == msgspec.json.decode(msgspec.json.encode(body)) == body


@pytest.mark.requirement("F3")
@pytest.mark.parametrize("name", DECISIONS)
def test_every_decision_can_be_the_body_of_an_event(name: str) -> None:
    kind = DECISIONS[name]
    given: dict[str, Any] = {"cause": Cause("layer", "why"), "cleared": [], "images": []}
    annotated = {item.name: str(item.type) for item in fields(kind) if item.name not in given}
    plain = {"str": "x", "int": 1, "list": [], "dict": {}, "float": 0.5, "bool": True, "Any": None, "PlanState": "done"}
    for field, written in annotated.items():
        given[field] = plain[next(start for start in plain if written.startswith(start))]
    decision: Decision = kind(**{item.name: given[item.name] for item in fields(kind)})
    body = event_body(DecisionMade("s", "u", decision))
    assert body["decision"] == body_of(decision)
    assert json.loads(json.dumps(body)) == body


FORGETFUL = """
from typing import assert_never
from reverie.events import Event, SessionOpened

def told(event: Event) -> str:
    match event:
        case SessionOpened():
            return "opened"
        case _:
            assert_never(event)
"""


@pytest.mark.slow
def test_a_match_that_forgets_an_event_is_caught_by_the_type_checker(tmp_path: Path) -> None:
    forgetful = tmp_path / "forgetful.py"
    forgetful.write_text(FORGETFUL)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(forgetful)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    if done.returncode not in (0, 1):
        pytest.skip("pyright cannot run here")
    assert done.returncode == 1
    assert "LogDamaged" in done.stdout


@pytest.mark.requirement("F3")
def test_everything_a_session_does_is_streamed_and_what_it_logs_is_named(tmp_path: Path) -> None:
    storage, heard = InMemoryStorage(), list[Event]()
    project = project_slug(tmp_path)
    storage.append(log_key(project, "s"), b"{ damaged")
    post(storage, inbox_key(project, "s"), "say", {"text": "hello from next door"})

    async def live() -> None:
        session = Session.open("s", cwd=tmp_path, storage=storage, settings=Settings(home=tmp_path))
        session.listen(heard.append)
        session.listen(lambda event: 1 // 0)  # a listener that fails harms nobody
        async with session:
            await session.say("Why does it fail?")
            await session.prepare(model="claude-test", max_tokens=100)
            calls = await session.observe(
                {
                    "id": "m1",
                    "role": "assistant",
                    "model": "claude-test",
                    "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}],
                    "usage": {"input_tokens": 9, "output_tokens": 2},
                }
            )
            await session.result(calls[0].id, "text")
            await session.prepare(model="claude-test", max_tokens=100)

    anyio.run(live)
    names = [EVENTS[type(event)] for event in heard]
    assert names[0] == "session_opened"
    assert names[-1] == "session_closed"
    assert {"entry_appended", "decision_made", "request_prepared", "reply_observed", "inbox_drained"} <= set(names)
    logged = {entry.uuid for entry in parse_log(storage.load(log_key(project, "s")) or b"").entries}
    assert logged == {event.uuid for event in heard if isinstance(event, EntryAppended | DecisionMade)}
    assert [event.line for event in heard if isinstance(event, LogDamaged)] == [1]
