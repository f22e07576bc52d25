"""Windows: the one of the model that a session is opened with, and those that refusals teach."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, Settings
from reverie.conversation.decisions import WindowLearned
from reverie.errors import PromptTooLong, WindowFull
from reverie.events import DecisionMade, Event, QueryEnded
from reverie.models import RetryingModel, ScriptedModel
from reverie.models.failures import failure_of_status
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.runtime.session import recovery
from reverie.settings import Switches
from reverie.values import replace

PROSE = "The harbour master wrote down every ship that came in, and the tide it came with. "
ALONE = Switches(extraction=False, recall=False, notes=False)


def refusal(message: str, status: int = 400) -> PromptTooLong:
    """Return the error that an adapter raises for these words of a provider."""
    error = failure_of_status("m", status, {"error": {"type": "invalid_request_error", "message": message}})
    assert isinstance(error, PromptTooLong)
    return error


async def fill(session: Session, turns: int, model: str = "m", words: int = 60) -> None:
    """Fill a session with this many rounds of a call and its result."""
    await session.say("Look.")
    for n in range(turns):
        await session.prepare(model=model, max_tokens=100)
        id = f"t{n}-{session.view.length}"
        content = [{"type": "tool_use", "id": id, "name": "look", "input": {}}]
        await session.observe({"id": f"m{id}", "role": "assistant", "model": model, "content": content})
        await session.result(id, f"{n} " + PROSE * words)


@pytest.mark.requirement("V11", "T5")
@pytest.mark.parametrize("window", [4_096, 16_384, 500_000])
def test_a_session_opened_with_a_model_takes_the_window_of_that_model(window: int) -> None:
    async def steps() -> None:
        model = ScriptedModel(["yes"], name="scripted:m", capabilities=Capabilities(window=window))
        async with Session.open("s", storage=InMemoryStorage(), model=model) as session:
            assert session.thresholds.window == window
            await session.say("Hello.")
            await session.prepare(model="m", max_tokens=100)
            assert session.thresholds.window == window
            await session.prepare(model="claude-sonnet-4-5", max_tokens=100)  # a known model has a window of its own
            assert session.thresholds.window == 200_000
        async with Session.open("t", storage=InMemoryStorage()) as session:  # the known-bad twin: no model
            assert session.thresholds.window != window

    anyio.run(steps)


@pytest.mark.requirement("V12", "T5")
def test_a_named_limit_lowers_the_window_is_logged_and_kept_for_the_model_across_sessions() -> None:
    async def steps() -> None:
        storage, events = InMemoryStorage(), list[Event]()
        async with Session.open("s", storage=storage) as session:
            session.listen(events.append)
            await fill(session, 8)
            before = session.thresholds.window
            await session.compact_reactively(refusal("prompt is too long: 31000 tokens > 30000 maximum"))
            assert before > session.thresholds.window == 30_000
            learned = [one.decision for one in events if isinstance(one, DecisionMade)]
            assert [(one.model, one.tokens) for one in learned if isinstance(one, WindowLearned)] == [("m", 30_000)]
            assert session.parts.offload.policy.default_limit_chars < 50_000
        async with Session.open("s", storage=storage) as session:  # the same session, resumed
            assert session.thresholds.window == 30_000
        storage.delete(recovery.KEY)
        async with Session.open("s", storage=storage) as session:  # its own log is enough
            assert session.thresholds.window == 30_000
            await session.compact_reactively(refusal("prompt is too long: 29000 tokens > 28000 maximum"))
        async with Session.open("other", storage=storage) as session:
            await session.say("Hello.")
            await session.prepare(model="m", max_tokens=100)
            assert session.thresholds.window == 28_000
            await session.prepare(model="n", max_tokens=100)
            assert session.thresholds.window == before

    anyio.run(steps)


@pytest.mark.requirement("V12")
@pytest.mark.parametrize(
    ("message", "status", "window"),
    [
        ("input length and `max_tokens` exceed context limit: 29000 + 8000 > 32768", 400, 32_768),
        ("maximum context length is 16384 tokens. However, you requested 20000 tokens", 400, 16_384),
        ("Request exceeds the maximum size", 413, None),  # bytes say nothing about the window
        ("prompt is too long: 9 tokens > 8 maximum", 400, None),  # no window of an agent
        ("prompt is too long: 100 tokens > 5000 maximum", 400, None),  # it contradicts itself
    ],
)
def test_only_a_limit_that_can_be_a_window_is_learned(message: str, status: int, window: int | None) -> None:
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await fill(session, 8)
            before = session.thresholds.window
            await recovery.learn_window(session.log, session.parts, refusal(message, status))
            assert session.thresholds.window == (window or before)

    anyio.run(steps)


@pytest.mark.requirement("V12")
def test_a_refusal_without_numbers_lowers_the_window_below_the_refused_size_in_this_session_only() -> None:
    async def steps() -> None:
        storage = InMemoryStorage()
        async with Session.open("s", storage=storage) as session:
            await fill(session, 8)
            count = session.view.token_count.tokens
            await session.compact_reactively(refusal("input exceeds the context window"))
            assert count // 2 < session.thresholds.window < count
        async with Session.open("s", storage=storage) as session:
            assert session.thresholds.window < count
        assert storage.read(recovery.KEY) is None

    anyio.run(steps)


@pytest.mark.requirement("V12")
def test_a_damaged_list_of_windows_is_ignored_and_written_anew() -> None:
    async def steps() -> None:
        storage = InMemoryStorage()
        storage.write(recovery.KEY, b'{"m": 5000, "n": "x"')
        async with Session.open("s", storage=storage) as session:
            await fill(session, 8)
            assert session.thresholds.window > 5_000
            await session.compact_reactively(refusal("prompt is too long: 31000 tokens > 30000 maximum"))
        document = storage.read(recovery.KEY)
        assert document is not None
        assert b"30000" in document.data

    anyio.run(steps)


class LookTool:
    """A tool that returns a text, each time with another number."""

    name, description, max_chars = "look", "Look at a part.", None

    def __init__(self, output: str) -> None:
        self.input_schema: dict[str, Any] = {"type": "object", "properties": {}}
        self._output = output
        self._runs = 0

    def access(self, input: Mapping[str, Any], context: Any) -> Any:
        from reverie.tools.tool import Access

        return Access("none")

    async def preview(self, input: Mapping[str, Any], context: Any) -> str:
        return ""

    async def run(self, input: Mapping[str, Any], context: Any) -> Any:
        from reverie.tools.tool import Output

        self._runs += 1
        return Output(f"{self._runs} {self._output}")


def agent_on(model: ScriptedModel, tmp_path: Path, settings: Settings | None = None, **given: Any) -> Agent:
    cwd = tmp_path / "work"
    cwd.mkdir(exist_ok=True)
    settings = settings or Settings(home=tmp_path / "home", switches=ALONE)
    options: dict[str, Any] = {"tools": [LookTool(PROSE * 60)], "system": "Be brief.", "mode": "bypass", **given}
    options.setdefault("storage", InMemoryStorage())
    return Agent(model=RetryingModel(model), cwd=cwd, settings=settings, **options)


def end_of(agent: Agent, prompt: str = "go") -> QueryEnded:
    async def main() -> Event:
        return [event async for event in agent.ask(prompt)][-1]

    end = anyio.run(main)
    assert isinstance(end, QueryEnded)
    return end


@pytest.mark.requirement("V12", "Q5")
@pytest.mark.parametrize("names", [True, False], ids=["a named limit", "no numbers"])
def test_a_query_survives_several_refusals_as_long_as_each_compaction_made_room(tmp_path: Path, names: bool) -> None:
    refused: list[int] = []
    calls: list[int] = []

    def answer(request: dict[str, Any]) -> Any:
        tokens = len(str(request)) // 4
        if "summary" in str(request["messages"][-1]) and "tool_choice" in request:
            return "<summary>So far.</summary>"
        if tokens > 12_000:
            refused.append(tokens)
            raise refusal(f"prompt is too long: {tokens} tokens > 12000 maximum" if names else "prompt is too long")
        calls.append(tokens)
        return "Done." if len(calls) > 40 else [{"type": "tool_use", "name": "look", "input": {}}]

    model = ScriptedModel(answer, name="scripted:m", capabilities=Capabilities(window=200_000))
    end = end_of(agent_on(model, tmp_path))
    assert (end.end, len(calls)) == ("completed", 41)
    assert refused
    assert not names or len(refused) == 1  # the limit was learned: later requests stay below it


@pytest.mark.requirement("Q5", "V12")
def test_a_second_refusal_in_one_query_does_not_end_it(tmp_path: Path) -> None:
    turns = [0]

    def answer(request: dict[str, Any]) -> Any:
        turns[0] += 1
        if turns[0] in (12, 13, 20, 27):  # it refuses, whatever the size, and names no number
            raise PromptTooLong("prompt is too long")
        return "Done." if turns[0] > 36 else [{"type": "tool_use", "name": "look", "input": {}}]

    model = ScriptedModel(answer, name="scripted:m", capabilities=Capabilities(window=200_000))
    off = replace(ALONE, compact_from_notes=True)
    end = end_of(agent_on(model, tmp_path, Settings(home=tmp_path / "home", switches=off)))
    assert end.end == "completed", end.detail


@pytest.mark.requirement("Q5")
def test_a_prompt_that_cannot_get_shorter_ends_the_query(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> Any:
        raise PromptTooLong("prompt is too long")

    model = ScriptedModel(answer, name="scripted:m", capabilities=Capabilities(window=200_000))
    end = end_of(agent_on(model, tmp_path))
    assert end.end == "prompt_too_long"
    assert len(model.requests) < 5


@pytest.mark.requirement("Q5", "Q6")
def test_a_reply_that_reached_the_end_of_the_window_is_compacted_and_continued(tmp_path: Path) -> None:
    turns = [0]

    def answer(request: dict[str, Any]) -> Any:
        if "tool_choice" in request or "summar" in str(request.get("system")):
            return "<summary>So far.</summary>"
        turns[0] += 1
        if turns[0] <= 8:
            return [{"type": "tool_use", "name": "look", "input": {}}]
        if turns[0] == 9:
            return {"content": "The answer is", "stop_reason": "model_context_window_exceeded"}
        return "42."

    model = ScriptedModel(answer, name="scripted:m", capabilities=Capabilities(window=200_000))
    end = end_of(agent_on(model, tmp_path))
    assert end.end == "completed"
    last = model.requests[-1]
    assert "cut off" in str(last["messages"][-1])
    assert len(str(last)) < len(str(model.requests[8])) / 2


@pytest.mark.requirement("Q6")
@pytest.mark.parametrize("times", [1, 9])
def test_a_summary_that_nobody_asked_for_is_no_reply(tmp_path: Path, times: int) -> None:
    block = {"type": "compaction", "content": "Short.", "signature": "s"}
    replies: list[Any] = [{"content": [block], "stop_reason": "compaction"}] * times
    model = ScriptedModel([*replies, "Here."], name="scripted:m", capabilities=Capabilities(window=200_000))
    end = end_of(agent_on(model, tmp_path))
    assert end.end == ("completed" if times == 1 else "model_error")
    assert "Short." not in str(model.requests[-1])


@pytest.mark.requirement("V11")
def test_an_agent_whose_opening_does_not_fit_says_in_one_line_what_it_needs_before_any_call(tmp_path: Path) -> None:
    async def opened(system: str) -> tuple[Any, int, InMemoryStorage]:
        model = ScriptedModel(lambda request: "Hello.", name="scripted:m", capabilities=Capabilities(window=4_096))
        storage = InMemoryStorage()
        agent = agent_on(model, tmp_path, system=system, session="s", storage=storage)
        try:
            events: list[Any] = [event async for event in agent.ask("go")]
            return events[-1].end, len(model.requests), storage
        except WindowFull as error:
            return str(error), len(model.requests), storage

    said, calls, storage = anyio.run(opened, PROSE * 150)
    assert calls == 0
    assert "\n" not in said
    for part in ("system prompt 2,", "tools", "context", "4,096", "use a model with at least 6,000", "fewer tools"):
        assert part in said
    assert anyio.run(opened, PROSE * 10)[:2] == ("completed", 1)  # the known-bad twin: a short one is answered
    log = [data for key in storage.list() if key.endswith(".jsonl") and (data := storage.load(key))]
    assert b"user_context" not in b"".join(log)  # a later start with a shorter one finds no large context


@pytest.mark.requirement("V11")
def test_the_limits_of_an_agents_tools_shrink_with_its_window(tmp_path: Path) -> None:
    async def limits(window: int) -> tuple[int, int]:
        model = ScriptedModel(["yes"], name="scripted:m", capabilities=Capabilities(window=window))
        async with agent_on(model, tmp_path) as agent:
            policy = agent.session.parts.offload.policy
            return agent.parts.context.policy.read_max_tokens, policy.default_limit_chars

    assert anyio.run(limits, 200_000) == (25_000, 50_000)
    assert anyio.run(limits, 16_384) == (12_288 // 5, 12_288)
