"""Processes that are killed, machines that wake up too late and a database that restarts lose and fork nothing."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import psycopg
import pytest

from postgres_kills import Outcome, run
from postgres_server import PostgresServer, make_role
from reverie.errors import StorageError
from reverie.storage.postgres.storage import PostgresStorage

pytestmark = [pytest.mark.slow, pytest.mark.requirement("X1")]


def unharmed(outcome: Outcome) -> bool:
    return (outcome.lost, outcome.forked, outcome.stale) == (0, 0, 0)


def test_killed_processes_of_three_machines_lose_nothing_and_fork_nothing(
    postgres_server: PostgresServer, tmp_path: Path, seed: int
) -> None:
    outcome = run(postgres_server, tmp_path.name, processes=4, sessions=6, kills=4, seed=seed)
    assert unharmed(outcome), outcome
    assert outcome.kills == 4


def test_with_restarts_of_the_database_too(torture: bool, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    if not torture:
        pytest.skip("only with --torture: it takes a server of its own")
    folder = Path("/tmp") / f"reverie-{tmp_path_factory.getbasetemp().name}-{seed}"
    server = PostgresServer(folder, durable=True)
    server.create()
    server.start()
    try:
        make_role(server)
        outcome = run(server, "kills", processes=64, sessions=1_000, kills=600, restarts=2, seed=seed)
    finally:
        server.stop()
    assert unharmed(outcome), outcome
    assert outcome.restarts == 2


def test_the_check_finds_a_lost_a_forked_and_a_stale_entry(postgres_server: PostgresServer, tmp_path: Path) -> None:
    from postgres_kills import Crowd

    crowd = Crowd(postgres_server, tmp_path.name, 0, 1, 1)
    with contextlib.closing(PostgresStorage(postgres_server.app_url, tenant=tmp_path.name)) as storage:
        for number in (0, 1, 1):
            storage.append("projects/p/s0.jsonl", json.dumps({"number": number}).encode())
    with psycopg.connect(postgres_server.url) as connection:
        connection.execute("UPDATE reverie.entries SET fence = 100 - seq WHERE tenant = %s", (tmp_path.name,))
    crowd.acknowledged["projects/p/s0.jsonl", 7] = "never stored"
    outcome = crowd.check()
    assert (outcome.lost, outcome.forked, outcome.stale) == (1, 1, 2)


@pytest.mark.parametrize("again", [True, False], ids=["repeated", "known-bad"])
def test_an_append_whose_answer_was_lost_is_stored_once(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    storage = PostgresStorage(postgres_url, tenant=tmp_path.name)
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
        storage.append("log", b"two", expect=4)
    assert storage.load("log") == b"one\ntwo\n"
    storage.close()
