"""Commands that run: their output kept within bounds, their whole process group ended, nothing left behind."""

from __future__ import annotations

import atexit
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

__all__ = ["EDGE_BYTES", "OutputBuffer", "Shell", "Shells"]

EDGE_BYTES: Final = 1_000_000
"""How much of the beginning, and as much of the end, is kept of a long output."""
_GRACE_SECONDS: Final = 2.0
_DRAIN_SECONDS: Final = 0.5
_CHUNK_BYTES: Final = 65_536
_MAX_BACKGROUND: Final = 32
_SUPERVISOR: Final = Path(__file__).with_name("supervise.py")


class OutputBuffer:
    """The beginning and the end of an output, whatever its length."""

    def __init__(self, edge_bytes: int = EDGE_BYTES) -> None:
        self._edge = edge_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._read = 0
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        """Take more output."""
        self.total_bytes += len(data)
        room = self._edge - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._edge:
            del self._tail[: -self._edge]

    def all(self) -> bytes:
        """Return what is kept; in place of what is not, how much that was."""
        return self._since(0)

    def new(self) -> bytes:
        """Return what came since this was last asked."""
        data = self._since(self._read)
        self._read = self.total_bytes
        return data

    @property
    def has_new(self) -> bool:
        """Say whether something came since ``new`` was last asked."""
        return self.total_bytes > self._read

    def _since(self, start: int) -> bytes:
        tail = bytes(self._tail[-self._edge :])
        tail_start = self.total_bytes - len(tail)
        head = bytes(self._head[start:])
        gap = tail_start - max(start, len(self._head))
        if gap <= 0:
            return head + tail[max(0, start - tail_start) :]
        return head + f"\n[... {gap:,} bytes left out here ...]\n".encode() + tail


class Shell:
    """A command in a process group of its own, with stdin empty and stdout and stderr as one stream.

    It runs under a small supervisor, which ends all that comes from it when this process wants that or is gone.
    """

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], command: str = "") -> None:
        self.command = command
        self.output = OutputBuffer()
        self.left_running = False
        """Whether it ended and left something behind in its group, which was then ended as well."""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._news = threading.Condition(self._lock)
        self._source, sink = os.pipe()
        life, self._life = os.pipe()
        self._status, status = os.pipe()
        supervised = [sys.executable, "-I", "-S", str(_SUPERVISOR), str(life), str(status), str(_GRACE_SECONDS), *argv]
        try:
            self._process = subprocess.Popen(
                supervised,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
                pass_fds=(life, status),
            )
        except BaseException:
            for descriptor in (self._source, self._life, self._status):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (sink, life, status):
                os.close(descriptor)
        self.pid = self._process.pid
        os.set_blocking(self._source, False)
        self._bell, self._ring = os.pipe()
        self._reader = threading.Thread(target=self._collect, name=f"shell-{self.pid}-output", daemon=True)
        self._waiter = threading.Thread(target=self._reap, name=f"shell-{self.pid}-exit", daemon=True)
        self._reader.start()
        self._waiter.start()

    @property
    def running(self) -> bool:
        """Say whether the command or something it started in its group still runs."""
        return not self._ended.is_set()

    @property
    def returncode(self) -> int | None:
        """How it ended: an exit code, the negative number of a signal, or None while it runs."""
        return self._process.returncode if self._ended.is_set() else None

    async def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end and say whether it came in time."""
        # A thread of its own each: many commands may be waited for, and none may starve the rest.
        return await anyio.to_thread.run_sync(
            self._ended.wait, timeout_seconds, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )

    async def wait_for_news(self, timeout_seconds: float) -> None:
        """Wait until there is new output or the end, or for so long."""
        await anyio.to_thread.run_sync(
            self._await_news, timeout_seconds, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )

    async def stop(self) -> None:
        """End the whole group, first politely; return when it is gone, even where the caller is cancelled."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.kill, limiter=anyio.CapacityLimiter(1))

    def kill(self) -> None:
        """End the whole group, first politely, and wait for that."""
        self._signal(signal.SIGTERM)
        if not self._ended.wait(_GRACE_SECONDS):
            self.let_die()
            if not self._ended.wait(_GRACE_SECONDS):
                self._signal(signal.SIGKILL)
                self._ended.wait(_GRACE_SECONDS)

    def let_die(self) -> None:
        """Have the supervisor kill all of it, at once, and do not wait for that."""
        with self._lock:
            life, self._life = self._life, -1
        if life >= 0:
            os.close(life)

    def all_output(self) -> str:
        """Return the output kept so far."""
        with self._lock:
            return self.output.all().decode("utf-8", "replace")

    def new_output(self) -> str:
        """Return the output that came since this was last asked."""
        with self._lock:
            return self.output.new().decode("utf-8", "replace")

    def _await_news(self, timeout_seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self.output.has_new or self._ended.is_set(), timeout_seconds)

    def _signal(self, number: signal.Signals) -> None:
        if not self._ended.is_set():  # the group's leader is not reaped before that, so the number is still its own
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _collect(self) -> None:
        """Read until nobody can write any more, or the bell rings."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._source, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            deadline: float | None = None
            while deadline is None or time.monotonic() < deadline:
                ready = {key.fd for key, _ in selector.select(None if deadline is None else _DRAIN_SECONDS / 10)}
                if self._bell in ready:
                    selector.unregister(self._bell)
                    deadline = time.monotonic() + _DRAIN_SECONDS
                if self._source in ready and not self._take():
                    break
        for descriptor in (self._source, self._bell):
            os.close(descriptor)

    def _take(self) -> bool:
        try:
            data = os.read(self._source, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        with self._news:
            self.output.add(data)
            self._news.notify_all()
        return bool(data)

    def _reap(self) -> None:
        """Wait for the command, end what it left running in its group, then take the rest of the output."""
        _await_exit(self._process)
        # The leader is dead but not reaped: its number, and with it the group's, cannot have become somebody else's.
        with suppress(ProcessLookupError, PermissionError):
            if _group_has_others(self.pid):
                self.left_running = True
                os.killpg(self.pid, signal.SIGTERM)
                _await_group(self.pid, _GRACE_SECONDS)
                os.killpg(self.pid, signal.SIGKILL)
                _await_group(self.pid, _GRACE_SECONDS)
        os.close(self._ring)  # wakes the reader; who left the group may hold the pipe open for ever
        self._reader.join()
        os.set_blocking(self._status, False)
        with suppress(BlockingIOError):
            self.left_running = bool(os.read(self._status, 1)) or self.left_running
        os.close(self._status)
        self.let_die()
        self._process.wait()
        with self._news:
            self._ended.set()
            self._news.notify_all()


def _await_exit(process: subprocess.Popen[bytes]) -> None:
    """Return when a child has ended, and leave it to be reaped where the system can."""
    if not hasattr(os, "waitid"):
        process.wait()
        return
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def _await_group(pid: int, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while _group_has_others(pid) and time.monotonic() < deadline:
        time.sleep(0.01)


def _group_has_others(pid: int) -> bool:
    """Say whether a group whose leader has ended has living members."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return _group_listed(pid)
    return any(_lives_in(name, pid) for name in names if name.isdigit() and name != str(pid))


def _lives_in(name: str, group: int) -> bool:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            state, _, found = file.read().rpartition(b")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return int(found) == group and state not in (b"Z", b"X")


def _group_listed(group: int) -> bool:
    """Ask ps, where there is no /proc."""
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,pid=,stat="], capture_output=True, text=True, check=False)
    rows = (line.split() for line in listed.stdout.splitlines())
    return any(row[0] == str(group) and row[1] != str(group) and row[2][0] != "Z" for row in rows if len(row) >= 3)


class Shells:
    """The commands that run in the background for one agent, by their ids."""

    def __init__(self) -> None:
        self._shells: dict[str, Shell] = {}
        self._awaited: set[Shell] = set()
        self._count = 0

    def __iter__(self) -> Iterator[tuple[str, Shell]]:
        return iter(tuple(self._shells.items()))

    @property
    def running(self) -> list[str]:
        """The ids of those that still run."""
        return [name for name, shell in self._shells.items() if shell.running]

    @property
    def full(self) -> bool:
        """Say whether no more may be started."""
        return len(self.running) >= _MAX_BACKGROUND

    def keep(self, shell: Shell) -> str:
        """Take a command into the background and return its id; it ends with the process at the latest."""
        if not self._shells:
            atexit.register(self.close)
        self._count += 1
        name = f"shell_{self._count}"
        self._shells[name] = shell
        return name

    @contextmanager
    def awaiting(self, shell: Shell) -> Generator[None]:
        """Know of a command that runs in front, while somebody waits for it."""
        self._awaited.add(shell)
        try:
            yield
        finally:
            self._awaited.discard(shell)

    def let_die(self) -> None:
        """Have everything that runs here killed at once, in front and behind, and do not wait for that."""
        for shell in (*self._awaited, *self._shells.values()):
            shell.let_die()

    def get(self, name: str) -> Shell | None:
        """Return a command by its id, ended or not."""
        return self._shells.get(name)

    async def aclose(self) -> None:
        """End all of them."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.close)

    def close(self) -> None:
        """End all of them; doing it twice is harmless."""
        atexit.unregister(self.close)
        ending = [threading.Thread(target=shell.kill) for shell in self._shells.values() if shell.running]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()
