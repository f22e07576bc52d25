"""Processes of three machines that write sessions and run jobs in a database, are killed and go on; and the check.

``python postgres_kills.py --processes 64 --sessions 1000 --seconds 600 --restarts 2`` runs it with a server of its own.
Every second, by absolute times, one process is killed; others are stopped for longer than their leases last, and go on.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from postgres_server import PATIENCE_SECONDS, WORKER_ROLE, PostgresServer, make_role

MACHINES = 3
WORKERS_IN = 8
"""One process of so many runs jobs instead of sessions."""
ASKED: dict[str, Any] = {"model": "claude-sonnet-5", "max_tokens": 100, "system": "Be brief."}
MARK = "turn number "
LONGEST_WAIT_SECONDS = 30
"""How long a job may wait for its next attempt at the end; a dead worker's lease has ended by then."""
MORE_URGENT, LESS_URGENT = 15, 5
"""How much the niceness of the killer is below that of the run, and that of the processes above it."""


@dataclass
class Outcome:
    """The counts of a run; ``lost``, ``forked``, ``stale``, ``unequal``, ``doubled`` and ``undone`` must be 0."""

    acknowledged: int = 0
    """Turns whose message and reply a process said to be stored."""
    kills: int = 0
    latest_kill_seconds: float = 0.0
    """The most that a kill came after its time."""
    stops: int = 0
    restarts: int = 0
    refused: int = 0
    """Writers that were away, came back, and were refused."""
    jobs: int = 0
    resumed: int = 0
    """Sessions that were opened again and compared at the end."""
    lost: int = 0
    """Sessions whose resumed request lacks an acknowledged turn."""
    unequal: int = 0
    """Acknowledged requests that are no byte-equal beginning of the resumed one."""
    forked: int = 0
    stale: int = 0
    """Entries of a writer whose lease had been taken over."""
    doubled: int = 0
    """Jobs with two effects."""
    undone: int = 0
    """Jobs without an effect."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Errors by type; a database that is away for long is one."""

    @property
    def is_unharmed(self) -> bool:
        """Whether turns and jobs were done, and none was lost, changed, forked, stale, doubled or left undone."""
        harm = (self.lost, self.unequal, self.forked, self.stale, self.doubled, self.undone)
        return not any(harm) and self.acknowledged > 0 and self.jobs > 0


def stable(messages: list[dict[str, Any]]) -> list[str]:
    """Return each message as text, in blocks and without the marks of the cache, which move to the end."""
    found: list[str] = []
    for one in messages:
        content = one["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found.append(json.dumps([one["role"], [{**block, "cache_control": None} for block in blocks]], sort_keys=True))
    return found


def digest(messages: list[str]) -> str:
    return hashlib.sha256("\n".join(messages).encode()).hexdigest()[:20]


def reply_of(number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number}_{os.urandom(4).hex()}",
        "role": "assistant",
        "content": [{"type": "text", "text": f"Noted {number}."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 2},
    }


async def take_turns(session: Any, number: int, turns: int, acknowledge: Callable[[int, str], None]) -> None:
    """Say, prepare and observe; acknowledge the number of stored messages and their digest."""
    for turn in range(number, number + turns):
        await session.say(f"{MARK}{turn}: {os.urandom(60).hex()}")
        request = await session.prepare(**ASKED)
        reply = reply_of(turn)
        await session.observe(reply)
        said = [*stable(request["messages"]), *stable([{"role": "assistant", "content": reply["content"]}])]
        acknowledge(len(said), digest(said))


def write_for_ever(url: str, tenant: str, home: str, machine: str, ttl: float, sessions: int, seed: int) -> None:
    """Open random sessions, take some turns, and print each that was acknowledged."""
    from reverie import Session
    from reverie.errors import ReverieError, SessionBusy
    from reverie.runtime.places.projects import log_key, project_slug
    from reverie.settings import Settings
    from reverie.storage.postgres import leases
    from reverie.storage.postgres.storage import PostgresStorage

    leases._machine = lambda: machine  # no process here may see that one of another machine has ended
    chance = random.Random(seed)
    storage = PostgresStorage(url, tenant=tenant, ttl_seconds=ttl, patience_seconds=60)
    settings = Settings(home=Path(home) / machine, database=url, tenant=tenant)

    async def work(name: str) -> None:
        is_open = False
        try:
            async with Session.open(name, cwd=home, storage=storage, settings=settings) as session:
                is_open = True
                number = (storage.load(log_key(project_slug(home), name)) or b"").count(MARK.encode())
                await take_turns(session, number, chance.randrange(1, 6), lambda *done: _tell("ok", name, *done))
        except SessionBusy:
            _tell("refused" if is_open else "busy")
        except ReverieError as error:
            _tell("failed", type(error).__name__, str(error).replace("\n", " "))

    while True:
        anyio.run(work, f"s{chance.randrange(sessions)}")


def work_for_ever(url: str, tenant: str, home: str, machine: str, ttl: float) -> None:
    """Run the jobs of the database."""
    from reverie.runtime.jobs.worker import run_worker
    from reverie.settings import Settings
    from reverie.storage.postgres import leases

    leases._machine = lambda: machine
    settings = Settings(home=Path(home) / machine, database=url, tenant=tenant)
    while True:
        try:
            anyio.run(partial(run_worker, url, settings, stalled_seconds=2 * ttl))
        except Exception as error:  # the database is away: a supervisor would start it again
            _tell("failed", type(error).__name__, "in a worker")
            time.sleep(0.5)


def _tell(*words: object, out: int = 1) -> None:
    """Write one line, short enough for the kernel to write it whole or not at all."""
    os.write(out, " ".join(map(str, words)).encode()[: select.PIPE_BUF - 1] + b"\n")


@dataclass
class Child:
    """A forked process."""

    pid: int
    is_worker: bool
    stopped: bool = False


class Killer:
    """The parent of the processes: once a turn was acknowledged, it kills one at each tick and starts another.

    It is a process of its own that neither reads nor restarts anything, and the processes are less urgent than it is,
    so that load does not slow the clock.
    """

    def __init__(self, given: Mapping[str, Any], out: int, begin: int) -> None:
        self._given, self._out, self._begin = given, out, begin
        self._chance = random.Random(given["seed"])
        self._children: list[Child] = []
        self._ended: list[int] = []
        self._niceness = os.getpriority(os.PRIO_PROCESS, 0)
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, self._niceness - MORE_URGENT)

    def run(self) -> None:
        """Start the processes, kill one at each tick for so many seconds, and end them all."""
        for number in range(self._given["processes"]):
            self._start(is_worker=number % WORKERS_IN == WORKERS_IN - 1)
        select.select([self._begin], [], [], PATIENCE_SECONDS)
        pause, began = self._given["pause"], time.monotonic()
        stop_each = round(1 + 1.5 * self._given["ttl"] / pause)
        try:
            for tick in range(1, round(self._given["seconds"] / pause) + 1):
                time.sleep(max(0.0, began + tick * pause - time.monotonic()))
                self._kill_one()
                _tell("killed", time.monotonic() - began - tick * pause, out=self._out)
                if tick % stop_each == 0:
                    self._stop_some()
            time.sleep(pause)
        finally:
            for child in self._children:
                os.kill(child.pid, signal.SIGKILL)

    def _start(self, *, is_worker: bool) -> None:
        machine = f"machine-{self._chance.randrange(MACHINES)}"
        seed = self._chance.getrandbits(30)
        pid = os.fork()
        if pid:
            self._children.append(Child(pid, is_worker))
            return
        try:
            os.setpriority(os.PRIO_PROCESS, 0, self._niceness + LESS_URGENT)
            os.dup2(self._out, 1)
            os.close(self._out)
            os.close(self._begin)
            given = (self._given["tenant"], self._given["home"], machine, self._given["ttl"])
            if is_worker:
                work_for_ever(worker_url(self._given["url"]), *given)
            write_for_ever(self._given["url"], *given, self._given["sessions"], seed)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _kill_one(self) -> None:
        """Kill a random process and start another; no wait for the end of the first."""
        child = self._children.pop(self._chance.randrange(len(self._children)))
        os.kill(child.pid, signal.SIGKILL)
        self._ended = [pid for pid in [*self._ended, child.pid] if os.waitpid(pid, os.WNOHANG) == (0, 0)]
        self._start(is_worker=child.is_worker)

    def _stop_some(self) -> None:
        """Let processes that were stopped go on, and stop another one until the next call."""
        for child in self._children:
            if child.stopped:
                os.kill(child.pid, signal.SIGCONT)
                child.stopped = False
        child = self._chance.choice(self._children)
        os.kill(child.pid, signal.SIGSTOP)
        child.stopped = True
        _tell("stopped", out=self._out)


class Crowd:
    """The turns that the processes said were acknowledged."""

    def __init__(self, url: str, tenant: str, home: Path) -> None:
        self._url, self._tenant, self._home = url, tenant, str(home)
        self.acknowledged: dict[str, dict[int, str]] = {}
        self.outcome = Outcome()

    def listen(self, given: Mapping[str, Any]) -> None:
        """Fork the killer and read the lines of all processes until the last one has ended."""
        out, into = os.pipe()
        begin, first = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            try:
                os.close(out)
                os.close(first)
                Killer(given, into, begin).run()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.close(into)
        os.close(begin)
        try:
            with os.fdopen(out, "rb", buffering=0) as stream, os.fdopen(first, "wb", buffering=0) as started:
                for line in io.BufferedReader(stream):
                    self._take(*line.decode().split())
                    if self.outcome.acknowledged == 1:
                        started.write(b"\n")
        finally:
            assert os.waitpid(pid, 0)[1] == 0

    def _take(self, word: str, *rest: str) -> None:
        if word == "refused":
            self.outcome.refused += 1
        elif word == "stopped":
            self.outcome.stops += 1
        elif word == "killed":
            self.outcome.kills += 1
            self.outcome.latest_kill_seconds = max(self.outcome.latest_kill_seconds, round(float(rest[0]), 3))
        elif word == "failed":
            if rest[0] not in self.outcome.failures:
                print("the first of its kind:", *rest, file=sys.stderr)
            self.outcome.failures[rest[0]] = self.outcome.failures.get(rest[0], 0) + 1
        elif word == "ok":
            known = self.acknowledged.setdefault(rest[0], {})
            self.outcome.acknowledged += 1
            self.outcome.forked += known.get(int(rest[1]), rest[2]) != rest[2]
            known[int(rest[1])] = rest[2]

    def check(self) -> Outcome:
        """Resume every session, compare it with the acknowledged turns, and return the outcome."""
        from reverie.settings import Settings
        from reverie.storage.postgres.storage import PostgresStorage

        settings = Settings(home=Path(self._home) / "check", database=self._url, tenant=self._tenant)
        storage = PostgresStorage(self._url, tenant=self._tenant)

        async def resume() -> None:
            from reverie import Session

            for name, known in self.acknowledged.items():
                async with Session.open(name, cwd=self._home, storage=storage, settings=settings) as session:
                    now = stable((await session.prepare(**ASKED))["messages"])
                self.outcome.resumed += 1
                self.outcome.lost += max(known) > len(now)
                self.outcome.unequal += sum(digest(now[:count]) != one for count, one in known.items())

        anyio.run(resume)
        for key in storage.list("projects"):
            data = storage.load(key) or b""
            if "/s" in key and key.endswith(".jsonl"):
                numbers = [int(part.split(b":")[0]) for part in data.split(MARK.encode())[1:]]
                self.outcome.forked += numbers != list(range(len(numbers)))
            elif "/j" in key and key.endswith(".jsonl"):
                effects = data.count(b'"notes_updated"')
                self.outcome.jobs += 1
                self.outcome.doubled += effects > 1
                self.outcome.undone += effects == 0
        storage.close()
        return self.outcome


def stale_entries(url: str, tenant: str) -> int:
    """Count the entries with a lower fencing number than the one before; the URL is a superuser's."""
    import psycopg

    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT count(*) FROM (SELECT fence < lag(fence) OVER (PARTITION BY file ORDER BY seq) AS stale "
            "FROM reverie.entries WHERE tenant = %s) AS entry WHERE stale",
            (tenant,),
        ).fetchone()
    assert rows is not None
    return rows[0]


def worker_url(url: str) -> str:
    return url.replace(f"//{url.split('//')[1].split('@')[0]}@", f"//{WORKER_ROLE}@")


def queue_jobs(url: str, tenant: str, home: Path, jobs: int) -> None:
    """Write so many short sessions and queue the notes of each."""
    from reverie import Session
    from reverie.runtime.jobs.queue import JobQueue
    from reverie.runtime.places.projects import project_slug
    from reverie.settings import Settings
    from reverie.storage.postgres.storage import PostgresStorage

    settings = Settings(home=home / "first", database=url, tenant=tenant)
    storage, queue = PostgresStorage(url, tenant=tenant), JobQueue(url, tenant)

    async def talk() -> None:
        for number in range(jobs):
            async with Session.open(f"j{number}", cwd=home, storage=storage, settings=settings) as session:
                await session.say(f"Please fix parser {number}. It fails on empty input.")
                await session.prepare(**ASKED)
                await session.observe(reply_of(number))
            queue.put("notes", project=project_slug(home), session=f"j{number}")

    anyio.run(talk)
    queue.close()
    storage.close()


def finish_jobs(url: str, tenant: str, home: Path, ttl: float) -> None:
    """Run the jobs that are left, as a worker that nobody kills."""
    from reverie.runtime.jobs.queue import JobQueue
    from reverie.runtime.jobs.worker import run_worker
    from reverie.settings import Settings

    settings, queue = Settings(home=home / "last", database=url, tenant=tenant), JobQueue(url, tenant)
    until = time.monotonic() + PATIENCE_SECONDS * 5
    while (left := queue.jobs()) and time.monotonic() < until:
        for row in left:  # a job whose workers were killed several times would wait for its next attempt for long
            if row.at is not None and (row.at - datetime.now(UTC)).total_seconds() > LONGEST_WAIT_SECONDS:
                queue.put("notes", project=row.project, session=row.session)
        queue.retry_failed()
        anyio.run(partial(run_worker, worker_url(url), settings, once=True, stalled_seconds=2 * ttl))
        time.sleep(0.2)
    queue.close()


def run_here(given: Mapping[str, Any]) -> Outcome:
    """Let processes work, kill one each pause, and check."""
    import procrastinate  # noqa: F401 - before the processes are forked

    import reverie.runtime.jobs.worker
    import reverie.storage.postgres.storage  # noqa: F401

    url, tenant, home = given["url"], given["tenant"], Path(given["home"])
    queue_jobs(url, tenant, home, given["jobs"])
    print("began", flush=True)
    crowd = Crowd(url, tenant, home)
    crowd.listen(given)
    finish_jobs(url, tenant, home, given["ttl"])
    time.sleep(given["ttl"])  # until the leases of the last killed processes have ended
    return crowd.check()


def run(server: PostgresServer, tenant: str, home: Path, *, restarts: int, **given: Any) -> Outcome:
    """Run the crowd in a process of its own, which has one thread and may fork; restart the database meanwhile."""
    given |= {"url": server.app_url, "tenant": tenant, "home": home}
    words = [f"--{name}={value}" for name, value in given.items()]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, env=environ, text=True) as crowd:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == "began\n"
        for number in range(restarts):
            time.sleep(given["seconds"] / (restarts + 1))
            server.stop(signal.SIGQUIT if number % 2 else signal.SIGINT)
            server.start()
        outcome = Outcome(**json.loads(crowd.stdout.read()))
    outcome.restarts, outcome.stale = restarts, stale_entries(server.url, tenant)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser()
    for name, default in (("processes", 64), ("sessions", 1_000), ("jobs", 100), ("restarts", 2), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--pause", type=float, default=1.0)
    parser.add_argument("--ttl", type=float, default=3.0, help="seconds after which a lease may be taken over")
    for name in ("url", "tenant", "home"):
        parser.add_argument(f"--{name}", default="")
    given: dict[str, Any] = vars(parser.parse_args())
    if given["url"]:
        print(json.dumps(asdict(run_here(given))))
        return 0
    with tempfile.TemporaryDirectory(prefix="reverie-kills-") as name:
        Path(name).chmod(0o755)
        server = PostgresServer(Path(name) / "server", durable=True)
        server.create()
        server.start()
        try:
            make_role(server)
            homes = Path(name) / "homes"
            homes.mkdir()
            started = time.monotonic()
            outcome = run(server, **{**given, "tenant": "kills", "home": homes})
            print(outcome, f"{time.monotonic() - started:.0f} s")
            return 0 if outcome.is_unharmed else 1
        finally:
            with suppress(OSError):
                server.stop()


if __name__ == "__main__":
    sys.exit(main())
