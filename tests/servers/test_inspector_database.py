"""The inspector over sessions in a database: it follows them on any machine, and shows the background jobs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from browser import Browser
from inspected_server import LOOK, done, get, served, values
from postgres_server import WORKER_ROLE, PostgresServer
from reverie import Session, Settings
from reverie.conversation.decisions import AgentSpawned, Cause
from reverie.events import Event, InboxDrained
from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.jobs.queue import JobQueue
from reverie.runtime.jobs.worker import run_worker
from reverie.runtime.memory.memory import Memory
from reverie.runtime.places.projects import project_slug
from reverie.servers.inspector.server import InspectorServer
from reverie.values import replace

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("alone_with_jobs")]

MODEL = "claude-sonnet-4-5"


@pytest.fixture
def settings(postgres_url: str, home: Path, tmp_path: Path, tenant: str) -> Settings:
    return Settings(home=tmp_path / "page", database=postgres_url, tenant=tenant)


@pytest.fixture
def elsewhere(settings: Settings, tmp_path: Path) -> Settings:
    """Return the settings of another machine with the same database."""
    return replace(settings, home=tmp_path / "elsewhere")


@pytest.fixture
def server(settings: Settings) -> Iterator[InspectorServer]:
    yield from served(settings)


async def turn(session: Session, text: str) -> None:
    await session.say(text)
    await session.prepare(model=MODEL, max_tokens=100, system="Be brief.")
    usage = {"input_tokens": 900, "output_tokens": 20}
    reply = {"role": "assistant", "content": [{"type": "text", "text": f"saw {text}"}]}
    await session.observe({**reply, "id": f"m-{session.view.length}", "model": MODEL, "usage": usage})


@pytest.mark.requirement("I1", "I2")
def test_a_session_of_another_machine_is_followed_and_stopped(
    server: InspectorServer, elsewhere: Settings, tmp_path: Path
) -> None:
    seen: list[Event] = []

    async def run() -> None:
        async with Session.open("alpha", cwd=tmp_path, settings=elsewhere) as session:
            session.listen(seen.append)
            await turn(session, "look at the harbour")
            [row] = (await ask("/now"))["sessions"]
            assert (row["title"], row["doing"], row["calls"]) == ("look at the harbour", "waits for you", 1)
            assert row["where"] == f"pid {os.getpid()} on {socket.gethostname()}"
            _, said, _ = await anyio.to_thread.run_sync(lambda: get(server, "/film?session=alpha"))
            tag = said["etag"]
            assert await status("/film?session=alpha", tag) == 304
            await turn(session, "and the gate")
            assert await status("/film?session=alpha", tag) == 200
            assert (await ask("/now"))["sessions"][0]["calls"] == 2
            decision = AgentSpawned(Cause("relay", "asked for"), "scout", "find it", {"kind": "explore"})
            await session.log.decide(decision)
            assert [one["agent"] for one in (await ask("/agents"))["agents"]] == ["scout"]
            await anyio.to_thread.run_sync(lambda: done(server, "/do/stop?session=alpha"))
            await session.prepare(model=MODEL, max_tokens=100)

    async def ask(path: str) -> Any:
        return await anyio.to_thread.run_sync(lambda: values(server, path))

    async def status(path: str, tag: str) -> int:
        return await anyio.to_thread.run_sync(lambda: get(server, path, If_None_Match=tag)[0])

    anyio.run(run)
    assert [event.stop for event in seen if isinstance(event, InboxDrained)] == [True]
    [row] = values(server, "/now")["sessions"]
    assert (row["open"], row["where"]) == (False, "")
    assert [one["session"] for one in values(server, "/search?words=harbour")["messages"]][:1] == ["alpha"]
    assert values(server, "/costs?days=1")["by"]["session"][0]["name"] == "alpha"
    assert get(server, "/film?session=none")[0] == 404


def test_sessions_of_another_tenant_are_not_there(server: InspectorServer, elsewhere: Settings, tmp_path: Path) -> None:
    async def run() -> None:
        async with Session.open("alpha", cwd=tmp_path, settings=replace(elsewhere, tenant="another")) as session:
            await turn(session, "look at the harbour")

    anyio.run(run)
    assert values(server, "/now")["sessions"] == []
    assert get(server, "/film?session=alpha")[0] == 404
    assert values(server, "/search?words=harbour")["messages"] == []


@pytest.mark.requirement("I5")
def test_a_memory_that_another_machine_saved_is_reviewed_here(
    server: InspectorServer, elsewhere: Settings, tmp_path: Path
) -> None:
    memory, slug = Memory.open(tmp_path, settings=elsewhere), project_slug(tmp_path)
    memory.save("Staging is reset on Mondays.", type="project", name="Staging", author="agent", trust="unconfirmed")
    assert values(server, "/now")["waiting"] == [{"project": slug, "count": 1}]
    [project] = values(server, "/memories")["projects"]
    [head] = project["memories"]
    assert "Mondays" in head["diff"]
    approve = f"/do/approve?project={slug}&file={head['file']}"
    memory.update(head["file"], "Staging is reset by anybody.", author="agent", trust="unconfirmed", why="a new text")
    for unseen in (approve, f"{approve}&version={head['version']}"):
        assert b"shown" in get(server, unseen, "POST")[2]
    [project] = values(server, "/memories")["projects"]
    [head] = project["memories"]
    assert done(server, f"{approve}&version={head['version']}").startswith("approved")
    assert values(server, "/now")["waiting"] == []
    memory.refresh()
    assert memory.review() == []


@pytest.mark.requirement("I5")
def test_a_dream_of_another_machine_is_shown_and_undone_here(
    server: InspectorServer, elsewhere: Settings, tmp_path: Path
) -> None:
    memory, slug = Memory.open(tmp_path, settings=elsewhere), project_slug(tmp_path)
    for name in ("Deploys", "Deploys again"):
        memory.save("Deploys happen on Thursdays after 14:00.", type="project", name=name, why="the team agreed")
    anyio.run(Dreams(memory, elsewhere, project=tmp_path).run)
    [report] = values(server, "/dreams")["projects"][0]["reports"]
    assert "-Deploys happen on Thursdays after 14:00." in report["changes"][0]["diff"]
    assert done(server, f"/do/undo-dream?project={slug}&dream={report['dream']}").startswith("undone: ")
    memory.refresh()
    assert len(memory.list()) == 2


@pytest.mark.requirement("X4", "I2")
def test_a_person_sees_the_queue_and_tries_failed_jobs_again(
    server: InspectorServer, settings: Settings, postgres_server: PostgresServer, browser: Browser
) -> None:
    worker_url = postgres_server.url.replace("postgres@", f"{WORKER_ROLE}@")
    with closing(JobQueue(settings.database or "", settings.tenant or "")) as queue:
        queue.put("retain")  # fails, because no setting says how long sessions are retained
        anyio.run(partial(run_worker, worker_url, settings, once=True))
        queue.put("dream", project="harbour", delay_seconds=600)
        assert [(one["kind"], one["status"]) for one in values(server, "/now")["jobs"]] == [
            ("retain", "failed"),
            ("dream", "todo"),
        ]
        browser.tell("POST", "/url", {"url": server.address})
        browser.wait("return document.querySelector('[aria-label=\"Background jobs\"]') !== null")
        shown = browser.run("return document.querySelector('main').textContent")
        assert "background jobs: 1 failed, 1 waiting" in shown
        browser.run("document.querySelector('.act-retry-jobs').click()")
        browser.wait(f"{LOOK} return document.querySelector('main').textContent.includes('background jobs: 2 waiting')")
        assert {row.status for row in queue.jobs()} == {"todo"}
    assert browser.said() == []
