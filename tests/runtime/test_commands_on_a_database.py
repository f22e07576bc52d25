"""Commands that work on recordings and logs do so in the database too: keep, the gateway's recorder, redact."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from postgres_server import PostgresServer, words_in_dump
from reverie import Session
from reverie.importers import usual_places
from reverie.ports import Storage
from reverie.runtime.archive import Keeper, KeepReport
from reverie.runtime.library import Library
from reverie.runtime.memory.memory import Memory
from reverie.runtime.places.projects import log_key, project_slug
from reverie.runtime.places.storage import database_of, storage_of
from reverie.runtime.redaction.session import Redaction
from reverie.runtime.search.sessions import opened_search
from reverie.runtime.session.ledger import open_ledger
from reverie.servers.gateway.exchange import SeenExchange
from reverie.servers.gateway.recorder import Recorder
from reverie.settings import Settings
from reverie.values import replace

pytestmark = [pytest.mark.slow, pytest.mark.requirement("X2"), pytest.mark.usefixtures("alone_with_jobs")]

SECRET = "zebra-Quagga-4711-okapi"
ABOUT = {"sessionId": "0a1b", "cwd": "/nowhere/app", "timestamp": "2026-11-17T10:00:00.000Z"}


def transcript(turns: int) -> str:
    """Return a transcript of Claude Code with so many prompts and replies."""
    rows: list[dict[str, Any]] = []
    for turn in range(turns):
        asked = {"role": "user", "content": f"Where do the herons nest? {turn}"}
        told = {"id": f"m{turn}", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "There."}]}
        parent = f"a{turn - 1}" if turn else None
        rows.append({"type": "user", "uuid": f"u{turn}", "parentUuid": parent, **ABOUT, "message": asked})
        rows.append({"type": "assistant", "uuid": f"a{turn}", "parentUuid": f"u{turn}", **ABOUT, "message": told})
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def settings(postgres_url: str, tenant: str, tmp_path: Path) -> Settings:
    (tmp_path / "home").mkdir()
    return Settings(home=tmp_path / "home", database=postgres_url, tenant=tenant)


@contextmanager
def opened(settings: Settings) -> Generator[Storage]:
    with closing(storage_of(settings)) as storage:
        yield storage


def files_in(home: Path) -> list[str]:
    found = (path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
    return sorted(one for one in found if not one.startswith(".reverie-"))


def test_sessions_of_other_agents_are_kept_in_the_database(settings: Settings, tmp_path: Path) -> None:
    user = tmp_path / "user"
    file = user / ".claude/projects/-nowhere-app/0a1b.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(transcript(1))

    def keep() -> KeepReport:
        with opened(settings) as storage:
            return Keeper(storage, settings.home, usual_places(user, {})).keep(2e9)

    (agent,) = keep().agents
    assert (agent.kept, agent.added) == (1, 1)
    assert files_in(settings.home) == ["archive.json"]
    with opened(replace(settings, home=tmp_path / "elsewhere")) as storage:
        (key,) = Library(storage).keys()
        assert "herons" in str(Library(storage).view(key).messages())
    assert keep().read == 0
    with opened(settings) as storage:
        Library(storage).remove(key)
    file.write_text(transcript(2))
    assert keep().keys == ()  # a deleted session stays deleted
    with opened(settings) as storage:
        assert Library(storage).keys() == []


def test_the_gateway_records_in_the_database(settings: Settings) -> None:
    said: list[str] = []
    request = {
        "model": "claude-sonnet-5",
        "max_tokens": 9,
        "system": "You help.",
        "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "Where?"}],
    }
    reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [{"type": "text", "text": "In the reeds."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "output_tokens": 5},
    }
    kind = {"content-type": "application/json"}
    bodies = json.dumps(request).encode(), json.dumps(reply).encode()
    with Recorder(settings, said.append) as recorder:
        key = recorder.take(SeenExchange("messages", 1.79e9, 200, True, {"x-session-id": "s1"}, kind, *bodies))
    assert said == []
    assert key is not None
    assert files_in(settings.home) == []
    with opened(settings) as storage:
        assert "In the reeds." in str(Library(storage).view(key).messages())
    with open_ledger(settings) as ledger:
        assert [call.actual.uncached for call in ledger.calls()] == [100]


def test_a_redacted_secret_is_nowhere_in_a_dump(
    settings: Settings, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    elsewhere = replace(settings, home=tmp_path / "elsewhere")

    async def talk(name: str, text: str) -> None:
        async with Session.open(name, cwd=project, settings=settings) as session:
            await session.say(text)
            await session.observe(
                {
                    "id": f"msg_{name}",
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": text}}],
                    "stop_reason": "tool_use",
                    "usage": {"input_tokens": 10, "output_tokens": 5},
                }
            )
            await session.result("t1", f"{text}\n" * 30_000)

    anyio.run(talk, "one", f"The key is {SECRET}.")
    anyio.run(talk, "two", "The herons nest in March.")
    memory = Memory.open(project, settings=elsewhere)
    memory.save(f"The key of the heron camera is {SECRET}.", type="project", why="it was said")
    kept = memory.save("Herons nest in March.", type="project", why="it was said")
    with opened_search(settings) as search:
        assert search.search("quagga okapi")[0].session == "one"
    assert words_in_dump(postgres_server, SECRET.encode(), b"quagga") == {SECRET.encode(), b"quagga"}

    key = log_key(project_slug(project), "one")
    with opened(settings) as storage:
        before = storage.load(log_key(project_slug(project), "two"))
        redaction = Redaction(storage, settings.home, key, [SECRET])
        planned = redaction.plan()
        assert planned.occurrences > 1
        receipt = redaction.run()
        assert (receipt.left, len(receipt.memories)) == ([], 1)
        assert key in receipt.files
        assert storage.load(log_key(project_slug(project), "two")) == before
        database = database_of(storage)
        assert database is not None
        assert database.records.audit()[0].act == "redact"
    assert words_in_dump(postgres_server, SECRET.encode(), b"quagga") == set()
    assert [head.file for head in Memory.open(project, settings=elsewhere).list()] == [kept.file]
    with opened_search(settings) as search:
        assert search.search("quagga okapi") == []
        assert search.search("herons nest March")[0].session == "two"
