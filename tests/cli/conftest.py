"""Fixtures for commands: run a command in this process, and recordings to run it on."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log_script import Script, call, text
from reverie import FileStorage, Library
from reverie.cli.main import run
from reverie.conversation.decisions import Cause, Compacted
from reverie.runtime.places.projects import log_key, project_slug

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sessions" / "sample.jsonl"

Answer = tuple[int, str, str]
Reverie = Callable[..., Answer]
Asked = Callable[..., Any]


@pytest.fixture
def reverie(capsysbinary: pytest.CaptureFixture[bytes]) -> Reverie:
    """Return a function that runs a command and gives its exit code, stdout and stderr."""

    def call_it(*arguments: object) -> Answer:
        code = run([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return code, out.decode(errors="surrogateescape"), err.decode()

    return call_it


@pytest.fixture
def asked(reverie: Reverie) -> Asked:
    """Return a function that runs a command with ``--json`` and gives what it says."""

    def ask(*arguments: object, code: int = 0) -> Any:
        got, out, err = reverie(*arguments, "--json")
        assert got == code, err
        return json.loads(out)

    return ask


@pytest.fixture
def sample() -> Path:
    """Return the sample session of the repository."""
    return SAMPLE


@pytest.fixture
def script() -> Script:
    """Return a log with a call, a result, a decision and text that would drive a terminal."""
    made = Script()
    made.add("meta", {"schema": 1, "cwd": "/repo", "title": "Mend the \x1b[31mfence"})
    made.user("Please mend the fence \x1b]0;owned\x07\u202e")
    made.reply(text("Looking."), call("t1", "Read", file_path="/repo/fence.py", note="x" * 500))
    made.result("t1", "\n".join(f"line {number}\x1b[2J" for number in range(40)))
    last = made.reply(text("The fence stands."))
    made.decide(
        Compacted(
            Cause("compact", "window is full", frees=4_321, moves_prefix=True),
            "auto",
            "full",
            "They mended a fence.",
            5_000,
            last,
            None,
        )
    )
    made.user("And the gate?")
    return made


@pytest.fixture
def stocked(home: Path, script: Script, tmp_path: Path) -> str:
    """Put the script into the library of this test's home and return the session's name."""
    storage = FileStorage(home)
    Library(storage).store(log_key(project_slug(tmp_path), "fence-1"), script.entries)
    storage.close()
    return "fence-1"


def on_a_screen(
    *arguments: str, columns: int = 80, typed: bytes = b"", interrupt_at: str = "", code: int = 0, **environ: str
) -> str:
    """Run the command on a terminal of this width, type something, and return what was on the screen.

    When it has shown ``interrupt_at``, it gets the signal of Ctrl-C, and must end within a minute.
    """
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [str(Path(sys.executable).with_name("reverie")), *arguments]
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **environ}
    environment.pop("COLUMNS", None)
    with subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment) as process:
        os.close(child)
        os.write(parent, typed)
        shown = bytearray()
        bound = threading.Timer(60, process.kill)
        try:
            while piece := os.read(parent, 65_536):
                shown += piece
                if interrupt_at and interrupt_at.encode() in shown:
                    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
                        pass  # a signal just before Python waits for a line is seen only after the line
                    process.send_signal(signal.SIGINT)
                    interrupt_at = ""
                    bound.start()
        except OSError:
            pass
        assert process.wait(60) == code
        bound.cancel()
    os.close(parent)
    return shown.decode()
