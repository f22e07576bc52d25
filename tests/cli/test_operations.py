"""Operations on a real database: erasure and export by person, retention, audit, budgets, encryption, blobs, jobs."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import psycopg
import pytest

from postgres_server import WORKER_ROLE, PostgresServer, words_in_dump
from reverie import Session
from reverie.errors import SessionBusy, SettingsError
from reverie.runtime.agent.budgets import Budgets
from reverie.runtime.deletion.session import SessionDeletion
from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.jobs.queue import JobQueue
from reverie.runtime.jobs.worker import run_worker
from reverie.runtime.mail.stored_mailbox import open_mailbox
from reverie.runtime.memory.memory import Memory
from reverie.runtime.places.projects import log_key, project_slug
from reverie.runtime.places.storage import storage_of
from reverie.runtime.session.ledger import open_ledger
from reverie.settings import AgentPolicy, Settings
from reverie.values import replace

from .conftest import Asked, Reverie
from .test_json_schemas import closed, schema_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("alone_with_jobs")]

AT = 1_790_000_000.0
SECRET = "The patient in room nine is allergic to quinine."
REPLY: dict[str, Any] = {
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "text", "text": "Noted."}],
    "stop_reason": "end_turn",
    "model": "claude-sonnet-5",
    "usage": {"input_tokens": 100_000, "output_tokens": 1_000},
}


@pytest.fixture
def settings(
    postgres_server: PostgresServer,
    postgres_url: str,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    tenant: str,
) -> Settings:
    monkeypatch.setenv("REVERIE_DATABASE", postgres_url)
    monkeypatch.setenv("REVERIE_TENANT", tenant)
    monkeypatch.chdir(tmp_path)
    return Settings(home=home, database=postgres_url, tenant=tenant)


def talk(settings: Settings, name: str, text: str, *, subject: str = "", letter: str = "") -> None:
    """Write a short session, in which the model also sends a letter, if there is one."""

    async def run() -> None:
        async with Session.open(name, settings=settings, subject=subject, clock=lambda: AT) as session:
            await session.say(text)
            await session.prepare(model="claude-sonnet-5", max_tokens=100)
            if letter:
                sent = {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "SendMessage",
                    "input": {"to": "far", "message": letter},
                }
                await session.observe({**REPLY, "id": "msg_0", "content": [sent]})
                await session.result("t1", "Sent.")
            await session.observe(REPLY)

    anyio.run(run)


@pytest.fixture
def secret(tmp_path: Path) -> bytes:
    """Return a word that no other test says, so that a dump of the whole database may be searched for it."""
    return f"quinine{sha256(str(tmp_path).encode()).hexdigest()[:12]}".encode()


@pytest.mark.requirement("X5")
@pytest.mark.parametrize("place", ["database", "files"])
def test_nobody_opens_a_session_while_it_is_erased(settings: Settings, place: str) -> None:
    settings = settings if place == "database" else replace(settings, database=None, tenant=None)
    talk(settings, "one", "hello")
    refused: list[SessionBusy] = []

    def talk_meanwhile(logs: Sequence[str], dry_run: bool) -> int:
        with pytest.raises(SessionBusy, match="delete") as raised:
            talk(settings, "one", SECRET)
        refused.append(raised.value)
        return 0

    with closing(storage_of(settings)) as storage:
        deletion = SessionDeletion(settings, storage, [talk_meanwhile])
        deletion.run(log_key(project_slug("."), "one"))
        assert (len(refused), [key for key in storage.list() if "one" in key]) == (1, [])
        with open_ledger(settings, storage) as ledger:
            assert ledger.spent("2026-01-01") == 0


@pytest.mark.requirement("X5", "A5")
def test_erasing_a_person_leaves_no_word_in_a_dump_of_the_database_or_on_this_machine(
    settings: Settings, postgres_server: PostgresServer, reverie: Reverie, asked: Asked, home: Path, secret: bytes
) -> None:
    tenant, said, kept = settings.tenant or "", f"The patient takes {secret.decode()}.", b"garden" + secret[7:]
    talk(settings, "one", said, subject="person-7", letter=said)
    talk(settings, "two", said + " " + "x" * 400_000, subject="person-7")
    talk(settings, "other", f"The gate of the {kept.decode()} is open.", subject="person-8")
    memory = Memory.open(".", settings=settings)
    memory.save(said, type="project", why="it was said", source=f"one {'0' * 8}")
    memory.append_daily(f"The nurse asked about {secret.decode()} on the second floor.", source="one")
    anyio.run(Dreams(memory, settings, project=".").run)
    assert asked("search", secret.decode())["messages"]
    with open_mailbox(settings, "default", "far"), open_mailbox(settings, "default", "near", session="one") as near:
        near.send("far", said)
        near.send("far", "Nothing of it.")
    with closing(storage_of(settings)) as storage:
        storage.write(f"projects/{project_slug('.')}/one/notes.md", said.encode())
    with closing(JobQueue(settings.database or "", tenant)) as queue:
        queue.put("extract", project=project_slug("."), session="one")
    assert words_in_dump(postgres_server, secret, kept) == {secret, kept}
    dry = asked("delete", "--subject", "person-7", "--dry-run")
    assert {one["session"] for one in dry["sessions"]} == {"one", "two"}
    assert (dry["total"]["memories"], dry["total"]["others"]) == (2, 1)
    assert secret in words_in_dump(postgres_server, secret)

    code, out, err = reverie("delete", "--subject", "person-7", "--yes")
    assert code == 0, err
    assert "nothing of it is left" in out
    assert words_in_dump(postgres_server, secret, kept) == {kept}
    assert not [path for path in home.rglob("*") if path.is_file() and secret in path.read_bytes()]
    rows = asked("db", "audit")
    jsonschema.validate(rows, closed(schema_of("db-audit")))
    assert [(row["act"], row["detail"]["session"], row["detail"]["why"]) for row in rows["rows"]] == [
        ("delete", "two", "subject"),
        ("delete", "one", "subject"),
    ]


@pytest.mark.requirement("X5")
@pytest.mark.parametrize("erased", [("memory", "rm", "--erase", "--source", "one"), ("delete", "one")])
def test_an_erased_memory_of_a_home_that_was_moved_here_is_in_no_dump_and_does_not_come_back(
    settings: Settings,
    postgres_server: PostgresServer,
    reverie: Reverie,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    secret: bytes,
    erased: tuple[str, ...],
) -> None:
    old = replace(settings, home=tmp_path / "old", database=None)
    talk(old, "one", "hello")
    Memory.open(".", settings=old).save(
        f"The patient takes {secret.decode()}.", type="project", why="it was said", source=f"one {'0' * 8}"
    )
    monkeypatch.setenv("REVERIE_HOME", str(old.home))
    assert reverie("move", "--to", settings.database)[0] == 0
    assert words_in_dump(postgres_server, secret) == {secret}
    monkeypatch.setenv("REVERIE_HOME", str(settings.home))
    assert reverie(*erased, "--yes")[0] == 0
    assert words_in_dump(postgres_server, secret) == set()
    monkeypatch.setenv("REVERIE_HOME", str(tmp_path / "new"))
    assert reverie("move", "--from", settings.database)[0] == 0
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_audit_rows_cannot_be_changed_by_the_role_of_the_programs(settings: Settings) -> None:
    for act in ("UPDATE reverie.audit SET who = 'nobody'", "DELETE FROM reverie.audit"):
        with psycopg.connect(settings.database or "") as connection:
            connection.execute("SELECT set_config('reverie.tenant', %s, true)", (settings.tenant,))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(act.encode())
            connection.rollback()


@pytest.mark.requirement("X5")
def test_everything_about_a_person_is_exported_byte_for_byte(
    settings: Settings, reverie: Reverie, tmp_path: Path, asked: Asked
) -> None:
    talk(settings, "one", SECRET, subject="person-7")
    talk(settings, "other", "The gate is open.", subject="person-8")
    Memory.open(".", settings=settings).save(SECRET, type="project", why="it was said", source=f"one {'0' * 8}")
    code, _, err = reverie("export", "--subject", "person-7", "--output", "out")  # in this folder, as in the guide
    assert code == 0, err
    files = {
        path.relative_to(tmp_path / "out").as_posix(): path.read_bytes() for path in (tmp_path / "out").rglob("*.*")
    }
    log = next(data for name, data in files.items() if name.endswith("/one.jsonl"))
    assert log == reverie("export", "one")[1].encode()
    assert [name for name in files if name.endswith(".md") and b"quinine" in files[name]]
    assert not any(b"gate" in data for data in files.values())
    assert [row["act"] for row in asked("db", "audit", "--since", "2026-01-31")["rows"]] == ["export"]
    code, _, err = reverie("db", "audit", "--since", "yesterday")
    assert (code, "--since 'yesterday' is no date; give one such as 2026-01-31" in err) == (2, True)
    assert reverie("export", "--subject", "person-7", "--output", tmp_path / "out")[0] == 2


@pytest.mark.requirement("X5")
def test_the_budget_of_a_day_counts_the_calls_of_all_machines(settings: Settings, tmp_path: Path) -> None:
    limited = AgentPolicy(budget_day_usd=0.32)
    first = Settings(home=tmp_path / "a", database=settings.database, tenant=settings.tenant, agent=limited)
    second = Settings(home=tmp_path / "b", database=settings.database, tenant=settings.tenant, agent=limited)
    stranger = Settings(home=tmp_path / "b", database=settings.database, tenant="stranger", agent=limited)
    talk(first, "one", "hello")
    assert Budgets(second, "").over(AT) == ""
    talk(second, "two", "hello")
    assert "a day for all sessions is spent" in Budgets(first, "").over(AT)
    assert "is spent" in Budgets(second, "").over(AT)
    assert Budgets(stranger, "").over(AT) == ""


@pytest.mark.requirement("X5")
def test_an_encrypted_session_resumes_and_no_row_has_a_word_of_it(
    settings: Settings,
    postgres_server: PostgresServer,
    reverie: Reverie,
    monkeypatch: pytest.MonkeyPatch,
    secret: bytes,
) -> None:
    said = f"The patient takes {secret.decode()}."
    monkeypatch.setenv("ACME_KEY", base64.b64encode(bytes(range(32))).decode())
    monkeypatch.setenv("REVERIE_ENCRYPTION_KEY", "env:ACME_KEY")
    key = Settings(
        home=settings.home, database=settings.database, tenant=settings.tenant, encryption_key="env:ACME_KEY"
    )
    talk(key, "one", said)
    talk(key, "one", "And again.")
    assert words_in_dump(postgres_server, secret) == set()
    assert said in reverie("show", "one")[1]
    assert "encrypted sessions are not indexed" in reverie("search", secret.decode())[1]
    monkeypatch.setenv("ACME_KEY", base64.b64encode(bytes(32)).decode())
    code, out, err = reverie("show", "one")
    assert code != 0
    assert said not in out
    assert "cannot be unwrapped" in err


@pytest.mark.requirement("X5")
def test_a_machine_without_the_key_of_an_encrypted_tenant_writes_nothing(
    settings: Settings,
    postgres_server: PostgresServer,
    reverie: Reverie,
    monkeypatch: pytest.MonkeyPatch,
    secret: bytes,
) -> None:
    monkeypatch.setenv("ACME_KEY", base64.b64encode(bytes(range(32))).decode())
    talk(replace(settings, encryption_key="env:ACME_KEY"), "one", "hello")
    for name in ("one", "two"):
        with pytest.raises(SettingsError, match="is encrypted; set encryption_key"):
            talk(settings, name, secret.decode())
    code, _, err = reverie("memory", "add", f"The patient takes {secret.decode()}.", "--why", "it was said")
    assert code != 0
    assert "is encrypted; set encryption_key" in err
    assert words_in_dump(postgres_server, secret) == set()
    assert "is encrypted; set encryption_key" in reverie("show", "one")[2]


@pytest.mark.requirement("X4", "X5")
def test_a_worker_uses_the_key_of_each_tenant_and_none_for_a_tenant_without_one(
    settings: Settings, postgres_server: PostgresServer
) -> None:
    tenants = [replace(settings, tenant=f"{settings.tenant}/{name}") for name in "abc"]
    worker_url = postgres_server.url.replace("postgres@", f"{WORKER_ROLE}@")
    place = "file:" + str(settings.home.parent / "{tenant}.key")
    for name in "ab":
        key = settings.home.parent / f"{settings.tenant}%2F{name}.key"
        key.write_bytes(base64.b64encode(name.encode() * 32))
    keyed = [*(replace(one, encryption_key=place) for one in tenants[:2]), tenants[2]]
    for one in keyed:
        talk(one, "one", "Please fix the parser in src/parser.py. It fails on empty input.")
        with closing(JobQueue(one.database or "", one.tenant or "")) as queue:
            queue.put("notes", project=project_slug("."), session="one")
    anyio.run(partial(run_worker, worker_url, replace(settings, encryption_key=place), once=True))
    for one in keyed:
        with closing(storage_of(one)) as storage, closing(JobQueue(one.database or "", one.tenant or "")) as queue:
            assert queue.jobs() == []
            assert b'"notes' in (storage.load(log_key(project_slug("."), "one")) or b"")


def test_large_contents_go_to_the_object_store_and_leave_it_with_the_session(
    settings: Settings,
    tmp_path: Path,
    postgres_server: PostgresServer,
    reverie: Reverie,
    monkeypatch: pytest.MonkeyPatch,
    secret: bytes,
) -> None:
    folder = tmp_path / "objects"
    folder.mkdir()
    monkeypatch.setenv("REVERIE_BLOBS", f"file://{folder}")
    outside = Settings(home=settings.home, database=settings.database, tenant=settings.tenant, blobs=f"file://{folder}")
    talk(outside, "one", f"{'y' * 400_000} {secret.decode()} {'y' * 400_000}")
    assert [path for path in folder.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert words_in_dump(postgres_server, secret) == set()
    assert secret.decode() in reverie("show", "one")[1]
    assert reverie("delete", "one", "--yes")[0] == 0
    assert not [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.requirement("X4")
def test_jobs_are_listed_queued_and_checked_from_the_command_line(
    settings: Settings, reverie: Reverie, asked: Asked
) -> None:
    assert "No jobs wait" in reverie("db", "jobs")[1]
    assert reverie("db", "queue", "notes")[0] == 2
    assert asked("db", "queue", "retain", "--dry-run")["queued"] is False
    assert asked("db", "queue", "retain", "--every", "24")["queued"] is True
    assert asked("db", "queue", "retain", "--every", "24")["queued"] is False
    listed = asked("db", "jobs")
    jsonschema.validate(listed, closed(schema_of("db-jobs")))
    assert [(one["kind"], one["status"]) for one in listed["jobs"]] == [("retain", "todo")]
    assert "retain" in reverie("db", "jobs")[1]
    code, _, err = reverie("db", "queue", "notes", "--project", project_slug("."), "--session", "mistyped")
    assert (code, "no session mistyped in project" in err) == (2, True)
    talk(settings, "one", "hello")
    assert asked("stats", "--days", "36500")["jobs"] == {"todo": 1}
    assert "1 waiting" in reverie("stats", "--days", "36500")[1]


@pytest.mark.requirement("X4")
def test_a_timer_is_ended_from_the_command_line(settings: Settings, asked: Asked, reverie: Reverie) -> None:
    talk(settings, "one", "hello")
    session = ("--project", project_slug("."), "--session", "one")
    with closing(JobQueue(settings.database or "", settings.tenant or "")) as queue:
        queue.put("retain", every_seconds=3_600, delay_seconds=3_600)
        asked("db", "queue", "notes", *session, "--every", "24")
        assert reverie("db", "queue", "retain", "--stop", "--dry-run")[:2] == (0, "would delete the waiting retain\n")
        assert len(queue.jobs()) == 2
        assert asked("db", "queue", "retain", "--stop")["deleted"]
        assert [row.kind for row in queue.jobs()] == ["notes"]
        assert asked("db", "queue", "notes", *session, "--stop")["deleted"]
        assert reverie("db", "queue", "notes", *session, "--stop")[:2] == (0, "no such notes waits\n")
        assert queue.jobs() == []


@pytest.mark.requirement("X5")
def test_expired_sessions_are_named_by_a_dry_run_and_deleted_after_it(
    settings: Settings, reverie: Reverie, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_RETENTION_DAYS", "30")
    now = time.time()

    async def talked(name: str, at: float) -> None:
        async with Session.open(name, settings=settings, clock=lambda: at) as session:
            await session.say("hello")

    anyio.run(talked, "old", now - 40 * 86_400)
    anyio.run(talked, "new", now)
    monkeypatch.setattr("time.time", lambda: now + 400 * 86_400)  # the clock of one machine is wrong
    dry = asked("delete", "--expired", "--dry-run")
    assert [one["session"] for one in dry["sessions"]] == ["old"]
    assert {one["session"] for one in asked("sessions")["sessions"]} == {"old", "new"}
    assert reverie("delete", "--expired", "--yes")[0] == 0
    assert {one["session"] for one in asked("sessions")["sessions"]} == {"new"}


def test_nothing_expires_until_a_number_of_days_is_set(settings: Settings, reverie: Reverie) -> None:
    code, _, err = reverie("delete", "--expired", "--dry-run")
    assert code == 2
    assert "retention_days" in err
