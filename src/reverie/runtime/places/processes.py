"""Identify a process beyond its number, because the system reuses process numbers.

A signal is sent only if process number, start time, machine boot and PID namespace match the stored identity. Where
the system supports it, a process handle is used that can never refer to another process.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from ...values import record

_POLL_SECONDS: Final = 0.02
_ASK_SECONDS: Final = 5.0
_STARTTIME: Final = 19  # in /proc/<pid>/stat, counted from the state
_DEAD: Final = ("Z", "X", "x")


@record
class ProcessIdentity:
    """A process, identified across number reuse and reboots."""

    pid: int
    started: str
    """The process's start time: clock ticks since boot, or the date that ps prints; empty if unknown."""
    boot: str
    """The id of the machine's boot; empty if unknown."""
    space: str = ""
    """The process's PID namespace, because a number means another process in a container; empty if unknown."""


def own_identity() -> ProcessIdentity:
    """Return the identity of the process that calls this function."""
    return ProcessIdentity(os.getpid(), _started(os.getpid()) or "", _boot(), _space())


def is_alive(who: ProcessIdentity) -> bool | None:
    """Return whether exactly this process is alive; None if that is unknown, as for another boot or container."""
    if not who.started or not who.boot or (who.boot, who.space) != (_boot(), _space()):
        return None
    return _started(who.pid) == who.started


def send(who: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; return whether it was sent."""
    handle = _handle(who.pid)
    try:
        if is_alive(who) is not True:
            return False
        with suppress(ProcessLookupError, PermissionError):
            if handle is not None:
                signal.pidfd_send_signal(handle, number)
            else:
                os.kill(who.pid, number)
            return True
        return False
    finally:
        if handle is not None:
            os.close(handle)


def end(who: ProcessIdentity, *, grace_seconds: float, wait_seconds: float = 5.0) -> bool:
    """Send SIGTERM to a process, SIGKILL after a grace period, and return whether it is surely gone."""
    asked = send(who, signal.SIGTERM)
    send(who, signal.SIGCONT)  # a stopped process handles SIGTERM only after it continues
    if asked and not _is_gone_within(who, grace_seconds):
        send(who, signal.SIGKILL)
        _is_gone_within(who, wait_seconds)
    return is_alive(who) is False


def _is_gone_within(who: ProcessIdentity, seconds: float) -> bool:
    """Wait until a process is gone; return False if the time runs out first."""
    deadline = time.monotonic() + seconds
    handle = _handle(who.pid)
    try:
        while is_alive(who):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if handle is not None:
                ended = select.poll()
                ended.register(handle, select.POLLIN)  # readable once the process has ended, reaped or not
                ended.poll(left * 1_000)
            else:
                time.sleep(min(_POLL_SECONDS, left))
        return True
    finally:
        if handle is not None:
            os.close(handle)


def _handle(pid: int) -> int | None:
    """Return a descriptor (pidfd) of the process with this number, or None if the system gives none."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _started(pid: int) -> str | None:
    """Return the start time of a process as the system writes it; None if it does not exist or is a zombie."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None if os.path.exists("/proc/self/stat") else _started_by_ps(pid)
    fields = data[data.rindex(b")") + 1 :].decode("ascii", "replace").split()
    return None if fields[0] in _DEAD else fields[_STARTTIME]


def _started_by_ps(pid: int) -> str | None:
    words = _output_of(["ps", "-o", "stat=,lstart=", "-p", str(pid)]).split(maxsplit=1)
    return words[1].strip() if len(words) == 2 and not words[0].startswith(_DEAD) else None


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return _output_of(["sysctl", "-n", "kern.bootsessionuuid"]).strip()


@cache
def _space() -> str:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _output_of(command: list[str]) -> str:
    """Return the stdout of a system command; an empty text if it cannot run or takes too long."""
    with suppress(OSError, subprocess.SubprocessError):
        environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False, env=environment
        )
        return ran.stdout
    return ""
