"""Run shell commands: keep a limited part of their output, and end their whole process group."""

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

EDGE_BYTES: Final = 1_000_000
"""How many bytes of the beginning, and as many of the end, of a long output are kept."""
_GRACE_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 0.5
_CHUNK_BYTES: Final = 65_536
_END_BYTES: Final = 4_096
_MAX_BACKGROUND: Final = 32
_SUPERVISOR: Final = Path(__file__).with_name("supervise.py")


class OutputBuffer:
    """A buffer that keeps the beginning and the end of a command's output and drops the middle."""

    def __init__(self, edge_bytes: int = EDGE_BYTES) -> None:
        self._edge = edge_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._read = 0
        self._is_line_open = False
        self.total_bytes = 0
        self.total_lines = 0

    def add(self, data: bytes) -> None:
        """Append bytes of output."""
        self.total_bytes += len(data)
        if data:
            was_open, self._is_line_open = self._is_line_open, not data.endswith(b"\n")
            self.total_lines += data.count(b"\n") + self._is_line_open - was_open
        room = self._edge - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._edge:
            del self._tail[: -self._edge]

    def all(self) -> bytes:
        """Return the kept output; a note in it says how many bytes of the middle were dropped."""
        return self._since(0)

    def new(self) -> bytes:
        """Return the kept output since the last call of ``new``, and mark it as read."""
        data = self._since(self._read)
        self._read = self.total_bytes
        return data

    def end(self, max_bytes: int) -> bytes:
        """Return the last bytes of the output."""
        return bytes((self._head[-max_bytes:] + self._tail[-max_bytes:])[-max_bytes:])

    @property
    def has_new(self) -> bool:
        """Whether output was added since the last call of ``new``."""
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
    """A command in a process group of its own, with empty stdin and one stream for stdout and stderr.

    Creating it starts the command, under a small supervisor that kills all processes of the command when
    this process asks for it or ends.
    """

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], command: str = "") -> None:
        self.command = command
        self.output = OutputBuffer()
        self.is_end_told = False
        """Whether a tool returned the end of the command to the model."""
        self.left_running = False
        """Whether the command left processes running, which were then ended; known once the shell has ended."""
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
        self._exit_reader, self._exit_writer = os.pipe()
        self._reader = threading.Thread(target=self._collect, name=f"shell-{self.pid}-output", daemon=True)
        self._waiter = threading.Thread(target=self._reap, name=f"shell-{self.pid}-exit", daemon=True)
        self._reader.start()
        self._waiter.start()

    @property
    def running(self) -> bool:
        """Whether the command or a process of its group still runs."""
        return not self._ended.is_set()

    @property
    def returncode(self) -> int | None:
        """The exit code, or the negative number of the signal that ended the command; None while it runs."""
        return self._process.returncode if self._ended.is_set() else None

    @property
    def end_text(self) -> str:
        """The end of the command in words: its exit code, or the signal that ended it."""
        code = self.returncode or 0
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"ended by signal {-code}"

    async def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the command and its group have ended; return False if the time runs out first."""
        # One thread per wait: many waits at once must not exhaust the shared thread limit.
        return await anyio.to_thread.run_sync(
            self._ended.wait, timeout_seconds, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )

    async def wait_for_news(self, timeout_seconds: float) -> None:
        """Wait until there is output that ``new_output`` has not returned, the command ends, or time is up."""
        await anyio.to_thread.run_sync(
            self._await_news, timeout_seconds, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )

    async def stop(self) -> None:
        """Terminate, then kill, the process group, and wait for its end, even if the caller is cancelled."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.kill, limiter=anyio.CapacityLimiter(1))

    def kill(self) -> None:
        """Terminate, then kill, the process group; block until it is gone, a few seconds at most."""
        self._signal(signal.SIGTERM)
        if not self._ended.wait(_GRACE_SECONDS):
            self.kill_soon()
            if not self._ended.wait(_GRACE_SECONDS):
                self._signal(signal.SIGKILL)
                self._ended.wait(_GRACE_SECONDS)

    def kill_soon(self) -> None:
        """Make the supervisor kill all processes of the command, without waiting for their end."""
        with self._lock:
            life, self._life = self._life, -1
        if life >= 0:
            os.close(life)

    def all_output(self) -> str:
        """Return the kept output as text; a note in it says how many bytes of the middle were dropped."""
        with self._lock:
            return self.output.all().decode("utf-8", "replace")

    def end_of_output(self) -> tuple[str, int]:
        """Return the end of the output so far as text, and the number of lines of all of it."""
        with self._lock:
            return self.output.end(_END_BYTES).decode("utf-8", "replace"), self.output.total_lines

    def new_output(self) -> str:
        """Return the output since the last call of ``new_output`` as text."""
        with self._lock:
            return self.output.new().decode("utf-8", "replace")

    def _await_news(self, timeout_seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self.output.has_new or self._ended.is_set(), timeout_seconds)

    def _signal(self, number: signal.Signals) -> None:
        if not self._ended.is_set():  # the leader is reaped only after that, so the number is still valid
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _collect(self) -> None:
        """Read output into the buffer until the stream closes, or shortly after the command has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._source, selectors.EVENT_READ)
            selector.register(self._exit_reader, selectors.EVENT_READ)
            deadline: float | None = None
            while deadline is None or time.monotonic() < deadline:
                ready = {key.fd for key, _ in selector.select(None if deadline is None else _DRAIN_SECONDS / 10)}
                if self._exit_reader in ready:
                    selector.unregister(self._exit_reader)
                    deadline = time.monotonic() + _DRAIN_SECONDS
                if self._source in ready and not self._take():
                    break
        for descriptor in (self._source, self._exit_reader):
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
        """Wait for the command, end the rest of its group, wait for all output, and mark the shell as ended."""
        _await_exit(self._process)
        # The leader has ended but is not reaped, so the numbers of process and group are not reused.
        with suppress(ProcessLookupError, PermissionError):
            if _group_has_others(self.pid):
                self.left_running = True
                os.killpg(self.pid, signal.SIGTERM)
                _await_group(self.pid, _GRACE_SECONDS)
                os.killpg(self.pid, signal.SIGKILL)
                _await_group(self.pid, _GRACE_SECONDS)
        os.close(self._exit_writer)  # wakes the reader; a process that left the group may keep the pipe open forever
        self._reader.join()
        os.set_blocking(self._status, False)
        with suppress(BlockingIOError):
            self.left_running = bool(os.read(self._status, 1)) or self.left_running
        os.close(self._status)
        self.kill_soon()
        self._process.wait()
        with self._news:
            self._ended.set()
            self._news.notify_all()


def _await_exit(process: subprocess.Popen[bytes]) -> None:
    """Wait until a child process has ended; leave it unreaped where the system allows that."""
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
    """Return whether a process group has living members besides its leader ``pid``."""
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
    """Return whether ``ps`` lists living members of a group besides its leader, for systems without /proc."""
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,pid=,stat="], capture_output=True, text=True, check=False)
    rows = (line.split() for line in listed.stdout.splitlines())
    return any(row[0] == str(group) and row[1] != str(group) and row[2][0] != "Z" for row in rows if len(row) >= 3)


class Shells:
    """The shell commands of one agent: background commands by their ids, and foreground commands being awaited."""

    def __init__(self) -> None:
        self._shells: dict[str, Shell] = {}
        self._awaited: set[Shell] = set()
        self._count = 0

    def __iter__(self) -> Iterator[tuple[str, Shell]]:
        return iter(tuple(self._shells.items()))

    @property
    def awaited(self) -> Shell | None:
        """A foreground command that is being awaited; None if there is none."""
        return next(iter(self._awaited), None)

    @property
    def running(self) -> list[str]:
        """The ids of background commands that still run."""
        return [name for name, shell in self._shells.items() if shell.running]

    @property
    def full(self) -> bool:
        """Whether as many background commands run as are allowed."""
        return len(self.running) >= _MAX_BACKGROUND

    def keep(self, shell: Shell) -> str:
        """Register a background command and return its new id; it is ended when this process exits."""
        if not self._shells:
            atexit.register(self.close)
        self._count += 1
        name = f"shell_{self._count}"
        self._shells[name] = shell
        return name

    def number_after(self, number: int) -> None:
        """Give new commands larger numbers than this one."""
        self._count = max(self._count, number)

    @contextmanager
    def awaiting(self, shell: Shell) -> Generator[None]:
        """Register a foreground command during the ``with`` block, so that ``kill_soon`` reaches it."""
        self._awaited.add(shell)
        try:
            yield
        finally:
            self._awaited.discard(shell)

    def kill_soon(self) -> None:
        """Kill all foreground and background commands, without waiting for their end."""
        for shell in (*self._awaited, *self._shells.values()):
            shell.kill_soon()

    def get(self, name: str) -> Shell | None:
        """Return a background command by its id, running or ended; None if the id is unknown."""
        return self._shells.get(name)

    async def aclose(self) -> None:
        """End all background commands and wait for their end, even if the caller is cancelled."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.close)

    def close(self) -> None:
        """End all background commands at the same time and block until they have ended."""
        atexit.unregister(self.close)
        ending = [threading.Thread(target=shell.kill) for shell in self._shells.values() if shell.running]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()
