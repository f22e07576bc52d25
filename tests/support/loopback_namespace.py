"""Run programs in a network namespace that has only loopback, beside a scripted model.

``LoopbackNamespace`` starts this file by ``unshare``; the file then takes orders as lines of JSON from stdin.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, NamedTuple

_ESCAPES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
_NUDGE_SECONDS = 3.0
# With a namespace of processes, so that no daemon that a program starts outlives the block.
_UNSHARE = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
_UP, _READ, _SET = 1, 0x8913, 0x8914  # IFF_UP, SIOCGIFFLAGS, SIOCSIFFLAGS


class Outcome(NamedTuple):
    """The end of a program: its exit code (None after a timeout), its output and the seconds it took."""

    code: int | None
    out: str
    err: str
    seconds: float


class LoopbackNamespace:
    """A namespace with loopback only and a scripted model in it, as long as its ``with`` block."""

    def __init__(self) -> None:
        words = [*_UNSHARE, sys.executable, "-P", __file__]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = str(self._answer()["url"])

    @staticmethod
    def missing() -> str:
        """Return why no namespace can be made here; an empty string if one can."""
        if not sys.platform.startswith("linux") or shutil.which("unshare") is None:
            return "a network namespace needs Linux and the program unshare"
        tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True)
        return f"unshare: {tried.stderr.strip()}" if tried.returncode else ""

    def __enter__(self) -> LoopbackNamespace:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def run(
        self, words: list[str], *, cwd: Path, env: dict[str, str], stdin: str = "", seconds: float = 120
    ) -> Outcome:
        """Run a program to its end."""
        return Outcome(**self._order(op="run", words=words, cwd=str(cwd), env=env, stdin=stdin, seconds=seconds))

    def talk(
        self, words: list[str], steps: list[tuple[str, str]], *, cwd: Path, env: dict[str, str], seconds: float = 90
    ) -> Outcome:
        """Run a program in a terminal: wait for each pattern in its output, then type the keys beside it.

        The program is ended after the last step. The code is None if a pattern did not come in time.
        """
        return Outcome(**self._order(op="talk", words=words, steps=steps, cwd=str(cwd), env=env, seconds=seconds))

    def requests(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the model requests since the last call, as path and body."""
        return [(path, body) for path, body in self._order(op="requests")["requests"]]

    def _order(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


# -- inside the namespace


def set_loopback(*, is_up: bool) -> None:
    with socket.socket() as sock:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, _READ, asked))[1]
        fcntl.ioctl(sock, _SET, struct.pack("16sh14x", b"lo", flags | _UP if is_up else flags & ~_UP))


def _run(order: dict[str, Any]) -> dict[str, Any]:
    begun = time.monotonic()
    process = subprocess.Popen(
        order["words"],
        cwd=order["cwd"],
        env=order["env"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    code: int | None
    try:
        out, err = process.communicate(order["stdin"].encode(), order["seconds"])
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        code = None
    text = {"out": out.decode("utf-8", "replace"), "err": err.decode("utf-8", "replace")}
    return {"code": code, **text, "seconds": time.monotonic() - begun}


def _talk(order: dict[str, Any]) -> dict[str, Any]:
    begun = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(order["cwd"])
        os.execvpe(order["words"][0], order["words"], {"TERM": "xterm-256color", **order["env"]})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    shown, seen, code = b"", 0, None
    try:
        for pattern, keys in order["steps"]:
            while not (found := re.search(pattern.encode(), _ESCAPES.sub(b" ", shown[seen:]))):
                left = begun + order["seconds"] - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                if not select.select([terminal], [], [], min(left, _NUDGE_SECONDS))[0]:
                    os.write(terminal, b"\r")  # a program that was busy when the keys came took only some of them
                    continue
                piece = os.read(terminal, 65_536)
                shown += piece
                for asked, told in ((b"\x1b[6n", b"\x1b[1;1R"), (b"\x1b[c", b"\x1b[?62c")):
                    if asked in piece:
                        os.write(terminal, told)
            del found
            seen = len(shown)
            for key in keys.split("\0"):  # a pause between keys that a program must not take for a paste
                os.write(terminal, key.encode())
                time.sleep(0.3)
        code = 0
    except (OSError, TimeoutError):
        pass
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                break
            time.sleep(0.5)
        os.close(terminal)
        os.waitpid(pid, 0)
    text = _ESCAPES.sub(b" ", shown).decode("utf-8", "replace")
    return {"code": code, "out": text, "err": "", "seconds": time.monotonic() - begun}


def _serve() -> None:
    from scripted_model import ScriptedModel

    set_loopback(is_up=True)
    model = ScriptedModel()
    print(json.dumps({"url": model.url}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        match order["op"]:
            case "run":
                answer = _run(order)
            case "talk":
                answer = _talk(order)
            case _:
                answer, model.requests = {"requests": model.requests}, []
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    _serve()
