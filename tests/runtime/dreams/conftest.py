"""Processes that save memories during a dream, and a tracer that makes the dreamer's calls fail."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[2] / "src"
SITE = Path(msgspec.__file__).resolve().parents[1]
PATIENCE_SECONDS = 180.0
WRITE_CLASS = (
    *("openat", "openat2", "mkdirat", "mkdir", "write", "pwrite64", "ftruncate", "fchmod", "fsync", "fdatasync"),
    *("flock", "rename", "renameat", "renameat2", "unlinkat", "unlink", "utimensat"),
)


class Speaker:
    """A process that says JSON lines."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-S", "-E", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._heard = b""

    def tell(self, **what: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"\n" not in self._heard:
            if not select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the child says nothing")
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                return {}
            self._heard += piece
        line, self._heard = self._heard.split(b"\n", 1)
        return json.loads(line)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Traced:
    """How a dream under the tracer went."""

    def __init__(self, answer: dict[str, Any], killed: bool, trace: str) -> None:
        self.answer = answer
        self.killed = killed
        self.calls = Counter[tuple[str, str]](re.findall(r"^(\d+)\s+(\w+)\(", trace, re.MULTILINE))
        self.injected = "(INJECTED)" in trace

    def points(self) -> list[tuple[str, int]]:
        """Return every call that can be made to fail: the tracer counts them by thread."""
        most: dict[str, int] = {}
        for (_, call), many in self.calls.items():
            most[call] = max(many, most.get(call, 0))
        return [(call, at) for call, many in most.items() for at in range(1, many + 1)]


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speaker]:
    warm = tmp_path_factory.mktemp("warm")
    (warm / "home").mkdir()
    speaker = Speaker(str(HERE / "zygote.py"), str(SOURCE), str(SITE), str(warm))
    assert speaker.hear() == {"ready": True}
    yield speaker
    speaker.close()


@pytest.fixture
def traced(zygote: Speaker, tmp_path: Path) -> Callable[..., Traced]:
    """Return a function that dreams once in a process of its own while calls fail as told."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")

    def trace(root: Path, home: Path, by: str, inject: str = "") -> Traced:
        zygote.tell(root=str(root), home=str(home), by=by)
        pid = zygote.hear()["pid"]
        output = tmp_path / "trace"
        calls = ",".join(f"?{call}" for call in WRITE_CLASS)
        command = ["strace", "-f", "-p", str(pid), "-o", str(output), "-e", f"trace={calls}"]
        tracer = subprocess.Popen([*command, *(["-e", f"inject={inject}"] if inject else [])], stderr=subprocess.PIPE)
        assert tracer.stderr is not None
        said = tracer.stderr.readline().decode()
        attached = "attached" in said
        os.kill(pid, signal.SIGUSR1)  # the child goes on
        answer = zygote.hear()
        ended = answer if "ended" in answer else zygote.hear()
        if tracer.poll() is None:
            tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=PATIENCE_SECONDS)
        if not attached:
            pytest.skip(f"strace cannot attach here: {said.strip()}")
        answer = {} if "ended" in answer else answer
        return Traced(answer, ended["ended"] == signal.SIGKILL, output.read_text(errors="replace"))

    return trace


@pytest.fixture
def start_saver() -> Iterator[Callable[..., Speaker]]:
    """Return a function that starts a process that saves when it is told to; none is left behind."""
    savers: list[Speaker] = []

    def start(root: Path, name: str) -> Speaker:
        savers.append(Speaker(str(HERE / "saver.py"), str(SOURCE), str(SITE), str(root), name))
        assert savers[-1].hear() == {"ready": True}
        return savers[-1]

    yield start
    for saver in savers:
        saver.close()
