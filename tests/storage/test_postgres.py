"""Storage in PostgreSQL behaves as files do, keeps tenants apart and refuses stale writers."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from postgres_server import PostgresServer
from reverie import Session
from reverie.errors import SessionBusy, SettingsError, StorageError
from reverie.ports import Storage
from reverie.runtime.jobs.queue import JobQueue
from reverie.runtime.places.projects import log_key, project_slug
from reverie.storage.postgres.connections import Connections
from reverie.storage.postgres.leases import LeaseTable, PostgresLease
from reverie.storage.postgres.storage import BLOB_BYTES, PostgresStorage
from reverie.testing.storage_conformance import StorageConformance

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("alone_with_jobs")]


@pytest.mark.requirement("X1")
class TestPostgresStorage(StorageConformance):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_url: str) -> None:
        self.url = postgres_url

    def open_storage(self, folder: Path) -> PostgresStorage:
        return PostgresStorage(self.url, tenant=tenant_of(folder))

    def take_over(self, storage: Storage, folder: Path, name: str) -> PostgresStorage:
        assert isinstance(storage, PostgresStorage)
        storage._leases._stopping.set()  # it was stopped, so nothing renews its lease
        with psycopg.connect(self.url) as connection:
            connection.execute("SELECT set_config('reverie.tenant', %s, true)", (tenant_of(folder),))
            connection.execute("UPDATE reverie.leases SET expires = clock_timestamp() WHERE name = %s", (name,))
        other = self.open_storage(folder)
        assert other.lease(name, holder="second").fence == 2
        return other


def tenant_of(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:16]


@pytest.fixture
def tenant(tmp_path: Path) -> str:
    return tenant_of(tmp_path)


@pytest.mark.requirement("X1")
def test_a_lease_is_renewed_while_its_holder_lives(postgres_url: str, tenant: str) -> None:
    holder = PostgresStorage(postgres_url, tenant=tenant, ttl_seconds=0.3)
    lease = holder.lease("s", holder="first")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT set_config('reverie.tenant', %s, false)", (tenant,))

        def expiry() -> tuple[object, ...] | None:
            return connection.execute("SELECT expires FROM reverie.leases WHERE name = 's'").fetchone()

        first, until = expiry(), time.monotonic() + 60
        while expiry() == first:
            assert time.monotonic() < until
    assert lease.fence == 1
    holder.close()


@pytest.mark.requirement("X1")
def test_a_lease_that_another_thread_just_took_is_not_taken_over(
    postgres_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = LeaseTable._hold

    def slowly(table: LeaseTable, lease: PostgresLease) -> PostgresLease:
        time.sleep(0.2)  # the others look at the database meanwhile
        return hold(table, lease)

    monkeypatch.setattr(LeaseTable, "_hold", slowly)
    with closing(PostgresStorage(postgres_url, tenant=tenant)) as storage, ThreadPoolExecutor(4) as threads:
        tries = [threads.submit(storage.lease, "s", holder=str(number)) for number in range(4)]
        failed = [one.exception() for one in tries]
        assert sum(isinstance(one, SessionBusy) for one in failed) == 3
        assert failed.count(None) == 1


@pytest.mark.requirement("X1")
def test_a_session_ends_without_an_error_while_the_database_is_away(
    postgres_url: str, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = PostgresStorage(postgres_url, tenant=tenant, ttl_seconds=0.5)
    row = Connections.row

    def away(self: Connections, path: str, sql: Any, values: Any) -> Any:
        if "-infinity" in sql:
            raise StorageError("the database is away", path=path) from psycopg.OperationalError()
        return row(self, path, sql, values)

    async def talk() -> None:
        async with Session.open("one", cwd=tmp_path, storage=storage) as session:
            await session.say("hello")
            monkeypatch.setattr(Connections, "row", away)

    anyio.run(talk)
    storage.close()
    with closing(PostgresStorage(postgres_url, tenant=tenant)) as other:
        until = time.monotonic() + 60
        while other.holder(log_key(project_slug(tmp_path), "one")) and time.monotonic() < until:
            time.sleep(0.05)  # nobody renews the lease, so it ends
        assert other.lease(log_key(project_slug(tmp_path), "one")).release is not None


@pytest.mark.requirement("X1")
def test_the_lease_of_a_process_that_ended_on_this_machine_is_free_at_once(postgres_url: str, tenant: str) -> None:
    script = (
        "import os, sys\n"
        "from reverie.storage.postgres.storage import PostgresStorage\n"
        "storage = PostgresStorage(sys.argv[1], tenant=sys.argv[2])\n"
        "storage.lease('s', holder='killed')\n"
        "storage.append('s', b'acknowledged')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, postgres_url, tenant], check=False, timeout=60)
    storage = PostgresStorage(postgres_url, tenant=tenant)
    assert storage.holder("s") is None
    assert storage.lease("s").fence == 2
    assert storage.load("s") == b"acknowledged\n"
    storage.close()


def test_bytes_over_the_limit_are_stored_once_by_their_hash_and_deleted_with_their_last_use(
    postgres_url: str, postgres_server: PostgresServer, tenant: str
) -> None:
    storage = PostgresStorage(postgres_url, tenant=tenant)
    big = b"z" * (BLOB_BYTES + 1)

    def blobs() -> list[int]:
        with psycopg.connect(postgres_server.url) as connection:
            rows = connection.execute("SELECT uses FROM reverie.blobs WHERE tenant = %s", (tenant,)).fetchall()
        return [uses for (uses,) in rows]

    storage.write("a", big)
    storage.write("b", big)
    storage.append("log", big)
    assert storage.load("log", BLOB_BYTES - 1, 4) == b"zz\n"
    assert sorted(blobs()) == [1, 2]
    storage.write("a", b"small")
    storage.delete("log")
    assert blobs() == [1]
    storage.delete("b")
    assert blobs() == []
    storage.close()


def test_bytes_are_stored_deflated_if_that_makes_them_smaller_and_read_as_they_were(
    postgres_url: str, postgres_server: PostgresServer, tenant: str
) -> None:
    storage = PostgresStorage(postgres_url, tenant=tenant)
    text, noise = b"the same words " * 200, random.Random(1).randbytes(3_000).replace(b"\n", b".")
    storage.write("log", text + b"\ntorn")
    for line in (text, noise, text, b"x"):  # the first of them follows a line without a newline
        storage.append("log", line, expect=len(storage.load("log") or b""))
    whole = text + b"\ntorn\n" + text + b"\n" + noise + b"\n" + text + b"\nx\n"
    assert storage.load("log") == whole
    assert [storage.load("log", start, 50) for start in range(0, len(whole), 997)] == [
        whole[start : start + 50] for start in range(0, len(whole), 997)
    ]
    with psycopg.connect(postgres_server.url) as connection:
        rows = connection.execute(
            "SELECT begins, octet_length(content) FROM reverie.entries WHERE tenant = %s ORDER BY seq", (tenant,)
        ).fetchall()
    assert [begins for begins, _ in rows] == [True, None, None, True, None]
    assert rows[3][1] < len(text) / 10
    storage.close()


def test_entries_share_what_those_before_them_have_and_a_part_needs_few_of_them(
    postgres_url: str, postgres_server: PostgresServer, tenant: str
) -> None:
    text, chance = random.Random(1).randbytes(1_500).hex().encode(), random.Random(2)
    lines = [b"%d %s" % (number, text) for number in range(150)]
    long = chance.randbytes(50_000).hex().encode()  # deflated it needs several rows
    with closing(PostgresStorage(postgres_url, tenant=tenant)) as storage:
        for line in (*lines, long, *lines):
            storage.append("log", line, expect=len(storage.load("log") or b""))
        whole = b"".join(line + b"\n" for line in (*lines, long, *lines))
        assert storage.load("log") == whole
        for _ in range(50):
            start, size = chance.randrange(len(whole)), chance.randrange(9_000)
            assert storage.load("log", start, size) == whole[start : start + size]
    with psycopg.connect(postgres_server.url) as connection:
        rows = connection.execute(
            "SELECT seq, begins, octet_length(content) FROM reverie.entries WHERE tenant = %s ORDER BY seq", (tenant,)
        ).fetchall()
    assert sorted(size for *_, size in rows)[250] < 100, "most entries name what the ones before them have"
    assert max(size for *_, size in rows) < 8_000, "each row fits a page"
    begun = [seq for seq, begins, _ in rows if begins]
    assert max(end - start for start, end in pairwise([*begun, len(whole)])) < 262_144 + 9_000


def test_a_part_that_begins_with_a_large_line_among_small_ones_is_read(postgres_url: str, tenant: str) -> None:
    small, large = b"the same words " * 50 + b"\n", b"z" * (BLOB_BYTES + 1) + b"\n"
    whole = small + large + small
    with closing(PostgresStorage(postgres_url, tenant=tenant)) as storage:
        storage.write("log.jsonl", whole)
        for start in (0, len(small) - 1, len(small), len(whole) - len(small) - 1, len(whole) - len(small)):
            assert storage.load("log.jsonl", start, len(whole)) == whole[start:]


def test_the_beginning_of_a_part_is_looked_for_once(
    postgres_url: str, postgres_server: PostgresServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(PostgresStorage(postgres_url, tenant=tenant)) as storage:
        for number in range(100):
            storage.append("log", b"%04d" % number, expect=5 * number)
        asked = list[tuple[Any, ...]]()
        rows = storage._connections.rows
        monkeypatch.setattr(storage._connections, "rows", lambda *given: asked.append(given) or rows(*given))
        assert storage.load("log", 450, 5) == b"0090\n"
    with psycopg.connect(postgres_server.url) as connection:
        (_, sql, values), *_ = asked
        found = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), values).fetchone()
    assert found is not None
    parts = plan_parts(found[0][0]["Plan"])
    assert [part["Actual Loops"] for part in parts if part.get("Alias", "").startswith("first")] == [1]


def plan_parts(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a part of the database's plan of a query, and all parts beneath it."""
    return [plan, *(part for inner in plan.get("Plans", ()) for part in plan_parts(inner))]


@pytest.mark.parametrize("seed", range(3))
def test_two_programs_that_change_the_same_log_read_what_either_wrote(
    postgres_url: str, tenant: str, seed: int
) -> None:
    chance, logs = random.Random(seed), dict[str, bytes]()
    said = [b"the same words %d " % number * 9 for number in range(4)]
    with (
        closing(PostgresStorage(postgres_url, tenant=tenant)) as one,
        closing(PostgresStorage(postgres_url, tenant=tenant)) as two,
    ):
        for _ in range(150):
            storage, key = chance.choice((one, two)), chance.choice(("a.jsonl", "b.jsonl"))
            line, act = chance.choice(said), chance.random()
            if act < 0.85:
                storage.append(key, line, expect=len(logs.get(key, b"")) if act < 0.8 else None)
                logs[key] = logs.get(key, b"") + line + b"\n"
            elif act < 0.95 and logs.get(key):  # other bytes of the same size
                logs[key] = logs[key].replace(b"same", b"very")
                storage.write(key, logs[key])
            else:
                assert storage.delete(key) == (logs.pop(key, None) is not None)
            start = chance.randrange(len(logs.get(key, b"-")))
            assert two.load(key) == logs.get(key)
            assert (one.load(key, start, 100) or b"") == logs.get(key, b"")[start : start + 100]


def test_a_program_goes_on_no_stream_of_bytes_that_were_replaced(postgres_url: str, tenant: str) -> None:
    with closing(PostgresStorage(postgres_url, tenant=tenant)) as storage:
        storage.append("log", b"some words " * 20, expect=0)
        replaced = random.Random(1).randbytes(110).hex().encode() + b"\n"
        with closing(PostgresStorage(postgres_url, tenant=tenant)) as other:
            other.write("log", replaced)
        storage.append("log", b"some words " * 20, expect=len(replaced))
        assert storage.load("log") == replaced + b"some words " * 20 + b"\n"


def test_a_damaged_entry_is_an_error_that_names_the_log(
    postgres_url: str, postgres_server: PostgresServer, tenant: str
) -> None:
    with closing(PostgresStorage(postgres_url, tenant=tenant)) as storage:
        storage.write("log", b"the same words " * 200)
        with psycopg.connect(postgres_server.url) as connection:
            connection.execute("UPDATE reverie.entries SET content = 'damaged' WHERE tenant = %s", (tenant,))
        with pytest.raises(StorageError, match="log is damaged in the database; restore it"):
            storage.load("log")
        storage.delete("log")


@pytest.mark.requirement("X3")
def test_a_wrong_or_missing_tenant_sees_and_writes_nothing(
    postgres_url: str, tenant: str, seed: int, torture: bool
) -> None:
    storage = PostgresStorage(postgres_url, tenant=tenant)
    storage.write("document", b"secret")
    storage.append("log", b"secret")
    storage.lease("lease")
    storage.records.enter_audit("export", {})
    queue = JobQueue(postgres_url, tenant)
    queue.put("index")
    storage.records.enter_calls([{"id": "c", "session": "s", "project": "p", "day": "2026-11-18", "usd": 1.0}])
    before = {key: storage.load(key) for key in storage.list()}
    chance = random.Random(seed)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for _ in range(10_000 if torture else 300):
            asked = chance.choice([None, "", f"{tenant}x", tenant.upper() + "_", "' OR true --", "%"])
            assert _foreign_act(connection, chance, asked, tenant) == 0
    assert {key: storage.load(key) for key in storage.list()} == before
    assert [row.kind for row in queue.jobs()] == ["index"]
    queue.close()
    storage.close()


_JOBS = "reverie_jobs.procrastinate_jobs"
_TABLES = [f"reverie.{name}" for name in ("files", "entries", "blobs", "leases", "words", "calls", "audit")]
_READS = ("SELECT * FROM {} WHERE tenant = %(tenant)s", "SELECT *, %(tenant)s::text FROM {}")
_WRITES = (
    "UPDATE {} SET tenant = %(tenant)s",
    "DELETE FROM {} WHERE tenant = %(tenant)s",
    f"UPDATE {_JOBS} SET args = jsonb_build_object('tenant', %(tenant)s::text)",
    f"INSERT INTO {_JOBS} (queue_name, task_name, args) SELECT '', '', jsonb_build_object('tenant', %(tenant)s::text)",
    "INSERT INTO reverie.files (tenant, key, size, last, torn) VALUES (%(tenant)s, gen_random_uuid(), 0, 0, false)",
    "INSERT INTO reverie.entries (tenant, file, seq) VALUES (%(tenant)s, 1, 1)",
    "INSERT INTO reverie.blobs (tenant, digest, uses, data) VALUES (%(tenant)s, '', 1, '')",
    "INSERT INTO reverie.leases VALUES (%(tenant)s, 'lease', '', '', 9, 'infinity')",
    "INSERT INTO reverie.words VALUES (%(tenant)s, 'log', 0, 1, 1, '')",
    "INSERT INTO reverie.calls (tenant, id, session, project, day) VALUES (%(tenant)s, gen_random_uuid(), '', '', '')",
    "INSERT INTO reverie.audit (tenant, who, act, detail) VALUES (%(tenant)s, '', '', '{{}}')",
)


def _foreign_act(
    connection: psycopg.Connection[tuple[object, ...]], chance: random.Random, asked: str | None, tenant: str
) -> int:
    """Read or write rows of a tenant as another one, or as none, and return how many were reached."""
    table = chance.choice([*_TABLES, _JOBS])
    text = chance.choice(chance.choice([_READS, _WRITES])).format(table)
    try:
        with connection.transaction():
            connection.execute("SET LOCAL search_path TO reverie_jobs")  # its triggers name tables without a schema
            if asked is not None:
                connection.execute("SELECT set_config('reverie.tenant', %s, true)", (asked,))
            return max(0, connection.execute(text.encode(), {"tenant": tenant}).rowcount)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UniqueViolation, psycopg.errors.CheckViolation):
        return 0
    except psycopg.errors.GeneratedAlways:  # the tenant of a job is that in its arguments
        return 0


def test_that_check_finds_a_superuser_who_is_not_bound(postgres_server: PostgresServer, tenant: str) -> None:
    storage = PostgresStorage(postgres_server.app_url, tenant=tenant)
    storage.write("document", b"secret")
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        chance = random.Random(1)
        assert any(_foreign_act(connection, chance, "other", tenant) for _ in range(60))
    storage.close()


@pytest.mark.requirement("X3")
def test_a_connection_keeps_no_tenant_after_a_transaction(postgres_url: str, tenant: str) -> None:
    storage = PostgresStorage(postgres_url, tenant=tenant)
    storage.write("document", b"secret")
    with storage._connections._borrowed() as connection:  # as a pool hands it to somebody else
        assert connection.execute("SELECT count(*) FROM reverie.files").fetchone() == (0,)
    storage.close()


def test_a_storage_without_a_tenant_is_refused(postgres_url: str) -> None:
    with pytest.raises(SettingsError, match="REVERIE_TENANT"):
        PostgresStorage(postgres_url, tenant="")


@pytest.mark.parametrize("name", ["two\nlines", "\udcff", "nul\0", "x" * 201], ids=["lines", "bytes", "nul", "long"])
def test_a_tenant_that_is_no_short_line_of_text_is_refused(postgres_url: str, name: str) -> None:
    for use in (lambda: PostgresStorage(postgres_url, tenant=name), lambda: JobQueue(postgres_url, name)):
        with pytest.raises(SettingsError, match="at most 200 printable characters"):
            use()


@pytest.mark.requirement("X3")
@pytest.mark.parametrize("name", ['it\'s; --\\ "%s" {}', "é🎉", "../.keys", "*", "x" * 200])
def test_a_tenant_with_an_odd_name_sees_its_own_rows(postgres_url: str, name: str) -> None:
    with closing(PostgresStorage(postgres_url, tenant=name)) as storage:
        lease = storage.lease("log.jsonl")
        storage.delete("log.jsonl")
        storage.append("log.jsonl", name.encode())
        lease.release()
        assert list(storage.list()) == ["log.jsonl"]
        assert storage.load("log.jsonl") == f"{name}\n".encode()
