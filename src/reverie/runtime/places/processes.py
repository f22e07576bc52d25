"""Which process is meant: a number alone is given to another soon, so its start and the machine's go with it.

A process is signalled only where its number, start time, boot of the machine and number space are those that were
written down, and where the system can, by a handle that cannot come to mean another process in between.
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

__all__ = ["ProcessIdentity", "end", "is_alive", "own_identity", "send"]

_POLL_SECONDS: Final = 0.02
_ASK_SECONDS: Final = 5.0
_STARTTIME: Final = 19  # in /proc/<pid>/stat, counted from the state
_DEAD: Final = ("Z", "X", "x")


@record
class ProcessIdentity:
    """One process of one boot of one machine."""

    pid: int
    started: str
    """When it started, as the system says it: clock ticks since boot, or the date that ps prints."""
    boot: str
    """The id of the machine's boot; empty where that cannot be known."""
    space: str = ""
    """The space its number is from: in a container the same number means another process."""


def own_identity() -> ProcessIdentity:
    """Return who this process is."""
    return ProcessIdentity(os.getpid(), _started(os.getpid()) or "", _boot(), _space())


def is_alive(who: ProcessIdentity) -> bool | None:
    """Say whether this very process lives; None where that cannot be said from here."""
    if not who.started or not who.boot or (who.boot, who.space) != (_boot(), _space()):
        return None
    return _started(who.pid) == who.started


def send(who: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to this very process and to no other; say whether it was there to get it."""
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
    """Ask a process to end, make it end where it does not, and say whether it is gone."""
    asked = send(who, signal.SIGTERM)
    send(who, signal.SIGCONT)  # a stopped one hears it only then
    if asked and not _is_gone_within(who, grace_seconds):
        send(who, signal.SIGKILL)
        _is_gone_within(who, wait_seconds)
    return is_alive(who) is False


def _is_gone_within(who: ProcessIdentity, seconds: float) -> bool:
    """Wait for a process to be gone."""
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
    """Return a descriptor that means whatever process has this number now, for good."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _started(pid: int) -> str | None:
    """Return when the process with this number started; None where there is none, or only its remains."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None if os.path.exists("/proc/self/stat") else _started_by_ps(pid)
    fields = data[data.rindex(b")") + 1 :].decode("ascii", "replace").split()
    return None if fields[0] in _DEAD else fields[_STARTTIME]


def _started_by_ps(pid: int) -> str | None:
    words = _asked(["ps", "-o", "stat=,lstart=", "-p", str(pid)]).split(maxsplit=1)
    return words[1].strip() if len(words) == 2 and not words[0].startswith(_DEAD) else None


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return _asked(["sysctl", "-n", "kern.bootsessionuuid"]).strip()


@cache
def _space() -> str:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _asked(command: list[str]) -> str:
    """Return what a command of the system prints; nothing where it is not there."""
    with suppress(OSError, subprocess.SubprocessError):
        environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False, env=environment
        )
        return ran.stdout
    return ""
