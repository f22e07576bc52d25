"""Recall in a session: in the background, each memory once, logged, cancelled with its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, load_settings
from reverie.conversation.decisions import MemoriesSurfaced
from reverie.conversation.wire.request import build_request
from reverie.errors import ModelUnavailable
from reverie.events import Event, FellBack
from reverie.memories.recall.selection import RecallPolicy
from reverie.models.scripted_model import ScriptedModel
from reverie.runtime.memory.recall import SessionRecall, surfaced_in
from reverie.runtime.memory.search import MemorySearch
from reverie.settings.records import turned_off
from reverie.values import replace

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir(mode=0o700)
    save(folder, "feedback_database.md", "Real database in tests", "Tests run against the real database", "feedback")
    save(folder, "project_launch.md", "Launch date", "The launch is on 2026-04-01", "project")
    return folder


def save(folder: Path, file: str, name: str, description: str, type_name: str, body: str = "The text.\n") -> None:
    head = f"---\nname: {name}\ndescription: {description}\ntype: {type_name}\nmodified: 2026-03-01T00:00:00Z\n---\n"
    (folder / file).write_text(head + body)


def running(
    act: Callable[[Session, list[Event]], Awaitable[None]], storage: InMemoryStorage | None = None, *off: str
) -> None:
    """Open a session and do something in it."""
    told: list[Event] = []
    settings = load_settings()
    settings = replace(settings, switches=turned_off(settings.switches, list(off)))

    async def run() -> None:
        with anyio.fail_after(60):
            async with Session.open("s", storage=storage or InMemoryStorage(), settings=settings) as session:
                session.listen(told.append)
                await act(session, told)

    anyio.run(run)


def recalling(session: Session, kept: Path, model: Any = None, **given: Any) -> SessionRecall:
    return SessionRecall(session.parts.host, kept, model, clock=lambda: NOW, **given)


@pytest.mark.requirement("R5", "R7", "K4")
def test_what_is_found_stands_in_the_next_request_and_in_the_log(kept: Path) -> None:
    async def act(session: Session, told: list[Event]) -> None:
        async with anyio.create_task_group() as tasks:
            recall = recalling(session, kept, tasks=tasks)
            await session.say("when is the launch date?")
            recall.start("when is the launch date?")
            decision = await recall.surface()
            assert decision is not None
            assert decision.names == ["project_launch.md"]
            assert decision.text in str(build_request(session.view)["messages"]).encode().decode("unicode_escape")
            assert surfaced_in(session.view).files == {"project_launch.md"}
            assert surfaced_in(session.view).bytes == len(decision.text.encode())
            assert await recall.take() is None  # once

    running(act)


@pytest.mark.requirement("R2", "R7")
def test_a_resumed_session_does_not_show_the_same_again(kept: Path) -> None:
    storage = InMemoryStorage()
    seen: list[MemoriesSurfaced | None] = []

    async def act(session: Session, told: list[Event]) -> None:
        recall = recalling(session, kept)
        recall.start("launch date")
        seen.append(await recall.surface())

    running(act, storage)
    running(act, storage)
    assert seen[0] is not None
    assert seen[1] is None


@pytest.mark.requirement("R7")
def test_it_is_looked_for_while_the_model_works(kept: Path) -> None:
    async def act(session: Session, told: list[Event]) -> None:
        gate, asked = anyio.Event(), anyio.Event()

        async def answer(_: dict[str, Any]) -> str:
            asked.set()
            await gate.wait()
            return '{"selected_memories": ["project_launch.md"]}'

        async with anyio.create_task_group() as tasks:
            recall = recalling(
                session, kept, ScriptedModel(answer), tasks=tasks, policy=RecallPolicy(wait_seconds=0.01)
            )
            recall.start("launch")
            await asked.wait()  # it runs, though nobody waits for it
            assert await recall.take() is None  # not found in time, and not lost either
            gate.set()
            found = None
            while found is None:
                found = await recall.take()
                await anyio.lowlevel.checkpoint()
            assert found.names == ["project_launch.md"]
            assert found.cause.reason == "chosen by model"

    running(act)


@pytest.mark.requirement("R7", "Q8")
def test_it_is_cancelled_with_its_turn(kept: Path) -> None:
    async def act(session: Session, told: list[Event]) -> None:
        asked, ended = anyio.Event(), anyio.Event()

        async def answer(_: dict[str, Any]) -> str:
            asked.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()
            return ""

        async with anyio.create_task_group() as tasks:
            recall = recalling(session, kept, ScriptedModel(answer), tasks=tasks)
            recall.start("launch")
            await asked.wait()
            recall.cancel()
            await ended.wait()
            assert await recall.take() is None
        assert not [event for event in told if isinstance(event, FellBack)]

    running(act)


def test_a_new_query_takes_the_place_of_one_that_was_not_taken(kept: Path) -> None:
    async def act(session: Session, told: list[Event]) -> None:
        async with anyio.create_task_group() as tasks:
            recall = recalling(session, kept, tasks=tasks)
            recall.start("launch date")
            recall.start("tests and the real database")
            found = await recall.take()
            assert found is not None
            assert found.names == ["feedback_database.md"]

    running(act)


@pytest.mark.requirement("R2", "F5")
def test_a_failing_model_is_replaced_by_search_and_that_is_told(kept: Path) -> None:
    async def act(session: Session, told: list[Event]) -> None:
        recall = recalling(session, kept, ScriptedModel([ModelUnavailable("overloaded")]))
        recall.start("launch date")
        found = await recall.take()
        assert found is not None
        assert found.cause.reason == "chosen by search"
        assert [event.what for event in told if isinstance(event, FellBack)] == ["recall"]

    running(act)


def test_a_model_that_takes_too_long_is_replaced_by_search(kept: Path) -> None:
    async def act(session: Session, told: list[Event]) -> None:
        async def answer(_: dict[str, Any]) -> str:
            await anyio.sleep_forever()
            return ""

        recall = recalling(session, kept, ScriptedModel(answer), policy=RecallPolicy(model_seconds=0.01))
        recall.start("launch date")
        found = await recall.take()
        assert found is not None
        assert found.names == ["project_launch.md"]
        assert [event for event in told if isinstance(event, FellBack)]

    running(act)


@pytest.mark.requirement("F1")
@pytest.mark.parametrize("switch", ["recall", "memory"])
def test_nothing_is_done_where_it_is_switched_off(kept: Path, switch: str) -> None:
    async def act(session: Session, told: list[Event]) -> None:
        model = ScriptedModel(["{}"])
        recall = recalling(session, kept, model)
        recall.start("launch date")
        assert await recall.surface() is None
        assert model.requests == []

    running(act, None, switch)


@pytest.mark.requirement("R4")
def test_a_session_is_shown_no_more_than_its_budget_in_all(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir(mode=0o700)
    for at in range(40):
        save(folder, f"project_{at}.md", f"Launch step {at}", f"launch step number {at}", "project", "x" * 5_000)

    async def act(session: Session, told: list[Event]) -> None:
        recall = recalling(session, folder)
        for _ in range(12):
            recall.start("launch step number")
            await recall.surface()
        shown = surfaced_in(session.view)
        assert 50_000 < shown.bytes <= 61_440
        assert len(shown.files) < 40

    running(act)


def test_a_directory_that_is_not_there_or_cannot_be_read_stops_nobody(tmp_path: Path) -> None:
    async def act(session: Session, told: list[Event]) -> None:
        recall = recalling(session, tmp_path / "none")
        recall.start("launch date")
        assert await recall.surface() is None

    running(act)


# -- the directory it follows


def test_only_files_that_changed_are_read_again(kept: Path) -> None:
    search = MemorySearch(kept)
    assert search.refresh() == 2
    assert search.refresh() == 0
    save(kept, "project_launch.md", "Launch date", "The launch moved to May, says Gudrun", "project")
    save(kept, "user_role.md", "Role", "The user keeps the lighthouse", "user")
    (kept / "feedback_database.md").unlink()
    assert search.refresh() == 3
    assert [match.file for match in search.search("Gudrun moved launch")] == ["project_launch.md"]
    assert search.search("database") == []
    assert {one.file for one in search.memories} == {"project_launch.md", "user_role.md"}


def test_index_logs_journal_links_and_strange_files_are_no_memories(kept: Path, tmp_path: Path) -> None:
    (kept / "MEMORY.md").write_text("- [Launch](project_launch.md) — launch\n")
    (kept / "logs/2026/03").mkdir(parents=True)
    (kept / "logs/2026/03/2026-03-01.md").write_text("launch\n")
    (kept / ".journal").mkdir()
    (kept / ".journal/x.md").write_text("launch\n")
    (tmp_path / "outside.md").write_text("launch\n")
    (kept / "link.md").symlink_to(tmp_path / "outside.md")
    search = MemorySearch(kept)
    search.refresh()
    assert [match.file for match in search.search("launch")] == ["project_launch.md"]


def test_shared_memories_are_found_under_the_name_they_have_outside(kept: Path, tmp_path: Path) -> None:
    team = tmp_path / "shared"
    team.mkdir(mode=0o700)
    save(team, "reference_wiki.md", "Wiki", "The wiki of the lighthouse team", "reference")
    search = MemorySearch(kept, team=team)
    search.refresh()
    assert [match.file for match in search.search("lighthouse wiki")] == ["team/reference_wiki.md"]
    found = search.get("team/reference_wiki.md")
    assert found is not None
    assert found.scope == "team"
