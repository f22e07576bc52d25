"""The recorder beside the gateway: a process of its own, so that no disk and no lock can delay a request.

The gateway hands over each exchange when it is over and never waits: a thread writes to the recorder. If that is slow,
exchanges wait in memory up to a bound; beyond it they pass unrecorded, with a message. A client sends its whole
conversation with every request, so the next exchange that is recorded fills the gap.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from .exchange import Exchange
from .http1 import Bytes

_MAX_WAITING_BYTES: Final = 128_000_000
_RESTART_SECONDS: Final = 5.0
_END_SECONDS: Final = 20.0
_LATEST_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.02
_PIECES: Final = 512
"""The most pieces that one call writes; the system's limit is 1,024."""


class RecorderProcess:
    """Starts the recorder, hands exchanges to it, and starts it again if it ends."""

    def __init__(self, command: Sequence[str], tell: Callable[[str], None]) -> None:
        """Run ``command`` as the recorder; ``tell`` gets sentences about exchanges that were not recorded."""
        self._command = command
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._queue: SimpleQueue[tuple[float, Exchange] | None] = SimpleQueue()
        self._waiting = 0
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._write_all, name="recorder", daemon=True)
        self.is_busy: Callable[[], bool] = lambda: False
        """Whether requests pass at the moment; the server sets it."""
        self.unrecorded = 0
        """The number of exchanges that passed unrecorded."""

    def start(self) -> None:
        """Start the recorder."""
        self._thread.start()

    def offer(self, exchange: Exchange) -> None:
        """Hand over an exchange without waiting; one too many is counted and told."""
        if exchange.is_too_long:
            self._lose("it is too long with its reply")
            return
        size = exchange.size
        with self._lock:
            fits = self._waiting + size <= _MAX_WAITING_BYTES
            self._waiting += size if fits else 0
        if fits:
            self._queue.put((time.monotonic(), exchange))
        else:
            self._lose("the recorder is too slow")

    def _lose(self, reason: str) -> None:
        with self._lock:
            self.unrecorded += 1
            count = self.unrecorded
        if count & (count - 1) == 0:  # 1, 2, 4, 8 and so on, to keep the screen quiet
            self._tell(f"a request passed unrecorded ({reason}); {count} so far")

    # -- in the thread

    def _write_all(self) -> None:
        self._launch()
        while (offered := self._queue.get()) is not None:
            over, exchange = offered
            self._await_pause(over)
            try:
                self._write(exchange.frame())
            except OSError:
                self._lose("the recorder does not run")
            finally:
                with self._lock:
                    self._waiting -= exchange.size

    def _await_pause(self, over: float) -> None:
        """Wait a moment while other requests pass, so that a burst of them has the processor."""
        while self.is_busy() and self._waiting < _MAX_WAITING_BYTES // 2 and time.monotonic() < over + _LATEST_SECONDS:
            if self._closing.wait(_LOOK_SECONDS):
                return

    def _write(self, pieces: Iterable[Bytes]) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            if time.monotonic() - self._started < _RESTART_SECONDS:
                raise BrokenPipeError
            process = self._launch()
        if process is None or process.stdin is None:
            raise BrokenPipeError
        target, left = process.stdin.fileno(), [memoryview(piece) for piece in pieces if piece]
        while left:
            written = os.writev(target, left[:_PIECES])
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]

    def _launch(self) -> subprocess.Popen[bytes] | None:
        self._started = time.monotonic()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                pipesize=1_048_576,
                bufsize=0,
            )
        except OSError as error:
            self._process = None
            self._tell(f"the recorder cannot be started: {error}")
        return self._process

    def close(self) -> None:
        """Let the recorder finish its work, and end it if that takes too long."""
        self._closing.set()
        self._queue.put(None)
        deadline = time.monotonic() + _END_SECONDS
        self._thread.join(_END_SECONDS)
        process = self._process
        if process is None:
            return
        if not self._thread.is_alive() and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._tell("the recorder did not end; its unwritten exchanges are lost")
            process.kill()
            process.wait()
