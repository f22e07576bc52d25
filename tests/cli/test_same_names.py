"""Two projects may have sessions of one name: what belongs to one of them stays when the other goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Session
from reverie.hosts.queue import OWN, Job, Queue
from reverie.runtime.agent.agent import Agent
from reverie.runtime.jobs.queue import JobQueue
from reverie.runtime.mail.stored_mailbox import open_mailbox
from reverie.runtime.memory.markdown import export_memories, import_memories
from reverie.runtime.memory.memory import Memory
from reverie.runtime.places.projects import log_key, project_slug, session_key
from reverie.runtime.session.ledger import open_ledger
from reverie.settings import Settings

from .conftest import Asked, Reverie

NAME = "main"


@pytest.fixture(params=["files", pytest.param("database", marks=pytest.mark.slow)])
def settings(
    request: pytest.FixtureRequest, home: Path, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Settings]:
    if request.param == "files":
        yield Settings(home=home)
        return
    request.getfixturevalue("alone_with_jobs")
    url: str = request.getfixturevalue("postgres_url")
    monkeypatch.setenv("REVERIE_DATABASE", url)
    monkeypatch.setenv("REVERIE_TENANT", tenant)
    yield Settings(home=home, database=url, tenant=tenant)


def reply(number: int, *content: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"msg_{number}",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [{"type": "text", "text": "Noted."}, *content],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1_000 * number, "output_tokens": 10},
    }


async def live(settings: Settings, project: Path, number: int) -> None:
    """Let the session of a project make a priced call, send a letter, queue jobs, and save a memory."""
    sent = {"type": "tool_use", "id": "t1", "name": "SendMessage", "input": {"to": "far", "message": "Done."}}
    async with Session.open(NAME, cwd=project, settings=settings, subject=f"person-{number}") as session:
        await session.say(f"The gate of garden {number} is open.")
        await session.prepare(model="claude-sonnet-5", max_tokens=100)
        await session.observe(reply(number, sent))
        await session.result("t1", "Sent.")
        await session.observe(reply(number + 2))
    slug = project_slug(project)
    folder = session_key(slug, NAME)
    with (
        open_mailbox(settings, "default", "far"),
        open_mailbox(settings, "default", f"near-{number}", session=folder) as near,
    ):
        near.send("far", "Done.")
    memory = Memory.open(project, settings=settings)
    memory.save(f"Garden {number} has a gate.", type="project", why="it was said", source=f"{NAME} {'0' * 8}")
    Queue(settings.home).put(Job(OWN, NAME, str(project), str(settings.home / log_key(slug, NAME))))
    if settings.database is not None:
        with closing(JobQueue(settings.database, settings.tenant or "")) as jobs:
            jobs.put("extract", project=slug, session=NAME)


@pytest.fixture
def projects(settings: Settings, tmp_path: Path) -> list[Path]:
    found = [tmp_path / "first", tmp_path / "second"]
    for number, project in enumerate(found, start=1):
        project.mkdir()
        anyio.run(live, settings, project, number)
    return found


def letters(settings: Settings) -> list[str]:
    with open_mailbox(settings, "default", "far") as far:
        far.acquire()
        return [one.sender for one in far.poll()]


@pytest.mark.requirement("A5", "K14")
def test_the_deletion_of_a_session_takes_nothing_of_one_of_the_same_name_in_another_project(
    settings: Settings, projects: list[Path], asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    slugs = [project_slug(one) for one in projects]
    monkeypatch.chdir(projects[0])
    total = asked("delete", NAME, "--yes")["total"]
    jobs = 1 if settings.database is None else 2
    assert {name: total[name] for name in ("memories", "calls", "letters", "others")} == {
        "memories": 1,
        "calls": 2,
        "letters": 1,
        "others": jobs,
    }
    with open_ledger(settings) as ledger:
        assert [(one.project, one.session) for one in ledger.calls()] == [(slugs[1], NAME)] * 2
    (waiting,) = Queue(settings.home).waiting_names()
    job = Queue(settings.home).read(waiting)
    assert job is not None
    assert job[0].cwd == str(projects[1])
    if settings.database is not None:
        with closing(JobQueue(settings.database, settings.tenant or "")) as queue:
            assert [(one.project, one.session) for one in queue.jobs()] == [(slugs[1], NAME)]
    assert letters(settings) == ["near-2"]
    assert [memory_count(settings, one) for one in projects] == [0, 1]
    assert asked("delete", "--project", str(projects[1]), "--yes")["total"]["calls"] == 2
    with open_ledger(settings) as ledger:
        assert ledger.calls() == []


def memory_count(settings: Settings, project: Path) -> int:
    return len(Memory.open(project, settings=settings).list())


@pytest.mark.requirement("A5")
def test_an_imported_memory_goes_with_the_session_that_it_came_from_and_not_with_one_of_its_name(
    settings: Settings, projects: list[Path], tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Memory.open(one, settings=settings) for one in projects)
    export_memories(first, tmp_path / "exported")
    assert import_memories(first, tmp_path / "exported").different == [], "nothing here is another memory"
    import_memories(second, tmp_path / "exported")
    assert [memory_count(settings, one) for one in projects] == [1, 2]
    assert asked("delete", "--project", str(projects[1]), "--yes")["total"]["memories"] == 1
    assert [head.name for head in Memory.open(projects[1], settings=settings).list()] == ["Garden 1 has a gate"]
    monkeypatch.chdir(projects[0])
    assert asked("delete", NAME, "--yes")["total"]["memories"] == 2
    assert [memory_count(settings, one) for one in projects] == [0, 0]


def test_the_export_of_a_person_has_no_memory_from_the_session_of_another_one(
    settings: Settings, projects: list[Path], tmp_path: Path, reverie: Reverie
) -> None:
    async def second(name: str) -> None:  # the first person is in the second project too
        async with Session.open(name, cwd=projects[1], settings=settings, subject="person-1") as session:
            await session.say("A visit.")

    anyio.run(second, "visit")
    code, _, err = reverie("export", "--subject", "person-1", "--output", str(tmp_path / "out"))
    assert code == 0, err
    written = "".join(one.read_text() for one in (tmp_path / "out").rglob("*") if one.is_file())
    assert ("Garden 1" in written, "Garden 2" in written) == (True, False)


def test_the_costs_of_sessions_of_the_same_name_are_told_apart(
    settings: Settings, projects: list[Path], asked: Asked
) -> None:
    rows = asked("stats", "--by", "session")["rows"]
    assert sorted(one["session"] for one in rows) == sorted(f"{project_slug(one)}/{NAME}" for one in projects)


def test_an_agent_names_its_mailbox_by_project_and_session(settings: Settings, tmp_path: Path) -> None:
    async def work() -> None:
        from reverie.models import ScriptedModel

        async with Agent(model=ScriptedModel([]), cwd=tmp_path, session=NAME, settings=settings):
            pass

    anyio.run(work)
    owner = settings.home / "teams/default" / NAME / "agent.json"
    if settings.database is None:
        assert json.loads(owner.read_text())["session"] == session_key(project_slug(tmp_path), NAME)
