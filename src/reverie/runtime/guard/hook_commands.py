"""A hook that is a command: a process of its own group, fed, read and ended within bounds."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from ...values import record

__all__ = ["MAX_READ_BYTES", "HookCommandResult", "run_command"]

MAX_READ_BYTES: Final = 1_000_000
"""What is read of a command's output; the rest is thrown away."""
_GRACE_SECONDS: Final = 1.0
_SHELL: Final = ("/bin/sh", "-c")


@record
class HookCommandResult:
    """How a command ended and what it said."""

    code: int | None
    """None where it ran out of time."""
    out: str
    err: str


class _Output:
    """The beginning of what a stream gives."""

    def __init__(self) -> None:
        self.ended = False
        self._data = bytearray()

    async def read(self, stream: ByteReceiveStream | None) -> None:
        """Read to the end, keeping no more than the bound."""
        if stream is not None:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async for chunk in stream:
                    self._data += chunk[: MAX_READ_BYTES - len(self._data)]
        self.ended = True

    def text(self) -> str:
        """Return it as text, whatever the bytes."""
        return self._data.decode("utf-8", "replace")


async def run_command(
    command: str, given: bytes, *, cwd: str, environment: Mapping[str, str], timeout_seconds: float
) -> HookCommandResult:
    """Run a command by ``/bin/sh -c`` with this on its stdin; what outlives its time is killed with all it started."""
    process = await _started(command, cwd, environment)
    out, err = _Output(), _Output()
    over = False
    try:
        with anyio.move_on_after(timeout_seconds):
            await _talk(process, given, out, err)
            over = True
    finally:
        # Whoever still holds the output was left behind by the command. The group is alive then, so its number is too.
        if not (over and out.ended and err.ended):
            _kill_group(process.pid)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    return HookCommandResult(process.returncode if over else None, out.text(), err.text())


async def _started(command: str, cwd: str, environment: Mapping[str, str]) -> Process:
    """Start a command; one that is cancelled while it starts would run on without anybody."""
    with anyio.CancelScope(shield=True):
        return await anyio.open_process(
            [*_SHELL, command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    raise AssertionError("a shielded scope does not swallow anything")


async def _talk(process: Process, given: bytes, out: _Output, err: _Output) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_feed, process.stdin, given)
        group.start_soon(out.read, process.stdout)
        group.start_soon(err.read, process.stderr)
        await process.wait()
        group.cancel_scope.deadline = anyio.current_time() + _GRACE_SECONDS


async def _feed(stream: ByteSendStream | None, given: bytes) -> None:
    """Write what a command is told; one that does not listen is no failure."""
    if stream is not None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            await stream.send(given)
        with suppress(OSError):
            await stream.aclose()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
