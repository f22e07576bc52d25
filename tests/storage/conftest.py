"""Processes that use a store from outside, killed at the end of every test."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
PATIENCE_SECONDS = 60.0


class ChildProcess:
    """A process that acts on a store as told."""

    def __init__(self, root: Path, wrapper: tuple[str, ...] = ()) -> None:
        command = [*wrapper, sys.executable, "-S", "-E", str(HERE / "child.py"), str(SOURCE), str(root)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._heard = b""
        self.ready = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, act: str, **how: object) -> None:
        """Send a command without waiting for its answer."""
        if not self.ready:
            assert self.hear() == {"ready": True}
            self.ready = True
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"act": act, **how}).encode() + b"\n")

    def hear(self, timeout_seconds: float = PATIENCE_SECONDS) -> dict[str, Any] | None:
        """Return the next thing the child says, or None where it has died."""
        deadline = time.monotonic() + timeout_seconds
        while b"\n" not in self._heard:
            if not self._hear_more(deadline - time.monotonic()):
                return None
        line, self._heard = self._heard.split(b"\n", 1)
        return json.loads(line)

    def hear_rest(self) -> list[dict[str, Any]]:
        """Return whatever a dead child still said."""
        return [said for said in iter(self.hear, None)]

    def _hear_more(self, seconds: float) -> bool:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], max(0.0, seconds))[0]:
            raise TimeoutError("the child says nothing")
        piece = os.read(self.process.stdout.fileno(), 65536)
        self._heard += piece
        return bool(piece)

    def ask(self, act: str, **how: object) -> dict[str, Any]:
        """Send a command and return the answer, or an empty one where the child has died."""
        self.tell(act, **how)
        return self.hear() or {}

    def do(self, act: str, **how: object) -> Any:
        """Send a command that must succeed and return what it gave."""
        answer = self.ask(act, **how)
        assert "ok" in answer, answer
        return answer["ok"]

    def kill(self) -> None:
        """Kill the child at once and wait until it is gone."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


StartChild = Callable[..., ChildProcess]


@pytest.fixture
def start_child() -> Iterator[StartChild]:
    """Start child processes; none is left behind."""
    children: list[ChildProcess] = []

    def start(root: Path, wrapper: tuple[str, ...] = ()) -> ChildProcess:
        children.append(ChildProcess(root, wrapper))
        return children[-1]

    yield start
    for child in children:
        child.close()
