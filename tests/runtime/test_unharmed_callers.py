"""Callers that leave early, openings that fail and tools that return anything never harm the program around them."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import gc
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_stage import BOUND_SECONDS, Stage, plays, results, use
from reverie import Session, StorageError
from reverie.conversation.wire.validate import problems
from reverie.errors import SessionError
from reverie.events import BackgroundChanged, Event, FellBack, QueryEnded, TextStreamed, ToolFinished
from reverie.layers.l4_compact.policy import CompactPolicy
from reverie.layers.l5_extract.policy import ExtractPolicy
from reverie.models import ScriptedModel
from reverie.ports import Capabilities, Reply, ReplyDelta
from reverie.runtime.agent import agent as agent_module
from reverie.runtime.agent import tool_runs
from reverie.runtime.agent.agent import Agent
from reverie.runtime.session import patience
from reverie.runtime.session.background import IndependentTaskGroup
from reverie.runtime.session.compact.provider import ProviderSummaries
from reverie.settings import Settings, Switches
from reverie.storage.files import FileStorage
from reverie.storage.lock_files import FileLease
from reverie.tools.tool import Access, NoPreview, Output

QUIET = Switches(extraction=False, recall=False, dream=False)


def words(stage: Path, **given: Any) -> Stage:
    return Stage(stage, {"main": lambda turn, request: "word " * 50}, **given)


async def ended_early(agent: Agent, how: str) -> None:
    """Leave an answer at its first words in one of the ways that a program has."""
    if how == "break":
        async for event in agent.ask("one"):
            if isinstance(event, TextStreamed):
                break
    elif how == "raise":
        with suppress(ZeroDivisionError):
            async for event in agent.ask("one"):
                if isinstance(event, TextStreamed):
                    raise ZeroDivisionError
    elif how == "aclose":
        events = agent.ask("one")
        async for event in events:
            if isinstance(event, TextStreamed):
                break
        await events.aclose()
    else:
        with anyio.move_on_after(BOUND_SECONDS) as scope:
            async for event in agent.ask("one"):
                if isinstance(event, TextStreamed):
                    scope.cancel()
                    await anyio.sleep(0)


async def _next_words(agent: Agent) -> str:
    events = [event async for event in agent.ask("two")]
    assert isinstance(events[-1], QueryEnded)
    assert events[-1].end == "completed"
    return "".join(event.text for event in events if isinstance(event, TextStreamed))


WAYS = ["break", "raise", "aclose", "cancel"]


@pytest.mark.requirement("U3")
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("run", [asyncio.run, lambda steps: anyio.run(lambda: steps)], ids=["asyncio", "anyio"])
def test_a_caller_that_leaves_an_answer_is_not_cancelled_and_may_ask_again_at_once(
    tmp_path: Path, how: str, is_open: bool, run: Callable[[Any], Any]
) -> None:
    stage = words(tmp_path)

    async def steps() -> bool:
        agent = stage.agent()
        with anyio.fail_after(BOUND_SECONDS):
            if is_open:
                async with agent:
                    await ended_early(agent, how)
                    assert await _next_words(agent) == "word " * 50
            else:
                await ended_early(agent, how)
                assert await _next_words(agent) == "word " * 50
            for _ in range(20):
                await asyncio.sleep(0)  # a cancellation that was left behind would arrive here
        return True

    assert run(steps())
    ends = [event.end for event in stage.events if isinstance(event, QueryEnded)]
    assert ends == ["aborted", "completed"]


@pytest.mark.requirement("U3")
def test_the_check_above_detects_an_agent_that_is_opened_inside_the_iterator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "in_own_task", lambda source: source())
    stage = words(tmp_path)

    async def steps() -> None:
        await ended_early(stage.agent(), "break")
        for _ in range(3_000):  # until the broken scope cancels this task, with a bound of half a minute
            await asyncio.sleep(0.01)

    with pytest.raises((asyncio.CancelledError, RuntimeError)):
        asyncio.run(steps())


@pytest.mark.requirement("U3")
@pytest.mark.parametrize("how", WAYS)
def test_an_agent_that_is_closed_right_after_its_answer_was_left_has_a_complete_log(tmp_path: Path, how: str) -> None:
    stage = words(tmp_path)
    stage.run(lambda agent: ended_early(agent, how))
    assert [event.end for event in stage.events if isinstance(event, QueryEnded)] == ["aborted"]
    assert stage.ask("again")[-1].end == "completed"


@pytest.mark.requirement("U3")
def test_two_answers_at_once_are_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    stage = words(tmp_path)

    async def steps(agent: Agent) -> None:
        first = agent.ask("one")
        await anext(first)
        with pytest.raises(SessionError, match="answering already"):
            await anext(agent.ask("two"))
        assert [event async for event in first][-1].end == "completed"

    stage.run(steps)


@pytest.mark.requirement("U3")
@pytest.mark.parametrize("is_open", [True, False])
def test_an_interrupt_before_the_first_step_of_a_query_stops_it_and_an_earlier_one_does_not(
    tmp_path: Path, is_open: bool
) -> None:
    stage = words(tmp_path)

    async def ends(agent: Agent) -> list[str]:
        agent.interrupt()
        first = [event async for event in agent.ask("one")]
        asked = agent.ask("two")
        agent.interrupt()
        second = [event async for event in asked]
        third = [event async for event in agent.ask("three")]
        return [events[-1].end for events in (first, second, third)]

    async def closed() -> list[str]:
        return await ends(stage.agent())

    assert (stage.run(ends) if is_open else asyncio.run(closed())) == ["completed", "aborted", "completed"]
    assert "two" not in str(stage.model.requests[-1]["messages"])


# -- openings


class Full(FileStorage):
    """A store on a disk that is full, or slow, at the first append."""

    fails = True
    slow: threading.Event | None = None

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        if self.slow is not None:
            self.slow.wait(60)
        if self.fails:
            raise StorageError("cannot append: No space left on device", path=key, errno=errno.ENOSPC)
        super().append(key, line, expect=expect)


@pytest.mark.requirement("U3")
@pytest.mark.parametrize("opens", ["session", "agent"])
def test_an_opening_that_failed_leaves_the_session_free(tmp_path: Path, opens: str) -> None:
    storage = Full(tmp_path / "home")
    known = Settings(home=tmp_path / "home", switches=QUIET)

    def opened() -> Any:
        if opens == "session":
            return Session.open("s", cwd=tmp_path, storage=storage, settings=known)
        model = ScriptedModel(lambda request: "fine", capabilities=Capabilities(True, window=200_000))
        return Agent(model=model, cwd=tmp_path, session="s", storage=storage, settings=known)

    async def steps() -> None:
        with pytest.raises(StorageError, match="No space left"):
            async with opened():
                pass
        storage.fails = False
        async with opened():
            pass

    anyio.run(steps)


@pytest.mark.requirement("U3")
@pytest.mark.parametrize("how", ["anyio", "asyncio"])
@pytest.mark.parametrize("step", ["append", "load", "lease"])
def test_an_opening_that_was_cancelled_on_a_slow_disk_leaves_the_session_free(
    tmp_path: Path, how: str, step: str
) -> None:
    gate, reached, leased = threading.Event(), threading.Event(), threading.Event()

    class Slow(FileStorage):
        def lease(self, name: str, *, holder: str = "") -> FileLease:
            self._wait("lease")
            found = super().lease(name, holder=holder)
            leased.set()
            return found

        def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
            self._wait("append")
            super().append(key, line, expect=expect)

        def load(self, key: str, start: int = 0, size: int = -1) -> bytes | None:
            if key.endswith(".jsonl"):
                self._wait("load")
            return super().load(key, start, size)

        def _wait(self, here: str) -> None:
            if here == step and not gate.is_set():
                reached.set()
                gate.wait(60)

    storage = Slow(tmp_path / "home")

    def opened() -> Session:
        return Session.open("s", cwd=tmp_path, storage=storage, settings=Settings(home=tmp_path / "home"))

    async def enter() -> None:
        async with opened():
            await anyio.sleep_forever()  # where the disk was faster than the cancellation

    async def steps() -> None:
        with anyio.fail_after(BOUND_SECONDS):
            if how == "asyncio":
                task = asyncio.create_task(enter())
                await asyncio.to_thread(reached.wait, 60)
                task.cancel()
                await asyncio.sleep(0)
                gate.set()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                async with anyio.create_task_group() as group:
                    group.start_soon(enter)
                    await anyio.to_thread.run_sync(reached.wait, 60)
                    group.cancel_scope.cancel()
                    gate.set()
            await anyio.to_thread.run_sync(leased.wait, 60)
            while storage.holder(opened().log._writer.key) is not None:  # the thread that opened ends by itself
                await anyio.sleep(0.01)
            async with opened():
                pass

    asyncio.run(steps())


# -- tools


class AnyTool(NoPreview):
    """A tool that returns or raises a given thing."""

    name = "Any"
    description = "Anything."
    input_schema: ClassVar[dict[str, Any]] = {"type": "object"}
    max_chars: Any = None

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act

    def access(self, input: Mapping[str, Any], context: Any) -> Access:
        return Access("none")

    async def run(self, input: Mapping[str, Any], context: Any) -> Any:
        return self.act()


class Word(str):
    def __str__(self) -> str:
        raise ValueError("no text")


class Panic(BaseException):
    """The error that an extension module raises when its own code breaks."""


class Unshowable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@dataclasses.dataclass
class Point:
    x: int
    y: Any = None


def circle() -> list[Any]:
    round: list[Any] = []
    round += [round, round]
    return round


def raising(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


async def coroutine() -> str:
    return "late"


THINGS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "bytes": lambda: b"\xff\x00bytes",
    "number": lambda: 3.5,
    "nan": lambda: float("nan"),
    "huge number": lambda: 10**400,
    "list": lambda: [1, "x", None],
    "empty list": list,
    "mixed blocks": lambda: [{"type": "text", "text": "a"}, "b"],
    "unknown block": lambda: [{"type": "hologram", "depth": 3}],
    "broken block": lambda: [{"type": "text"}, {"type": "image", "source": 3}, {"type": "tool_use", "id": 1}],
    "block with bytes": lambda: [{"type": "text", "text": b"bytes"}],
    "dataclass": lambda: Point(1, {2}),
    "exception": lambda: ValueError("returned"),
    "unshowable": Unshowable,
    "generator": lambda: (one for one in range(3)),
    "async generator": lambda: _two(),
    "coroutine": lambda: coroutine(),
    "huge list": lambda: list(range(200_000)),
    "huge text": lambda: "line\n" * 200_000,
    "str subclass": lambda: Word("a word"),
    "surrogates": lambda: ["\ud800", {"\udfff": 1}],
    "circle": circle,
    "deep": lambda: _deep(5_000),
    "keys": lambda: {(1, 2): {3, 4}, None: object()},
    "class": lambda: Point,
    "output of none": lambda: Output(None),  # pyright: ignore[reportArgumentType]
    "output of bytes": lambda: Output(b"..."),  # pyright: ignore[reportArgumentType]
    "output of things": lambda: Output([1, "x"]),  # pyright: ignore[reportArgumentType]
    "output with wrong fields": lambda: Output("x", None, None, 3, "abc", [1], "y"),  # pyright: ignore[reportArgumentType]
    "raises": raising(ValueError("wrong")),
    "raises unshowable": raising(Unshowable()),
    "raises a group": raising(ExceptionGroup("several", [ValueError("one"), TypeError("two")])),
    "exits": raising(SystemExit(3)),
    "raises the end of a generator": raising(GeneratorExit()),
    "raises the end of an iteration": raising(StopIteration("x")),
    "raises the end of an async iteration": raising(StopAsyncIteration()),
    "raises a cancellation": raising(asyncio.CancelledError()),
    "raises a panic": raising(Panic("an index out of bounds")),
    "raises a group of exits": raising(BaseExceptionGroup("several", [SystemExit(3)])),
}


async def _two() -> AsyncGenerator[int, None]:
    yield 1
    yield 2


def _deep(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def answers_to(tmp_path: Path, acts: list[Callable[[], Any]]) -> tuple[Stage, list[Event]]:
    """Let an agent call a tool once for each thing and say a last word; return the stage and the query's events."""
    tools: list[Any] = [AnyTool(act) for act in acts]
    for at, tool in enumerate(tools):
        tool.name = f"Any{at}"
    stage = Stage(tmp_path, {"main": plays([use(tool.name) for tool in tools], "done")}, tools=tools)
    return stage, stage.ask("go")


def check_answered(stage: Stage, events: list[Event], count: int) -> None:
    assert isinstance(events[-1], QueryEnded)
    assert events[-1].end == "completed"
    assert len([event for event in events if isinstance(event, ToolFinished)]) == count
    last = stage.model.requests[-1]
    assert problems(last) == []
    assert len(results(last)) == count


@pytest.mark.requirement("U3")
def test_a_tool_may_return_and_raise_anything(tmp_path: Path) -> None:
    stage, events = answers_to(tmp_path, list(THINGS.values()))
    check_answered(stage, events, len(THINGS))
    said = dict(zip(THINGS, results(stage.model.requests[-1]), strict=True))
    assert "bytes" in said["bytes"]
    assert said["list"] == '[1,"x",null]'
    assert said["dataclass"] == '{"x":1,"y":[2]}'
    assert said["str subclass"] == "a word"
    assert said["exception"] == "returned"
    assert said["coroutine"] == "late"
    assert "SystemExit" in said["exits"]
    wrong = {name for name, event in zip(THINGS, _finished(events), strict=True) if event.is_error}
    assert wrong == {name for name in THINGS if name.startswith(("raises", "exits", "exception", "unshowable"))}
    gc.collect()


def _finished(events: list[Event]) -> list[ToolFinished]:
    by_id = {event.name: event for event in events if isinstance(event, ToolFinished)}
    return [by_id[f"Any{at}"] for at in range(len(by_id))]


@pytest.mark.requirement("U3")
@pytest.mark.parametrize("thing", ["output of none", "number", "exits"])
def test_the_check_above_detects_a_loop_that_trusts_its_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thing: str
) -> None:
    async def trusting(tool: Any, given: Any, context: Any) -> Any:
        return await tool.run(given, context)

    monkeypatch.setattr(tool_runs, "output_or_error", trusting)
    with pytest.raises((Exception, SystemExit)):
        answers_to(tmp_path, [THINGS[thing]])


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers(), max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
        | st.fixed_dictionaries(
            {"type": st.sampled_from(["text", "image", "document", "thinking", "x"]), "text": inner}
        )
    ),
    max_leaves=8,
)


@pytest.mark.requirement("U3")
@settings(max_examples=max(8, settings.default.max_examples // 6))
@given(things=st.lists(json_like, min_size=1, max_size=12))
def test_random_outputs_of_tools_give_valid_requests(
    things: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    acts = [lambda thing=thing: thing for thing in things]
    acts += [lambda thing=thing: Output(thing) for thing in things]
    stage, events = answers_to(tmp_path_factory.mktemp("work"), acts)
    check_answered(stage, events, len(acts))


# -- closing


class Hanging(ScriptedModel):
    """A model that answers the conversation and never begins to answer a side question."""

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        if "<reverie-fork" in str(request["messages"][-1]):
            await anyio.sleep_forever()
        async for piece in super().stream(request):
            yield piece


@pytest.mark.requirement("U3")
def test_closing_does_not_wait_for_a_side_question_that_hangs_and_says_which_work_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert patience.SILENT_SECONDS <= 5.0
    monkeypatch.setattr(patience, "SILENT_SECONDS", 0.05)
    model = Hanging(lambda request: "It is done.", capabilities=Capabilities(True, window=200_000))
    known = Settings(
        home=tmp_path / "home",
        switches=Switches(recall=False, dream=False),
        extract=ExtractPolicy(close_seconds=10_000, timeout_seconds=10_000),
    )
    events: list[Event] = []

    async def steps() -> None:
        with anyio.fail_after(BOUND_SECONDS):
            agent = Agent(model=model, cwd=tmp_path, session="s", settings=known)
            agent.listen(events.append)
            async for _ in agent.ask("Always use tabs in this project, please."):
                pass

    anyio.run(steps)
    assert [event.why for event in events if isinstance(event, FellBack) and event.what == "extraction"] == [
        patience.LEFT
    ]
    assert ("extraction", "killed") in [(e.what, e.state) for e in events if isinstance(e, BackgroundChanged)]


@pytest.mark.requirement("U3")
def test_closing_a_session_does_not_wait_for_notes_that_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SILENT_SECONDS", 0.05)
    known = Settings(home=tmp_path / "home", compact=CompactPolicy(wait_seconds=10_000))
    model = Hanging(lambda request: "Done.", capabilities=Capabilities(True, window=200_000))
    events: list[Event] = []

    async def steps() -> None:
        with anyio.fail_after(BOUND_SECONDS):
            async with Session.open("s", cwd=tmp_path, settings=known, model=model) as session:
                session.listen(events.append)
                for number in range(2):
                    await session.say("Mend the fence.")
                    await session.prepare(model="claude-sonnet-4-5", max_tokens=9)
                    usage = {"input_tokens": 20_000, "output_tokens": 9}
                    said = {"id": f"m{number}", "role": "assistant", "content": [{"type": "text", "text": "Done."}]}
                    await session.observe({**said, "model": "claude-sonnet-4-5", "usage": usage})

    anyio.run(steps)
    assert [event.why for event in events if isinstance(event, FellBack) and event.what == "notes"] == [patience.LEFT]


@pytest.mark.requirement("U3", "L5.7")
@pytest.mark.parametrize(("gap", "is_done"), [(4.0, True), (6.0, False)])
def test_closing_waits_for_a_side_question_while_it_is_answered(
    monkeypatch: pytest.MonkeyPatch, gap: float, is_done: bool
) -> None:
    """Twelve pieces arrive, one every ``gap`` seconds of a clock that only the wait moves."""
    now, heard = 100.0, list[float]()
    monkeypatch.setattr(anyio, "current_time", lambda: now)
    closing = patience.Patience()

    async def wait(seconds: float) -> bool:
        nonlocal now
        at = 100.0 + gap * (len(heard) + 1)
        if at > now + seconds:
            now += seconds
            return False
        now = at
        heard.append(at)
        closing.hear()
        return len(heard) == 12

    assert anyio.run(closing.wait, wait, 60.0) is is_done
    assert now == (148.0 if is_done else 105.0)


@pytest.mark.requirement("U3")
def test_closing_asks_once_about_work_that_was_given_up() -> None:
    asked: list[float] = []

    async def given_up(seconds: float) -> bool:
        asked.append(seconds)
        return False

    assert anyio.run(patience.Patience().wait, given_up, 60.0) is False
    assert len(asked) == 1


@pytest.mark.requirement("U3", "V5")
def test_a_summary_by_the_provider_is_heard_while_it_is_written() -> None:
    heard: list[bool] = []
    host: Any = SimpleNamespace(
        policy=SimpleNamespace(settings=Settings(Path("none"))),
        patience=SimpleNamespace(hear=lambda: heard.append(True)),
    )
    nobody: Any = None
    summaries: Any = ProviderSummaries(host, nobody)
    request = {"model": "scripted", "messages": [{"role": "user", "content": "go"}], "max_tokens": 100}
    anyio.run(summaries._sent, ScriptedModel(["A summary."]), request)
    assert heard


@pytest.mark.requirement("U3")
@pytest.mark.parametrize("kind", ["memory", "model"])
def test_two_sessions_that_close_in_their_opening_order_harm_nobody(kind: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")

    def opened(name: str) -> Session:
        model = ScriptedModel(["Hello."]) if kind == "model" else None
        return Session.open(name, cwd=tmp_path, settings=settings, model=model, memory=kind == "memory")

    async def both() -> str:
        first, second = opened("first"), opened("second")
        await first.__aenter__()
        await second.__aenter__()
        await first.__aexit__(None, None, None)
        await second.__aexit__(None, None, None)
        return "done"

    assert asyncio.run(both()) == "done"


@pytest.mark.requirement("U3")
def test_a_group_whose_begin_is_cancelled_leaves_no_task() -> None:
    async def steps() -> set[asyncio.Task[Any]]:
        entering = asyncio.ensure_future(IndependentTaskGroup().__aenter__())
        await asyncio.sleep(0)  # it has begun its task, and waits for it
        entering.cancel()
        await asyncio.wait([entering])
        for _ in range(3):
            await asyncio.sleep(0)
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    assert asyncio.run(steps()) == set()
