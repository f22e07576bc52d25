"""A choice of memories that arrives late: for the first prompt of a process, in a later turn, with the next prompt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from reverie import InMemoryStorage, Memory, Session, Settings, load_settings
from reverie.conversation.decisions import MemoriesSurfaced
from reverie.events import DecisionMade, Event
from reverie.memories.recall.policy import RecallPolicy
from reverie.models import RetryingModel, ScriptedModel
from reverie.models.anthropic import AnthropicModel
from reverie.runtime.agent.agent import Agent
from reverie.runtime.memory.queries import MemoryQueries
from reverie.runtime.memory.recall import SessionRecall
from reverie.settings import Switches

LAUNCH = '{"selected_memories": ["project_launch.md"]}'
NO_WAIT = RecallPolicy(wait_seconds=0)
LONG_WAIT = RecallPolicy(wait_seconds=60, model_seconds=60)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir(mode=0o700)
    for file, name, about in (
        ("project_launch.md", "Launch date", "The launch is on 2026-04-01"),
        ("feedback_database.md", "Real database in tests", "Tests run against the real database"),
    ):
        head = f"---\nname: {name}\ndescription: {about}\ntype: project\nmodified: 2026-03-01T00:00:00Z\n---\n"
        (folder / file).write_text(f"{head}{about}, as decided.\n")
    return folder


class SlowModel(ScriptedModel):
    """A model that answers and opens its client only when the test allows it."""

    def __init__(self, reply: str = LAUNCH, *, is_open: bool = True) -> None:
        super().__init__(self._answer, name="scripted:small")
        self.opened, self.allowed, self.asked = anyio.Event(), anyio.Event(), anyio.Event()
        self.connections = 0
        self._reply = reply
        if is_open:
            self.opened.set()

    async def connect(self) -> None:
        self.connections += 1
        await self.opened.wait()

    async def _answer(self, _: dict[str, Any]) -> str:
        self.asked.set()
        await self.allowed.wait()
        return self._reply


def recalling(
    kept: Path, model: SlowModel, act: Callable[[SessionRecall, Session], Awaitable[None]], policy: RecallPolicy
) -> None:
    """Open a session and recall in it, with a task group."""

    async def run() -> None:
        with anyio.fail_after(60):
            async with (
                Session.open("s", storage=InMemoryStorage(), settings=load_settings()) as session,
                anyio.create_task_group() as tasks,
            ):
                await act(SessionRecall(session.parts.host, kept, model, tasks=tasks, policy=policy), session)
                tasks.cancel_scope.cancel()

    anyio.run(run)


async def finished(recall: SessionRecall) -> MemoriesSurfaced:
    """Take until a choice arrives."""
    while (found := await recall.surface()) is None:
        await checkpoint()
    return found


# -- the first prompt of a process


@pytest.mark.requirement("R7")
def test_the_first_prompt_waits_until_the_client_of_the_small_model_is_open(kept: Path) -> None:
    model = SlowModel(is_open=False)

    async def act(recall: SessionRecall, session: Session) -> None:
        recall.open_client()
        recall.start("when is the launch?")
        results: list[MemoriesSurfaced | None] = []

        async def take() -> None:
            results.append(await recall.take())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            while model.connections < 2:  # one early, one of the search
                await checkpoint()
            for _ in range(100):
                await checkpoint()
            assert results == [], "opening the client is no part of the wait for a choice"
            model.allowed.set()
            model.opened.set()
        [found] = results
        assert found is not None
        assert found.names == ["project_launch.md"]

    recalling(kept, model, act, LONG_WAIT)


@pytest.mark.requirement("R7")
def test_twin_a_wait_that_counts_the_opening_of_the_client_is_caught(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(self: MemoryQueries, query: Any) -> None:
        query.is_late = not query.done.is_set()

    monkeypatch.setattr(MemoryQueries, "_wait", at_once)

    async def act(recall: SessionRecall, session: Session) -> None:
        recall.start("when is the launch?")
        assert await recall.take() is None

    recalling(kept, SlowModel(is_open=False), act, LONG_WAIT)


def test_opening_a_client_early_sends_no_request_and_a_missing_library_stops_nothing(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        model = RetryingModel(AnthropicModel("claude-haiku-4-5", api_key="k", base_url="http://127.0.0.1:9"))
        await model.connect()
        assert isinstance(model.inner, AnthropicModel)
        assert model.inner._client is not None
        await model.aclose()

    anyio.run(main)

    def missing(_: AnthropicModel) -> Any:
        raise ImportError("no SDK")

    monkeypatch.setattr(AnthropicModel, "_load", missing)

    async def recall_without() -> list[str]:
        async with (
            Session.open("s", storage=InMemoryStorage(), settings=load_settings()) as session,
            anyio.create_task_group() as tasks,
        ):
            recall = SessionRecall(session.parts.host, kept, AnthropicModel("claude-haiku-4-5"), tasks=tasks)
            recall.open_client()
            recall.start("when is the launch date?")
            found = await recall.take()
            return found.names if found is not None else []

    assert anyio.run(recall_without) == ["project_launch.md"], "local search replaces it"


@pytest.mark.requirement("R2", "R7")
def test_local_search_answers_while_the_choice_is_late_and_the_choice_adds_the_rest(kept: Path) -> None:
    model = SlowModel('{"selected_memories": ["project_launch.md", "feedback_database.md"]}')

    async def act(recall: SessionRecall, session: Session) -> None:
        recall.start("when is the launch date?")
        await model.asked.wait()
        first = await recall.surface()
        assert first is not None
        assert first.names == ["project_launch.md"]
        assert first.cause.reason == "chosen by search"
        assert await recall.surface() is None, "local search answers once"
        model.allowed.set()
        assert (await finished(recall)).names == ["feedback_database.md"], "a memory in view is not said again"

    recalling(kept, model, act, NO_WAIT)


@pytest.mark.requirement("R7")
def test_twin_without_local_search_the_first_prompt_gets_nothing(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(MemoryQueries, "_meanwhile", nothing)
    model = SlowModel()

    async def act(recall: SessionRecall, session: Session) -> None:
        recall.start("when is the launch date?")
        await model.asked.wait()
        assert await recall.surface() is None

    recalling(kept, model, act, NO_WAIT)


# -- later


@pytest.mark.requirement("R7")
def test_a_late_choice_is_shown_in_a_later_turn_of_its_query_and_once(kept: Path) -> None:
    model = SlowModel()

    async def act(recall: SessionRecall, session: Session) -> None:
        recall.start("when is the launch?")
        assert await recall.surface() is None
        await model.asked.wait()
        model.allowed.set()
        assert (await finished(recall)).names == ["project_launch.md"]
        recall.start("and the launch again?")
        for _ in range(50):
            assert await recall.surface() is None
            await checkpoint()

    recalling(kept, model, act, NO_WAIT)


@pytest.mark.requirement("R7", "W6")
@pytest.mark.parametrize(
    ("prompt", "is_useful"),
    [
        ("go on", True),
        ("who speaks when the launch begins, and in which room?", True),
        ("please rename variables inside parser modules", False),
    ],
)
def test_a_late_choice_comes_with_the_next_prompt_if_it_still_helps(kept: Path, prompt: str, is_useful: bool) -> None:
    model = SlowModel()

    async def act(recall: SessionRecall, session: Session) -> None:
        recall.start("when is the launch?")
        assert await recall.surface() is None
        await model.asked.wait()
        first, model.allowed = model.allowed, anyio.Event()  # the choice for the next prompt is late too
        recall.start(prompt)
        while len(model.requests) < 2:
            await checkpoint()
        first.set()
        late = recall._queries._late
        assert late is not None
        await late.done.wait()
        found = await recall.surface()
        assert (found is not None) == is_useful

    recalling(kept, model, act, NO_WAIT)


@pytest.mark.requirement("R7", "Q8")
def test_the_choice_of_a_stopped_query_is_not_shown_with_the_next_prompt(kept: Path) -> None:
    model = SlowModel()

    async def act(recall: SessionRecall, session: Session) -> None:
        recall.start("when is the launch?")
        assert await recall.surface() is None
        await model.asked.wait()
        recall.cancel()
        model.allowed.set()
        recall.start(" ")
        for _ in range(50):
            assert await recall.surface() is None
            await checkpoint()

    recalling(kept, model, act, NO_WAIT)


@pytest.mark.requirement("R7")
def test_an_agent_shows_the_late_choice_of_a_finished_query_with_the_next_prompt(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    settings = Settings(home=tmp_path / "home", switches=Switches(extraction=False), recall=NO_WAIT)
    saved = Memory.open(project, settings=settings).save("The launch is on 2026-04-01", type="project", why="a fair")
    small = SlowModel(f'{{"selected_memories": ["{saved.file}"]}}')
    told: list[Event] = []

    async def main() -> None:
        model = ScriptedModel(lambda _: "Fine.")
        agent = Agent(model=model, cwd=project, session="s", settings=settings, storage=InMemoryStorage())
        agent.listen(told.append)
        with anyio.fail_after(60):
            async with agent:
                assert agent.parts.memory is not None
                agent.parts.memory.recall._queries._model = small
                await asked(agent, "when is the launch?")
                await small.asked.wait()
                assert not shown()
                small.allowed.set()
                late = agent.parts.memory.recall._queries._query
                assert late is not None
                await late.done.wait()
                await asked(agent, "go on")
                assert "a fair" in str(model.requests[-1]["messages"])

    async def asked(agent: Agent, prompt: str) -> None:
        async for _ in agent.ask(prompt):
            pass

    def shown() -> list[str]:
        made = [event.decision for event in told if isinstance(event, DecisionMade)]
        return [name for one in made if isinstance(one, MemoriesSurfaced) for name in one.names]

    anyio.run(main)
    assert shown() == [saved.file]
