"""Run a hook command in its own process group, with limits on time and output."""

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

MAX_READ_BYTES: Final = 1_000_000
"""The most bytes kept of each of a command's stdout and stderr; the rest is dropped."""
_GRACE_SECONDS: Final = 1.0
_SHELL: Final = ("/bin/sh", "-c")


@record
class HookCommandResult:
    """The exit code and output of a hook command."""

    code: int | None
    """The exit code, negative for a signal; None if the command exceeded its time limit."""
    out: str
    err: str


class _Output:
    """The beginning of a command's output stream, up to ``MAX_READ_BYTES``."""

    def __init__(self) -> None:
        self.ended = False
        self._data = bytearray()

    async def read(self, stream: ByteReceiveStream | None) -> None:
        """Read a stream to its end, keep the first ``MAX_READ_BYTES`` and set ``ended``."""
        if stream is not None:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async for chunk in stream:
                    self._data += chunk[: MAX_READ_BYTES - len(self._data)]
        self.ended = True

    def text(self) -> str:
        """Return the kept bytes as text, with replacement characters for invalid bytes."""
        return self._data.decode("utf-8", "replace")


async def run_command(
    command: str, given: bytes, *, cwd: str, environment: Mapping[str, str], timeout_seconds: float
) -> HookCommandResult:
    """Run a command with ``/bin/sh -c`` and ``given`` as its stdin; kill its process group at the time limit."""
    process = await _start(command, cwd, environment)
    out, err = _Output(), _Output()
    over = False
    try:
        with anyio.move_on_after(timeout_seconds):
            await _talk(process, given, out, err)
            over = True
    finally:
        # A process that still holds the output is in the group, so the group's number is still valid.
        if not (over and out.ended and err.ended):
            _kill_group(process.pid)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    return HookCommandResult(process.returncode if over else None, out.text(), err.text())


async def _start(command: str, cwd: str, environment: Mapping[str, str]) -> Process:
    """Start a command in a process group of its own, shielded from cancellation, and return its process.

    A command that is cancelled during its start would keep running.
    """
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
    """Write the input to a command's stdin and close it; ignore a command that does not read its input."""
    if stream is not None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            await stream.send(given)
        with suppress(OSError):
            await stream.aclose()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
