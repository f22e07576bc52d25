"""The recorder beside the gateway: a process of its own, so that no disk and no lock can delay a request.

The gateway hands over each exchange when it is over and never waits. If the recorder is slow, exchanges wait in memory
up to a bound; beyond it they pass unrecorded, and the user is told. A client sends its whole conversation with every
request, so the next exchange that is recorded fills the gap.
"""

from __future__ import annotations

import asyncio
import fcntl
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from .exchange import Exchange

MAX_WAITING_BYTES: Final = 128_000_000
_PIPE_BYTES: Final = 1_048_576
_SET_PIPE_SIZE: Final = 1031
_RESTART_SECONDS: Final = 5.0
_END_SECONDS: Final = 20.0


class RecorderProcess:
    """Starts the recorder, hands exchanges to it, and starts it again if it ends."""

    def __init__(
        self, command: Sequence[str], tell: Callable[[str], None], *, max_waiting_bytes: int = MAX_WAITING_BYTES
    ) -> None:
        """Run ``command`` as the recorder; ``tell`` gets sentences about exchanges that were not recorded."""
        self._command = command
        self._tell = tell
        self._most = max_waiting_bytes
        self._process: Process | None = None
        self._started = 0.0
        self._starting: asyncio.Task[None] | None = None
        self.unrecorded = 0
        """The number of exchanges that passed unrecorded."""

    async def start(self) -> None:
        """Start the recorder; tell why if that fails."""
        self._started = time.monotonic()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=DEVNULL, start_new_session=True
            )
        except OSError as error:
            self._lose(f"the recorder cannot be started: {error}")
            return
        if self._process.stdin is not None:
            pipe = self._process.stdin.transport.get_extra_info("pipe")
            with suppress(OSError):
                fcntl.fcntl(pipe.fileno(), _SET_PIPE_SIZE, _PIPE_BYTES)

    def offer(self, exchange: Exchange) -> None:
        """Hand over an exchange without waiting; one that cannot be handed over is counted and told."""
        process = self._process
        if process is None or process.returncode is not None or process.stdin is None or process.stdin.is_closing():
            self._lose("the recorder does not run")
            self._restart()
            return
        waiting = process.stdin.transport.get_write_buffer_size()
        if waiting + sum(map(len, exchange.request)) + sum(map(len, exchange.response)) > self._most:
            self._lose("the recorder is too slow")
            return
        frame = exchange.frame()
        if frame is None:
            self._lose("its content is too long")
            return
        process.stdin.write(frame)

    def _lose(self, reason: str) -> None:
        self.unrecorded += 1
        if self.unrecorded & (self.unrecorded - 1) == 0:  # 1, 2, 4, 8 and so on, so that nobody's screen is flooded
            self._tell(f"a request passed unrecorded ({reason}); {self.unrecorded} so far")

    def _restart(self) -> None:
        if time.monotonic() - self._started > _RESTART_SECONDS and (self._starting is None or self._starting.done()):
            self._starting = asyncio.ensure_future(self.start())

    async def close(self) -> None:
        """Let the recorder finish its work, and end it if that takes too long."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            self._tell("the recorder did not end; what it had not written yet is lost")
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
