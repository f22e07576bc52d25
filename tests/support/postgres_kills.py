"""Processes of three machines that write sessions in a database, are killed and go on; and the check of what is left.

``python postgres_kills.py --processes 64 --sessions 1000 --kills 600 --restarts 2`` runs it with a server of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postgres_server import PATIENCE_SECONDS, PostgresServer, make_role

TTL_SECONDS = 1.0
MACHINES = 3


def write_for_ever(url: str, tenant: str, machine: str, sessions: int, seed: int) -> None:
    """Take random sessions, check their chain, append lines, and print each line that was acknowledged."""
    from reverie.errors import LogLost, SessionBusy, StorageError
    from reverie.storage.postgres import leases
    from reverie.storage.postgres.storage import PostgresStorage

    leases._machine = lambda: machine  # no process here may see that one of another machine has ended
    chance = random.Random(seed)
    storage = PostgresStorage(url, tenant=tenant, ttl_seconds=TTL_SECONDS, patience_seconds=60)
    while True:
        key = f"projects/p/s{chance.randrange(sessions)}.jsonl"
        try:
            lease = storage.lease(key, holder=f"{machine} {os.getpid()}")
            data = storage.load(key) or b""
            size, number = len(data), data.count(b"\n")
            sleeps = chance.random() < 0.02
            for _ in range(chance.randrange(1, 6)):
                line = json.dumps({"number": number, "text": f"{machine} {chance.random()}" * 8}).encode()
                if sleeps:  # as a process that was suspended: nothing renews its lease
                    storage._leases._held[key] = lease
                    storage._leases._renew = lambda _: False  # type: ignore[method-assign, assignment]
                    time.sleep(TTL_SECONDS * 1.5)
                storage.append(key, line, expect=size)
                _tell(f"{key} {number} {line.decode()}")
                size, number = size + len(line) + 1, number + 1
            lease.release()
        except SessionBusy:
            if "_renew" in vars(storage._leases):
                _tell("refused")
        except (LogLost, StorageError) as error:
            _tell(f"failed {type(error).__name__} {error}")
        vars(storage._leases).pop("_renew", None)
        storage._leases._held.pop(key, None)


def _tell(text: str) -> None:
    os.write(1, text.encode() + b"\n")


@dataclass
class Outcome:
    """The counts of a run; ``lost``, ``forked`` and ``stale`` must be 0."""

    acknowledged: int = 0
    kills: int = 0
    restarts: int = 0
    refused: int = 0
    """Writers that were away, came back, and were refused."""
    lost: int = 0
    forked: int = 0
    stale: int = 0
    """Entries of a writer whose lease had been taken over."""
    failures: dict[str, int] = field(default_factory=dict)
    """Errors by type; a database that is away for long is one."""


class Crowd:
    """The processes, and the lines that they said were acknowledged."""

    def __init__(self, server: PostgresServer, tenant: str, processes: int, sessions: int, seed: int) -> None:
        self._server, self._tenant, self._sessions = server, tenant, sessions
        self._chance = random.Random(seed)
        self._children: list[subprocess.Popen[bytes]] = []
        self._heard: dict[int, bytes] = {}
        self.acknowledged: dict[tuple[str, int], str] = {}
        self.outcome = Outcome()
        for _ in range(processes):
            self._start()

    def _start(self) -> None:
        machine = f"machine-{self._chance.randrange(MACHINES)}"
        words = [self._server.app_url, self._tenant, machine, str(self._sessions), str(self._chance.getrandbits(30))]
        command = [sys.executable, __file__, "--child", *words]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ)
        assert child.stdout is not None
        self._children.append(child)
        self._heard[child.stdout.fileno()] = b""

    def listen(self, acknowledgements: int) -> None:
        """Read until so many more lines were acknowledged."""
        wanted = len(self.acknowledged) + acknowledgements
        until = time.monotonic() + PATIENCE_SECONDS * 4
        while len(self.acknowledged) < wanted:
            if time.monotonic() > until:
                raise TimeoutError("no line is acknowledged any more")
            ready, _, _ = select.select(list(self._heard), [], [], 1.0)
            for descriptor in ready:
                self._take(descriptor, os.read(descriptor, 65_536))

    def _take(self, descriptor: int, data: bytes) -> None:
        *lines, self._heard[descriptor] = (self._heard[descriptor] + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode().partition(" ")
            if word == "refused":
                self.outcome.refused += 1
            elif word == "failed":
                kind = rest.partition(" ")[0]
                self.outcome.failures[kind] = self.outcome.failures.get(kind, 0) + 1
            else:
                number, _, text = rest.partition(" ")
                self.acknowledged[word, int(number)] = text

    def kill_one(self) -> None:
        """Kill a random process, hear the rest of it, and start another."""
        child = self._children.pop(self._chance.randrange(len(self._children)))
        self._end(child)
        self.outcome.kills += 1
        self._start()

    def end(self) -> None:
        for child in self._children:
            self._end(child)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        child.kill()
        assert child.stdout is not None
        descriptor = child.stdout.fileno()
        while data := os.read(descriptor, 65_536):
            self._take(descriptor, data)
        del self._heard[descriptor]
        child.stdout.close()
        child.wait()

    def check(self) -> Outcome:
        """Compare the database with the acknowledged lines, and return the outcome."""
        import psycopg

        from reverie.storage.postgres.storage import PostgresStorage

        storage = PostgresStorage(self._server.app_url, tenant=self._tenant)
        logs = {key: (storage.load(key) or b"").decode().splitlines() for key in storage.list()}
        storage.close()
        self.outcome.acknowledged = len(self.acknowledged)
        for (key, number), text in self.acknowledged.items():
            lines = logs.get(key, [])
            self.outcome.lost += number >= len(lines) or lines[number] != text
        for lines in logs.values():
            self.outcome.forked += [json.loads(line)["number"] for line in lines] != list(range(len(lines)))
        with psycopg.connect(self._server.url) as connection:
            rows = connection.execute(
                "SELECT count(*) FROM (SELECT fence < lag(fence) OVER (PARTITION BY file ORDER BY seq) AS stale "
                "FROM reverie.entries WHERE tenant = %s) AS entry WHERE stale",
                (self._tenant,),
            ).fetchone()
        assert rows is not None
        self.outcome.stale = rows[0]
        return self.outcome


def run(
    server: PostgresServer, tenant: str, *, processes: int, sessions: int, kills: int, restarts: int = 0, seed: int = 1
) -> Outcome:
    """Let processes write, kill one after some lines each time, restart the database in between, and check."""
    crowd = Crowd(server, tenant, processes, sessions, seed)
    try:
        for number in range(kills):
            crowd.listen(processes)
            crowd.kill_one()
            done = crowd.outcome.restarts
            if done < restarts and number + 1 >= kills * (done + 1) // (restarts + 1):
                server.stop(signal.SIGQUIT if done % 2 else signal.SIGINT)
                server.start()
                crowd.outcome.restarts += 1
        crowd.listen(processes)
    finally:
        crowd.end()
    return crowd.check()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("processes", 64), ("sessions", 1_000), ("kills", 600), ("restarts", 2), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given: Any = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reverie-kills-") as name:
        Path(name).chmod(0o755)
        server = PostgresServer(Path(name) / "server", durable=True)
        server.create()
        server.start()
        make_role(server)
        try:
            started = time.monotonic()
            print(run(server, "kills", **vars(given)), f"{time.monotonic() - started:.0f} s")
        finally:
            server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        write_for_ever(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
    else:
        main()
