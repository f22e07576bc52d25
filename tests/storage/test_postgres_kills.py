"""Processes that are killed, machines that wake up too late and a database that restarts lose and fork nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import psycopg
import pytest

from postgres_kills import Crowd, run, stale_entries, take_turns
from postgres_server import PostgresServer
from reverie import Session
from reverie.errors import StorageError
from reverie.settings import Settings
from reverie.storage.postgres.storage import PostgresStorage

pytestmark = [pytest.mark.slow, pytest.mark.requirement("X1"), pytest.mark.usefixtures("alone_with_jobs")]


@pytest.mark.requirement("X1", "X2", "X4")
def test_killed_processes_of_three_machines_lose_nothing_and_fork_nothing(
    postgres_server: PostgresServer, tmp_path: Path, seed: int, torture: bool, tenant: str
) -> None:
    # 64 processes, 1,000 sessions, 600 kills and two restarts of the database: python tests/support/postgres_kills.py
    sizes = {"processes": 16, "sessions": 100, "jobs": 20, "seconds": 60, "pause": 0.5} if torture else {}
    small = {"processes": 8, "sessions": 12, "jobs": 2, "seconds": 2, "pause": 0.4, "ttl": 1}
    outcome = run(postgres_server, tenant, tmp_path, **{**small, **sizes}, restarts=0, seed=seed)
    assert outcome.is_unharmed, outcome
    assert outcome.kills >= 3


def test_the_check_finds_a_lost_a_changed_a_forked_and_a_stale_turn_and_a_job_with_two_effects(
    postgres_server: PostgresServer, tmp_path: Path, tenant: str
) -> None:
    url = postgres_server.app_url
    crowd = Crowd(url, tenant, tmp_path)
    known: dict[int, str] = {}

    async def talk() -> None:
        settings = Settings(home=tmp_path / "home", database=url, tenant=tenant)
        async with Session.open("s0", cwd=tmp_path, settings=settings) as session:
            await take_turns(session, 0, 2, lambda count, one: known.update({count: one}))
            await take_turns(session, 1, 1, lambda count, one: None)  # as a writer that saw an older log

    anyio.run(talk)
    crowd.acknowledged["s0"] = {**known, 4: "another", 99: "never stored"}
    with contextlib.closing(PostgresStorage(url, tenant=tenant)) as storage:
        storage.append("projects/p/j0.jsonl", b'{"act": "notes_updated"} {"act": "notes_updated"}')
        storage.append("projects/p/j1.jsonl", b"{}")
    with psycopg.connect(postgres_server.url) as connection:
        connection.execute("UPDATE reverie.entries SET fence = 1000000 - seq WHERE tenant = %s", (tenant,))
    outcome = crowd.check()
    assert (outcome.lost, outcome.unequal, outcome.forked) == (1, 2, 1)
    assert (outcome.jobs, outcome.doubled, outcome.undone) == (2, 1, 1)
    assert stale_entries(postgres_server.url, tenant) > 0


_CUT_OFF = """
import sys, threading
from pathlib import Path
from loopback_namespace import set_loopback
from postgres_server import PostgresServer, make_role
from reverie.storage.postgres import connections
from reverie.storage.postgres.storage import PostgresStorage

given = {"tcp_user_timeout": 500, "keepalives_idle": 1, "keepalives_interval": 1, "connect_timeout": 2}
connections._CUT_OFF = {**connections._CUT_OFF, **given} if sys.argv[2] == "ours" else {}
set_loopback(is_up=True)
server = PostgresServer(Path(sys.argv[1]))
server.create()
server.start("127.0.0.1")
make_role(server)
storage = PostgresStorage("postgresql://reverie_app@127.0.0.1/postgres", tenant="t", patience_seconds=0.1)
storage.append("log", b"one", expect=0)
set_loopback(is_up=False)
over = threading.Event()

def append():
    try:
        storage.append("log", b"two", expect=4)
    except Exception as error:
        print(type(error).__name__, flush=True)
        over.set()

threading.Thread(target=append, daemon=True).start()
over.wait(60 if sys.argv[2] == "ours" else 8)
server.stop()
"""


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("unshare") is None, reason="only root may cut off a network")
@pytest.mark.parametrize(("kind", "told"), [("ours", "StorageError\n"), ("known-bad", "")])
def test_a_database_that_is_cut_off_counts_as_away(kind: str, told: str) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory(prefix="reverie-cut-off-") as folder:
        Path(folder).chmod(0o755)  # the server's user is another one
        command = ["unshare", "--net", "--", sys.executable, "-c", _CUT_OFF, f"{folder}/server", kind]
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=180, check=True)
    assert ran.stdout == told, ran.stderr


@pytest.mark.parametrize("line", [b"two", b""])
@pytest.mark.parametrize("again", [True, False], ids=["repeated", "known-bad"])
def test_an_append_whose_answer_was_lost_is_stored_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, again: bool, line: bytes, tenant: str
) -> None:
    storage = PostgresStorage(postgres_url, tenant=tenant)
    storage.append("log", b"one", expect=0)
    call = storage._connections.call
    answers = iter([True])

    def cut_off(*given: object) -> object:
        found = call(*given)  # type: ignore[arg-type]
        if next(answers, False):
            error = StorageError("the connection was cut", path="log")
            raise error from psycopg.OperationalError("the connection was cut")
        return found

    monkeypatch.setattr(storage._connections, "call", cut_off)
    if not again:
        monkeypatch.setattr(storage, "_is_last", lambda *_: False)
    with contextlib.nullcontext() if again else pytest.raises(StorageError):
        storage.append("log", line, expect=4)
    assert storage.load("log") == b"one\n" + line + b"\n"
    storage.close()
