"""Processes that act on a memory directory, a tracer that makes their calls fail, and fakes built at run time."""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import signal
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
SITE = Path(msgspec.__file__).resolve().parents[1]
PATIENCE_SECONDS = 180.0
WRITE_CLASS = (
    "openat",
    "openat2",
    "mkdirat",
    "mkdir",
    "write",
    "pwrite64",
    "ftruncate",
    "fchmod",
    "fsync",
    "fdatasync",
    "flock",
    "rename",
    "renameat",
    "renameat2",
    "unlinkat",
    "unlink",
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
    """How an act under the tracer went."""

    def __init__(self, answer: dict[str, Any], killed: bool, trace: str) -> None:
        self.answer = answer
        self.killed = killed
        self.calls = re.findall(r"^\d+\s+(\w+)\(", trace, re.MULTILINE)
        self.injected = "(INJECTED)" in trace


@pytest.fixture(scope="session")
def zygote() -> Iterator[Speaker]:
    speaker = Speaker(str(HERE / "zygote.py"), str(SOURCE), str(SITE))
    yield speaker
    speaker.close()


@pytest.fixture
def traced(zygote: Speaker, tmp_path: Path) -> Callable[..., Traced]:
    """Return a function that does one act in a process of its own while calls fail as told."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")

    def trace(root: Path, act: str, how: dict[str, Any], inject: str = "") -> Traced:
        zygote.tell(root=str(root), act=act, how=how)
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
def start_worker() -> Iterator[Callable[..., Speaker]]:
    """Return a function that starts a process of the crowd; none is left behind."""
    workers: list[Speaker] = []

    def start(*arguments: object) -> Speaker:
        workers.append(Speaker(str(HERE / "crowd.py"), str(SOURCE), str(SITE), *map(str, arguments)))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


@pytest.fixture
def fakes(seed: int) -> dict[str, str]:
    """Return fake secrets in the shapes of common services, made here so that none stands in the repository."""
    chance = random.Random(seed)
    alnum, upper = string.ascii_letters + string.digits, string.ascii_uppercase

    def draw(letters: str, count: int) -> str:
        made = "".join(chance.choice(letters) for _ in range(count - 1))
        return made + chance.choice("2345678")  # real ones hold a digit

    hexes, base = "0123456789abcdef", alnum + "-_"
    fenced = "-" * 5
    return {
        "aws id": "AK" + "IA" + draw(upper + "234567", 16),
        "aws secret": "aws_secret_access_key = " + draw(alnum + "/+", 40),
        "github": "gh" + "p_" + draw(alnum, 36),
        "github app": "gh" + "s_" + draw(alnum, 36),
        "github fine": "github" + "_pat_" + draw(alnum, 22) + "_" + draw(alnum, 59),
        "gitlab": "glp" + "at-" + draw(base, 20),
        "bitbucket": "AT" + "BB" + draw(alnum, 32),
        "atlassian": "ATATT" + "3" + draw(base, 180),
        "npm": "np" + "m_" + draw(alnum, 36),
        "pypi": "py" + "pi-AgEIcHlwaS5vcmc" + draw(base, 150),
        "rubygems": "ruby" + "gems_" + draw(hexes, 48),
        "docker": "dckr" + "_pat_" + draw(base, 27),
        "slack bot": "xo" + "xb-" + draw(string.digits, 12) + "-" + draw(string.digits, 12) + "-" + draw(alnum, 24),
        "slack hook": "https://hooks.sl" + f"ack.com/services/T{draw(upper, 8)}/B{draw(upper, 8)}/{draw(alnum, 24)}",
        "stripe": "sk_" + "live_" + draw(alnum, 24),
        "stripe restricted": "rk_" + "live_" + draw(alnum, 24),
        "google": "AI" + "za" + draw(base, 35),
        "google oauth": "GOC" + "SPX-" + draw(base, 28),
        "openai": "sk-" + "proj-" + draw(base, 120),
        "openai old": "sk-" + draw(alnum, 20) + "T3Blbk" + "FJ" + draw(alnum, 20),
        "anthropic": "sk-" + "ant-api03-" + draw(base, 93) + "AA",
        "hugging face": "h" + "f_" + draw(string.ascii_letters + "9", 34),
        "sendgrid": "S" + "G." + draw(base, 22) + "." + draw(base, 43),
        "mailgun": "ke" + "y-" + draw(hexes, 32),
        "mailchimp": draw(hexes, 32) + "-u" + "s12",
        "twilio": "S" + "K" + draw(hexes, 32),
        "square": "sq0" + "atp-" + draw(base, 22),
        "shopify": "shp" + "at_" + draw(hexes, 32),
        "digitalocean": "dop" + "_v1_" + draw(hexes, 64),
        "heroku": "heroku_api_key = " + "-".join(draw(hexes, size) for size in (8, 4, 4, 4, 12)),
        "databricks": "da" + "pi" + draw(hexes, 32),
        "linear": "lin" + "_api_" + draw(alnum, 40),
        "notion": "nt" + "n_" + draw(alnum, 46),
        "figma": "fi" + "gd_" + draw(base, 40),
        "telegram": draw(string.digits, 10) + ":A" + "A" + draw(base, 33),
        "discord": "M" + draw(alnum, 23) + "." + draw(alnum, 6) + "." + draw(alnum, 27),
        "azure storage": "Account" + "Key=" + draw(alnum + "+/", 86) + "==",
        "azure client": draw(alnum, 3) + "8Q" + "~" + draw(alnum, 34),
        "jwt": "ey" + "J" + draw(alnum, 30) + ".ey" + "J" + draw(alnum, 60) + "." + draw(base, 43),
        "private key": f"{fenced}BEGIN RSA PRIV" + f"ATE KEY{fenced}\n{draw(alnum, 64)}\n{draw(alnum, 64)}",
        "vault": "hv" + "s." + draw(base, 95),
        "terraform": draw(alnum, 14) + ".atlas" + "v1." + draw(base, 67),
        "grafana": "gl" + "sa_" + draw(alnum, 32) + "_" + draw(hexes, 8),
        "new relic": "NR" + "AK-" + draw(upper + "234567", 27),
        "sentry": "sntr" + "ys_" + draw(alnum, 100),
        "postman": "PM" + "AK-" + draw(hexes, 24) + "-" + draw(hexes, 34),
        "url password": "postgres://admin:" + draw(alnum, 18) + "@db.internal/app",
        "password": "password = '" + draw(alnum, 10) + "!Zq7'",
    }  # fmt: skip
