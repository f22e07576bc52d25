"""Background jobs on a real database: one per session at a time, of one tenant each, with one effect whatever dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import anyio
import psycopg
import pytest
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Status
from procrastinate.manager import JobManager

from postgres_server import TENANT_ROLE, WORKER_ROLE, PostgresServer
from reverie import Session
from reverie.errors import InputError, NewerVersion, StorageError
from reverie.runtime.jobs import worker
from reverie.runtime.jobs.engine import install, worker_app
from reverie.runtime.jobs.queue import SCHEMA, JobArguments, JobQueue, Kind
from reverie.runtime.jobs.worker import run_worker
from reverie.runtime.memory.memory import Memory
from reverie.runtime.memory.shared_journal import StoredJournal
from reverie.runtime.places.projects import project_slug
from reverie.runtime.places.storage import storage_of
from reverie.settings import Settings
from reverie.storage.postgres.migrate import migrate
from reverie.values import replace

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("alone_with_jobs")]

REPLY = {
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "text", "text": "Noted."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 2},
}


@pytest.fixture(scope="module")
def worker_url(postgres_server: PostgresServer) -> str:
    """Return the URL of the workers' role, which is bound to tenants in every table but that of jobs."""
    return postgres_server.url.replace("postgres@", f"{WORKER_ROLE}@")


@pytest.fixture
def settings(postgres_url: str, worker_url: str, tmp_path: Path, tenant: str) -> Settings:
    return Settings(home=tmp_path / "home", database=postgres_url, tenant=tenant)


@pytest.fixture
def queue(settings: Settings) -> Iterator[JobQueue]:
    with closing(JobQueue(settings.database or "", settings.tenant or "")) as queue:
        yield queue


def work(url: str, settings: Settings, **options: object) -> list[tuple[str, str]]:
    """Run the worker until no job is left, and return the kind and result of this tenant's jobs."""
    done: list[tuple[str, str]] = []

    def told(job: JobArguments, result: str) -> None:
        if job.tenant == settings.tenant:
            done.append((job.kind, result))

    anyio.run(partial(run_worker, url, settings, listener=told, once=True, **options))
    return done


def talk(settings: Settings, cwd: Path, name: str, *texts: str) -> str:
    async def run() -> None:
        async with Session.open(name, cwd=cwd, settings=settings) as session:
            for text in texts:
                await session.say(text)
                await session.prepare(model="claude-sonnet-5", max_tokens=100)
                await session.observe(REPLY)

    anyio.run(run)
    return project_slug(cwd)


@pytest.mark.requirement("X4")
def test_the_same_job_waits_once_and_runs_once(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path
) -> None:
    project = talk(settings, tmp_path, "one", "Please fix the parser in src/parser.py. It fails on empty input.")
    assert queue.put("notes", project=project, session="one")
    assert not queue.put("notes", project=project, session="one")
    assert [row.status for row in queue.jobs()] == ["todo"]
    assert work(worker_url, settings) == [("notes", "updated 5 sections of the notes")]
    assert queue.jobs() == [], "the rows of jobs that are done would only grow in number"


@pytest.mark.requirement("X4")
def test_a_repeated_run_of_a_job_changes_nothing(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path
) -> None:
    texts = ["Please fix the parser. It fails on empty input.", "Always run the linter before you commit, please."]
    project = talk(settings, tmp_path, "one", *texts)
    talk(settings, tmp_path, "two", "Always run the linter before you commit, please.")
    for kind in ("notes", "extract"):
        queue.put(kind, project=project, session="one")
        work(worker_url, settings)
        before = contents(settings)
        queue.put(kind, project=project, session="one")
        assert [name for name, _ in work(worker_url, settings)] == [kind]
        assert contents(settings) == before


def contents(settings: Settings) -> dict[str, bytes | None]:
    with closing(storage_of(settings)) as storage:
        return {key: storage.load(key) for key in storage.list()}


@pytest.mark.requirement("X3")
def test_a_program_sees_and_queues_jobs_of_its_tenant_alone(queue: JobQueue, settings: Settings) -> None:
    queue.put("retain")
    url = settings.database or ""
    with closing(JobQueue(url, "another")) as other:
        assert other.forget(["projects//.jsonl", "projects/p/one.jsonl"]) == 0
        assert not [row for row in other.jobs() if row.id in {mine.id for mine in queue.jobs()}]
    with closing(JobQueue(url, f"{settings.tenant}/p")) as other:  # no slash makes it the project of another tenant
        assert queue.put("dream", project="p")
        assert other.put("dream")
        assert [(row.kind, row.project) for row in other.jobs()] == [("dream", "")]
    with psycopg.connect(url) as connection:  # no tenant
        assert connection.execute("SELECT count(*) FROM reverie_jobs.procrastinate_jobs").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM reverie_jobs.procrastinate_events").fetchone() == (0,)
    for tenant in ("another", ""):
        with psycopg.connect(url) as connection:
            connection.execute("SET LOCAL search_path TO reverie_jobs")
            connection.execute("SELECT set_config('reverie.tenant', %s, true)", (tenant,))
            given = (json.dumps({"tenant": settings.tenant}),)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(
                    "INSERT INTO procrastinate_jobs (queue_name, task_name, args) VALUES ('reverie', 'any', %s)", given
                )
            connection.rollback()
    assert len(queue.jobs()) == 2


def test_jobs_before_the_tables_exist_say_how_to_make_them(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE empty_jobs")
    try:
        queue = JobQueue(postgres_server.url.replace("/postgres?", "/empty_jobs?"), "t")
        with closing(queue), pytest.raises(StorageError, match="reverie db migrate"):
            queue.put("retain")
    finally:
        with psycopg.connect(postgres_server.url, autocommit=True) as connection:
            connection.execute("DROP DATABASE empty_jobs WITH (FORCE)")


def test_a_role_that_may_not_use_the_jobs_is_told_which_rights_it_needs(
    postgres_server: PostgresServer, tenant: str
) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{tenant}" LOGIN'.encode())
    url = postgres_server.url.replace("postgres@", f"{tenant}@")
    with closing(JobQueue(url, tenant)) as queue, pytest.raises(StorageError, match=r"the rights that .* --grant ROLE"):
        queue.jobs()


def test_a_database_that_is_read_only_is_told_in_one_line_that_names_the_primary_server(
    postgres_server: PostgresServer, tmp_path: Path, settings: Settings, tenant: str
) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{tenant}" LOGIN IN ROLE {WORKER_ROLE}'.encode())
        connection.execute(f'ALTER ROLE "{tenant}" SET default_transaction_read_only = on'.encode())
        connection.execute(f"INSERT INTO {SCHEMA}.worker_roles VALUES (%s)".encode(), (tenant,))
    url = postgres_server.url.replace("postgres@", f"{tenant}@")
    acts = [
        lambda: talk(replace(settings, database=url), tmp_path, "one", "Hello."),
        lambda: JobQueue(url, tenant).put("retain"),
        lambda: work(url, settings),
        lambda: migrate(url, grant=tenant),
        lambda: install(url, grant=tenant),
    ]
    for act in acts:
        with pytest.raises(StorageError, match=r"is read-only for this role; give the URL of the primary") as caught:
            act()
        assert "transaction" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_unknown_kind_of_job_is_refused(queue: JobQueue) -> None:
    with pytest.raises(InputError, match="one of: notes"):
        queue.put("polish")  # pyright: ignore[reportArgumentType]


def test_the_tables_of_the_engine_are_made_once_from_many_processes(
    postgres_server: PostgresServer, worker_url: str
) -> None:
    assert install(postgres_server.url, grant=TENANT_ROLE, worker=WORKER_ROLE) is False


@pytest.mark.requirement("X4")
@pytest.mark.parametrize("is_older", [False, True])
def test_a_worker_ends_although_a_job_waits_for_its_next_attempt(
    postgres_server: PostgresServer, worker_url: str, settings: Settings, tenant: str, is_older: bool
) -> None:
    """As the guide says, the owner of the tables is no superuser; a foreign key changes the job as that owner."""
    name = f"kept_{is_older}".lower()
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN".encode())
        connection.execute(f"CREATE DATABASE {name} OWNER {name}".encode())
    urls = {
        role: postgres_server.url.replace("postgres@/postgres", f"{role}@/{name}")
        for role in (name, TENANT_ROLE, WORKER_ROLE)
    }
    migrate(urls[name], grant=WORKER_ROLE)
    install(urls[name], grant=TENANT_ROLE, worker=WORKER_ROLE)
    with psycopg.connect(urls[name]) as connection:
        connection.execute("DROP TABLE reverie.words")
        if is_older:
            connection.execute("DROP POLICY workers ON reverie_jobs.procrastinate_jobs")
    if is_older:
        install(urls[name], worker=WORKER_ROLE)
    with closing(JobQueue(urls[TENANT_ROLE], tenant)) as queue:
        queue.put("index")
        ((kind, result),) = work(urls[WORKER_ROLE], settings)  # the table of words is missing, so it fails
        assert (kind, result.split(":")[0]) == ("index", "failed")
        assert [(row.status, row.attempts) for row in queue.jobs()] == [("todo", 1)]


@pytest.mark.requirement("X3", "X4")
def test_a_worker_dreams_for_two_tenants_with_projects_of_one_name(worker_url: str, settings: Settings) -> None:
    both = [replace(settings, tenant=f"{settings.tenant}-{number}") for number in range(2)]
    for one in both:
        with closing(storage_of(one)) as storage, closing(JobQueue(one.database or "", one.tenant or "")) as queue:
            folder = "projects/app-1a2b3c4d/memory"
            memory = Memory(one.home / (one.tenant or ""), shared=StoredJournal(storage, folder, one.tenant or ""))
            memory.save(f"{one.tenant} counts the herons in March.", type="project", why="it was said")
            queue.put("dream", project="app-1a2b3c4d")
    assert [row for row in work(worker_url, both[0]) if "failed" in row[1]] == []
    for one in both:
        with closing(JobQueue(one.database or "", one.tenant or "")) as queue:
            assert queue.jobs() == []


def test_a_timer_queues_its_next_run(queue: JobQueue, worker_url: str, settings: Settings) -> None:
    kept = Settings(home=settings.home, database=settings.database, tenant=settings.tenant, retention_days=30)
    queue.put("retain", every_seconds=3_600)
    assert work(worker_url, kept) == [("retain", "deleted 0 sessions")]
    assert [(row.status, row.at is not None) for row in queue.jobs()] == [("todo", True)]


@pytest.mark.requirement("X4")
@pytest.mark.parametrize("waits_already", [0, 3_600], ids=["once", "timer"])
def test_a_timer_takes_the_place_of_the_same_job_that_waits(
    queue: JobQueue, worker_url: str, settings: Settings, waits_already: int
) -> None:
    queue.put("index", every_seconds=waits_already)
    assert queue.put("index", every_seconds=86_400)
    assert not queue.put("index", every_seconds=86_400), "it waits already"
    assert not queue.put("index", every_seconds=60, delay_seconds=60), "an earlier timer that just runs changes nothing"
    assert [kind for kind, _ in work(worker_url, settings)] == ["index"]
    (row,) = queue.jobs()
    assert row.at is not None
    assert (row.at - datetime.now(UTC)).total_seconds() > 80_000


@pytest.mark.requirement("X4")
def test_a_job_that_was_queued_while_a_timer_ran_does_not_end_the_timer(
    queue: JobQueue, worker_url: str, settings: Settings
) -> None:
    queue.put("index")
    queue.put("index", every_seconds=3_600, delay_seconds=3_600)
    assert [kind for kind, _ in work(worker_url, settings)] == ["index"], "it runs now"
    assert [(row.status, row.at is not None) for row in queue.jobs()] == [("todo", True)]


@pytest.mark.requirement("X4")
def test_a_job_that_waits_for_its_time_keeps_no_other_one_waiting(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path
) -> None:
    kept = replace(settings, retention_days=30)
    project = talk(settings, tmp_path, "one", "hello")
    for kind, session in (("index", ""), ("dream", ""), ("notes", "one")):
        queue.put(kind, project=project, session=session, every_seconds=9, delay_seconds=3_600)
    queue.put("retain", project=project)
    queue.put("extract", project=project, session="one")
    assert sorted(kind for kind, _ in work(worker_url, kept)) == ["extract", "retain"]
    assert not queue.put("index", project=project, delay_seconds=60)
    assert queue.put("index", project=project), "the one that waits runs now"
    assert not queue.put("index", project=project), "it waits already"
    assert [kind for kind, _ in work(worker_url, kept)] == ["index"]
    assert sorted((row.kind, row.at is not None) for row in queue.jobs()) == [
        ("dream", True),
        ("index", True),
        ("notes", True),
    ]


@pytest.mark.requirement("X4")
def test_a_job_that_waits_for_its_next_attempt_keeps_no_other_one_of_its_session_waiting(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = talk(settings, tmp_path, "one", "hello")
    run_job, away = worker.run_job, iter([True])

    def run(job: JobArguments, url: str, settings: Settings) -> str:
        if job.kind == "notes" and next(away, False):
            raise StorageError("the store is away", path="one")
        return run_job(job, url, settings)

    monkeypatch.setattr(worker, "run_job", run)
    queue.put("notes", project=project, session="one")
    queue.put("extract", project=project, session="one")
    assert [kind for kind, _ in work(worker_url, settings)] == ["notes", "extract"]
    assert [(row.kind, row.attempts) for row in queue.jobs()] == [("notes", 1)]
    queue.put("extract", project=project, session="one")
    while (row := queue.jobs()[0]).kind == "notes" and row.at is not None and row.at > datetime.now(UTC):
        time.sleep(0.1)
    assert [kind for kind, _ in work(worker_url, settings)] == ["notes", "extract"], (
        "its time has come, in its old turn"
    )


def test_a_failed_job_is_shown_and_can_be_queued_again(queue: JobQueue, worker_url: str, settings: Settings) -> None:
    queue.put("retain")
    assert [kind for kind, result in work(worker_url, settings) if "retention_days" in result] == ["retain"]
    assert [row.status for row in queue.jobs(status="failed")] == ["failed"]
    assert queue.retry_failed() == 1
    kept = Settings(home=settings.home, database=settings.database, tenant=settings.tenant, retention_days=30)
    assert work(worker_url, kept) == [("retain", "deleted 0 sessions")]


@pytest.mark.requirement("X4")
def test_a_failure_is_told_in_one_line_and_its_reason_stays_with_the_job(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path
) -> None:
    queue.put("retain", every_seconds=3_600)
    environ = {**os.environ, "REVERIE_HOME": str(settings.home)}
    command = [sys.executable, "-m", "reverie", "worker", "--database", worker_url, "--once"]
    ran = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    reason = "nothing says how long sessions are kept: set retention_days in config.toml"
    assert f"{settings.tenant} retain  : failed: {reason}" in ran.stdout
    assert [(row.status, row.problem) for row in queue.jobs()] == [("failed", reason), ("todo", None)]
    assert queue.retry_failed() == 1
    assert [(row.status, row.at) for row in queue.jobs()] == [("todo", None)], "the next run of the timer, at once"


@pytest.mark.requirement("X4")
@pytest.mark.parametrize("kind", ["notes", "extract"])
def test_a_job_of_a_session_that_does_not_exist_makes_none(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path, kind: Kind
) -> None:
    queue.put(kind, project=project_slug(tmp_path), session="gone")
    assert work(worker_url, settings) == [(kind, "there is no such session")]
    assert contents(settings) == {}


@pytest.mark.requirement("X5")
def test_sessions_are_deleted_when_their_time_is_over_and_an_audit_row_says_so(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Settings(home=settings.home, database=settings.database, tenant=settings.tenant, retention_days=30)

    async def talked(name: str, at: float) -> None:
        async with Session.open(name, cwd=tmp_path, settings=settings, clock=lambda: at) as session:
            await session.say("hello")

    now = time.time()
    anyio.run(talked, "old", now - 40 * 86_400)
    anyio.run(talked, "new", now)
    monkeypatch.setattr("time.time", lambda: now + 400 * 86_400)  # the clock of the worker's machine is wrong
    queue.put("retain")
    assert work(worker_url, old) == [("retain", "deleted 1 session")]
    assert not [key for key in contents(settings) if "/old" in key]
    assert [key for key in contents(settings) if "/new" in key]
    with closing(storage_of(settings)) as storage:
        rows = storage.records.audit()  # pyright: ignore[reportAttributeAccessIssue]
    assert [(row.act, row.detail["session"], row.detail["why"]) for row in rows] == [("delete", "old", "expired")]


@pytest.mark.requirement("X4")
def test_memories_that_a_worker_extracts_are_recalled_on_another_machine(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path
) -> None:
    wish = "Please always run the linter before you commit anything in this project."
    project = talk(settings, tmp_path, "one", wish)
    talk(settings, tmp_path, "two", wish)
    queue.put("extract", project=project, session="two")
    work(worker_url, settings)
    with closing(storage_of(settings)) as storage:
        memory = Memory(
            tmp_path / "copy", shared=StoredJournal(storage, f"projects/{project}/memory", settings.tenant or "")
        )
        assert [head for head in memory.list() if "linter" in memory.get(head.file).body]


@pytest.mark.requirement("X4")
def test_a_job_adds_the_words_of_new_lines_for_search(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path
) -> None:
    talk(settings, tmp_path, "one", "The herons are back.")
    for result in ("indexed 1 log", "indexed 0 logs"):
        queue.put("index")
        assert work(worker_url, settings) == [("index", result)]


def test_a_worker_of_a_database_that_cannot_be_reached_says_so_in_one_line(settings: Settings) -> None:
    url = "postgresql://somebody:hidden-word@/postgres?host=/nowhere"
    with pytest.raises(StorageError, match="/nowhere") as raised:
        anyio.run(partial(run_worker, url, settings))
    assert "hidden-word" not in str(raised.value)


@pytest.mark.requirement("X4")
def test_a_worker_leaves_the_jobs_of_a_database_that_a_newer_version_migrated_to_others(
    postgres_server: PostgresServer, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"newer_{os.urandom(4).hex()}"
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    owner, app, workers = (
        postgres_server.url.replace("postgres@", f"{role}@").replace("/postgres?", f"/{name}?")
        for role in ("postgres", TENANT_ROLE, WORKER_ROLE)
    )
    for role in (TENANT_ROLE, WORKER_ROLE):
        migrate(owner, grant=role)
    install(owner, grant=TENANT_ROLE, worker=WORKER_ROLE)
    here = replace(settings, database=app)
    project = talk(here, tmp_path, "one", "Please fix the parser. It fails on empty input.")

    def become(change: str) -> None:
        with psycopg.connect(owner) as connection:
            connection.execute(change.encode())

    def become_newer(*_: Any) -> str:
        become("INSERT INTO reverie.migrations (number, name) VALUES (9999, '9999_later')")
        raise StorageError("its tables are of another version", path="database")

    with closing(JobQueue(app, here.tenant or "")) as queue:
        queue.put("notes", project=project, session="one")
        monkeypatch.setattr(worker, "run_job", become_newer)  # the tables change while it runs
        for _ in range(2):
            with pytest.raises(NewerVersion, match=r"9999_later.*upgrade") as caught:
                work(workers, here)
            assert "\n" not in str(caught.value)
            assert [(row.status, row.attempts, row.at) for row in queue.jobs()] == [("todo", 0, None)]
        monkeypatch.undo()
        become("DELETE FROM reverie.migrations WHERE number = 9999")
        assert work(workers, here) == [("notes", "updated 5 sections of the notes")]


def test_a_worker_behind_a_pooler_that_has_no_options_says_so(settings: Settings) -> None:
    def refuse(pooler: socket.socket) -> None:
        with suppress(OSError):
            while True:
                with pooler.accept()[0] as asking:
                    if b"search_path" in asking.recv(10_000):
                        told = b"SFATAL\0C08P01\0Munsupported startup parameter in options: search_path\0\0"
                        asking.sendall(b"E" + (len(told) + 4).to_bytes(4, "big") + told)

    with socket.create_server(("127.0.0.1", 0)) as pooler:
        Thread(target=refuse, args=(pooler,), daemon=True).start()
        url = f"postgresql://somebody@127.0.0.1:{pooler.getsockname()[1]}/reverie?sslmode=disable&gssencmode=disable"
        with pytest.raises(StorageError, match="unsupported startup parameter in options: search_path"):
            anyio.run(partial(run_worker, url, settings))
        pooler.shutdown(socket.SHUT_RDWR)


def test_a_worker_with_the_role_of_programs_says_so_instead_of_waiting_for_ever(
    postgres_url: str, settings: Settings
) -> None:
    with pytest.raises(StorageError, match=f"{TENANT_ROLE} may not run the jobs .* --worker {TENANT_ROLE}'"):
        work(postgres_url, settings)


def test_a_worker_waits_for_a_database_that_goes_away(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = talk(settings, tmp_path, "one", "Please fix the parser. It fails on empty input.")
    monkeypatch.setattr(worker, "_PAUSE_SECONDS", 0.01)
    taken_up, answers = worker._take_up, iter([True, True])

    async def cut_off(*given: Any) -> None:
        if next(answers, False):
            raise ConnectorException from psycopg.OperationalError("server closed the connection")
        await taken_up(*given)

    monkeypatch.setattr(worker, "_take_up", cut_off)
    queue.put("notes", project=project, session="one")

    async def run() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(run_worker, worker_url, settings))
            with anyio.fail_after(60):
                while queue.jobs():
                    await anyio.sleep(0.05)
            group.cancel_scope.cancel()

    anyio.run(run)
    assert list(answers) == [], "the database went away twice"
    assert queue.jobs() == []


def test_a_worker_that_others_counted_as_dead_registers_again(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = ["one", "two"]
    for name in sessions:
        project = talk(settings, tmp_path, name, "Please fix the parser. It fails on empty input.")
        queue.put("notes", project=project, session=name)
    count_as_dead = """
        DELETE FROM reverie_jobs.procrastinate_workers WHERE id IN
        (SELECT worker_id FROM reverie_jobs.procrastinate_jobs WHERE tenant = %s AND status = 'doing')
    """

    def told(job: JobArguments, result: str) -> None:
        if job.tenant == settings.tenant and job.session == sessions[0]:
            with psycopg.connect(worker_url) as connection:
                assert connection.execute(count_as_dead, (job.tenant,)).rowcount == 1

    anyio.run(partial(run_worker, worker_url, settings, listener=told, once=True))
    assert queue.jobs() == []
    assert [record.message for record in caplog.records if "registers again" in record.message]


def test_a_worker_that_may_not_use_the_tables_any_more_ends_with_the_reason(
    worker_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any) -> None:
        raise ConnectorException from psycopg.errors.InsufficientPrivilege("permission denied for table")

    monkeypatch.setattr(worker, "_take_up", refused)
    with pytest.raises(StorageError, match=r"permission denied.*db migrate --worker"):
        anyio.run(partial(run_worker, worker_url, settings))


@pytest.mark.parametrize("act", ["retry_job_by_id_async", "finish_job_by_id_async"])
@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "known-bad"])
def test_a_worker_that_comes_back_finds_its_job_ended_by_another(
    queue: JobQueue, worker_url: str, act: str, is_ours: bool
) -> None:
    queue.put("retain", project="p", session="gone")
    (row,) = queue.jobs()
    assert queue.forget(["projects/p/gone.jsonl"]) == 1
    given = (datetime.now(UTC),) if act.startswith("retry") else (Status.FAILED, False)

    async def run() -> None:
        app = worker_app(worker_url)
        async with app.open_async():
            jobs = app.job_manager if is_ours else JobManager(app.connector)
            await getattr(jobs, act)(row.id, *given)

    with nullcontext() if is_ours else pytest.raises(ConnectorException):
        anyio.run(run)


_DYING = """
import os, sys
from functools import partial
from pathlib import Path
import anyio
from reverie.runtime.jobs import worker
from reverie.settings import Settings
home, url, database, tenant = sys.argv[1:]
def die(job, url, settings):
    print(job.kind, flush=True)
    os.kill(os.getpid(), 9)
worker.run_job = die
anyio.run(partial(worker.run_worker, url, Settings(home=Path(home), database=database, tenant=tenant), once=True))
"""


@pytest.mark.requirement("X4")
def test_a_job_whose_worker_was_killed_is_taken_up_by_another(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path
) -> None:
    project = talk(settings, tmp_path, "one", "Please fix the parser. It fails on empty input.")
    queue.put("notes", project=project, session="one")
    given = [str(tmp_path), worker_url, settings.database or "", settings.tenant or ""]
    while queue.jobs(status="todo"):  # the dying worker may take a job of another test first
        died = subprocess.run([sys.executable, "-c", _DYING, *given], capture_output=True, text=True, timeout=120)
        assert died.returncode == -signal.SIGKILL, died.stderr
    assert [row.status for row in queue.jobs()] == ["doing"]
    until = time.monotonic() + 60
    while queue.jobs(status="doing") and time.monotonic() < until:
        work(worker_url, settings, stalled_seconds=1.0)
    assert queue.jobs() == []


@pytest.mark.requirement("X4")
def test_a_job_that_ends_every_worker_fails_at_last(
    queue: JobQueue, postgres_server: PostgresServer, worker_url: str, settings: Settings
) -> None:
    for deaths, expected in ((7, []), (8, ["failed"])):
        queue.put("index")
        with psycopg.connect(postgres_server.url, options=f"-c search_path={SCHEMA}") as connection:
            now = "UPDATE procrastinate_jobs SET status = 'doing', attempts = %s WHERE id = %s"
            connection.execute(now, (deaths, queue.jobs()[0].id))
        work(worker_url, settings)
        assert [row.status for row in queue.jobs()] == expected
    assert queue.jobs()[0].problem == "its worker ended, at attempt 9; look at the output of the workers"


@pytest.mark.requirement("X4")
def test_a_job_of_a_killed_worker_that_was_queued_again_runs_once(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path
) -> None:
    """As the run of a timer, which queues the next one before it begins."""
    project = talk(settings, tmp_path, "one", "Please fix the parser. It fails on empty input.")
    queue.put("notes", project=project, session="one")
    given = [str(tmp_path), worker_url, settings.database or "", settings.tenant or ""]
    while queue.jobs(status="todo"):
        subprocess.run([sys.executable, "-c", _DYING, *given], capture_output=True, timeout=120, check=False)
    queue.put("notes", project=project, session="one")
    until = time.monotonic() + 60
    while queue.jobs(status="doing") + queue.jobs(status="todo") and time.monotonic() < until:
        work(worker_url, settings, stalled_seconds=1.0)
    assert queue.jobs() == []


_WORKING = """
import sys
from functools import partial
from pathlib import Path
import anyio
from reverie.runtime.jobs.worker import run_worker
from reverie.settings import Settings
home, url, database, tenant = sys.argv[1:]
print("ready", flush=True)
anyio.run(partial(run_worker, url, Settings(home=Path(home), database=database, tenant=tenant), stalled_seconds=1.5))
"""


@pytest.mark.requirement("X4")
def test_workers_that_are_killed_at_any_time_have_one_effect_per_job(
    queue: JobQueue, worker_url: str, settings: Settings, tmp_path: Path, torture: bool, seed: int
) -> None:
    rng = Random(seed)
    sessions, kills = (120, 60) if torture else (3, 1)
    for number in range(sessions):
        project = talk(settings, tmp_path, f"s{number}", f"Please fix parser {number}. It fails on empty input.")
        queue.put("notes", project=project, session=f"s{number}")
    given = [worker_url, settings.database or "", settings.tenant or ""]
    with ExitStack() as ended:

        def start() -> subprocess.Popen[bytes]:
            home = tmp_path / f"machine{rng.randrange(3)}"
            process = subprocess.Popen([sys.executable, "-c", _WORKING, str(home), *given], stdout=subprocess.PIPE)
            ended.callback(_end, process)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            return process

        workers = [start() for _ in range(3 if torture else 2)]
        until = time.monotonic() + (900 if torture else 60)
        while (left := queue.jobs()) and time.monotonic() < until:
            if kills and rng.random() < 0.5:
                victim = workers.pop(rng.randrange(len(workers)))
                _end(victim)
                workers.append(start())
                kills -= 1
            time.sleep(rng.random() * 0.5)  # another process: polled, with a bound
    assert left == []
    logs = {key: data for key, data in contents(settings).items() if key.endswith(".jsonl") and data}
    assert len(logs) == sessions
    assert {data.count(b'"notes_updated"') for data in logs.values()} == {1}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(30)
    if process.stdout is not None:
        process.stdout.close()
