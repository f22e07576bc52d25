"""A separate program, started by ``shells.py``: run a command, and end every process it started.

    python -I -S supervise.py LIFE STATUS GRACE COMMAND...

LIFE is the reading end of a pipe; only the calling process holds the other end. When the caller asks for the end or
dies, the pipe closes, and all processes of the command are killed. Descendants that leave their group, or whose parents
end, become children of this program (a subreaper) and are found as well. A byte is written to STATUS if the command
ended and left processes running. The program ends as the command ended, by exit code or by signal.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NOT_RUN = 127
LOOK_SECONDS = 1.0
PAUSE_SECONDS = 0.01
END_SECONDS = 10.0


def control(option: int, value: int) -> None:
    """Set a prctl option of this process; do nothing on systems other than Linux."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def start(command: list[str], signals: tuple[signal.Signals, ...]) -> int:
    """Start the command in a child process with default handlers for ``signals``; return its process id."""
    here = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        control(PR_SET_PDEATHSIG, signal.SIGKILL)  # for a supervisor that is killed itself
        if os.getppid() != here:
            os._exit(NOT_RUN)
        for one in signals:
            signal.signal(one, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be run: {error.strerror}\n".encode(errors="replace"))
    finally:
        os._exit(NOT_RUN)


def descendants() -> list[int]:
    """Return the ids of all living descendants of this process; an empty list without /proc."""
    parents: dict[int, list[int]] = {}
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for name in names:
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state not in (b"Z", b"X"):
            parents.setdefault(int(parent), []).append(int(name))
    found, waiting = list[int](), [os.getpid()]
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            found.append(child)
            waiting.append(child)
    return found


def send(number: int, to: list[int]) -> None:
    """Send a signal to each process; skip those that are gone or may not be signalled."""
    for pid in to:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def reap(wanted: int) -> int | None:
    """Reap all children that have ended; return the wait status of ``wanted`` if it is among them, or None."""
    ended: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        if pid == wanted:
            ended = status


def end_all(child: int) -> int | None:
    """Kill all descendants until none is left or ``END_SECONDS`` are over.

    Return the wait status of ``child``, the command, if it ended here; otherwise None.
    """
    ended: int | None = None
    until = time.monotonic() + END_SECONDS  # a process of another user cannot be killed
    while True:
        left = descendants()
        send(signal.SIGKILL, left)
        found = reap(child)
        ended = found if found is not None else ended
        if not left or time.monotonic() > until:
            return ended
        time.sleep(PAUSE_SECONDS)


def wait(life: int, bell: int, child: int) -> int | None:
    """Wait for the command and return its wait status; None if the caller closes ``life`` or is gone.

    ``bell`` is a pipe that becomes readable when a child ends.
    """
    parent = os.getppid()
    poll = select.poll()
    poll.register(life, select.POLLIN)
    poll.register(bell, select.POLLIN)
    while True:
        ended = reap(child)
        if ended is not None:
            return ended
        ready = {descriptor for descriptor, _ in poll.poll(LOOK_SECONDS * 1_000)}
        if bell in ready:
            os.read(bell, 4_096)
        if life in ready or os.getppid() != parent:
            return None


def leave(status: int | None) -> None:
    """End this process as the command ended: with its exit code or by its signal; None means SIGKILL."""
    if status is None:
        status = signal.SIGKILL
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def main() -> None:
    """Run the command of the arguments, end all its processes after it, and exit as it did."""
    life, status, grace_seconds, command = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
    polite = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    for one in polite:
        signal.signal(one, signal.SIG_IGN)
    control(PR_SET_CHILD_SUBREAPER, 1)
    for descriptor in (life, status):
        os.set_inheritable(descriptor, False)
    bell, ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
    os.set_blocking(ring, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    child = start(command, (*polite, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ))
    with open(os.devnull, "r+b") as nothing:
        for descriptor in (1, 2):
            os.dup2(nothing.fileno(), descriptor)  # the output must close when the command's processes end
    ended = wait(life, bell, child)
    left = descendants() if ended is not None else []
    if left:
        os.write(status, b"L")
        send(signal.SIGTERM, left)
        poll = select.poll()
        poll.register(life, select.POLLIN)
        until = time.monotonic() + grace_seconds
        while time.monotonic() < until and not poll.poll(PAUSE_SECONDS * 1_000):
            reap(child)
            if not descendants():
                break
    last = end_all(child)
    leave(ended if ended is not None else last)


if __name__ == "__main__":
    main()
