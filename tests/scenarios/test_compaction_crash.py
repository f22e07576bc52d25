"""Kill -9 and failing disks during notes and compaction: nothing acknowledged is lost, and work continues."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from reverie import Session, load_settings
from reverie.conversation.decisions import Compacted, NotesUpdated, decision_of
from reverie.conversation.entries import DECISION
from reverie.conversation.log import parse_log
from reverie.conversation.view import View
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.request import build_request
from reverie.conversation.wire.validate import problems
from reverie.runtime.places.projects import log_key, project_slug
from reverie.settings import Switches
from reverie.storage.files import FileStorage
from reverie.values import replace

HERE = Path(__file__).resolve().parent
MODEL = "claude-sonnet-4-5"
PATIENCE_SECONDS = 60.0
LIVES_A_LOG = 5
MOMENTS = ("NotesUpdated", "Compacted", "meta", "compacting", "done", "CompactionUndone", "CallRecorded", "anything")
WRITE_CLASS = (
    *("openat", "openat2", "mkdirat", "write", "pwrite64", "ftruncate", "fchmod"),
    *("fsync", "fdatasync", "rename", "renameat", "renameat2"),
)
DURABLE = {"write", "fdatasync"}
QUICK_CALLS = 2


class Child:
    """A process that keeps a session."""

    def __init__(self, home: Path, how: str, number: int) -> None:
        home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(HERE / "compacting_child.py"), how, str(number)]
        environment = {**os.environ, "REVERIE_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        self._heard = b""

    def hear(self) -> dict[str, Any] | None:
        """Return the next thing it says, or None where it has died."""
        assert self.process.stdout is not None
        while b"\n" not in self._heard:
            if not select.select([self.process.stdout], [], [], PATIENCE_SECONDS)[0]:
                raise TimeoutError("the child says nothing")
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                return None
            self._heard += piece
        line, self._heard = self._heard.split(b"\n", 1)
        return json.loads(line)

    def ask(self, word: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Let it do one thing; return how it went, and what it said on the way."""
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        said: list[dict[str, Any]] = []
        while (one := self.hear()) is not None:
            if "ok" in one or "error" in one:
                return one, said
            said.append(one)
        return {}, said

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


StartChild = Callable[[Path, str, int], Child]


@pytest.fixture
def start_child() -> Iterator[StartChild]:
    """Start children; none is left behind."""
    children: list[Child] = []

    def start(home: Path, how: str, number: int) -> Child:
        children.append(Child(home, how, number))
        return children[-1]

    yield start
    for child in children:
        child.close()


def place(home: Path) -> str:
    """Return the key of the session's log."""
    return log_key(project_slug(home), "s")


def log_of(home: Path) -> bytes:
    path = home / place(home)
    return path.read_bytes() if path.exists() else b""


def opened(home: Path, **more: Any) -> Session:
    """Open the session as the next process would."""
    switches = Switches(priced_trim=False, idle_trim=False)
    settings = replace(load_settings(), home=home, window_tokens=16_000, switches=switches)
    return Session.open("s", cwd=home, settings=settings, **more)


def losses(data: bytes, acknowledged: set[str]) -> list[str]:
    """Name what a log does not hold of what was said to be safe, and what it holds twice."""
    found = [entry.uuid for entry in parse_log(data).entries]
    return [f"lost {uuid}" for uuid in sorted(acknowledged - set(found))] + [
        f"{uuid} twice" for uuid, times in Counter(found).items() if times > 1
    ]


async def goes_on(home: Path) -> None:
    """Open the log as the next process would: the request is valid, and notes and compaction work again."""
    async with opened(home) as session:
        if session.view.length:
            assert problems(build_request(session.view)) == []
            await session.parts.notes.update(manual=True)
            file = home / place(home).removesuffix(".jsonl") / "session-memory" / "summary.md"
            assert file.read_text("utf-8") == await session.parts.notes.document()
        else:
            await session.say("Begin.")
        request = await session.prepare(model=MODEL, max_tokens=100)
        assert problems(request) == []
    authors = [one.by for one in decisions(log_of(home)) if isinstance(one, NotesUpdated)]
    assert "person" not in authors, "a file that was left behind is taken for a person's edit"


def decisions(data: bytes) -> list[Any]:
    return [decision_of(entry.body) for entry in parse_log(data).entries if entry.kind == DECISION]


def live_and_die(start: StartChild, home: Path, number: int, draw: Random, acknowledged: set[str]) -> str:
    """Let one process work and kill it at a moment of chance, most often within a step of notes or compaction."""
    child = start(home, "live", number)
    moment, passes = draw.choice(MOMENTS), draw.randrange(1, 3)
    for _ in range(150):
        said = child.hear()
        assert said is not None, "the child died by itself"
        if "safe" in said:
            acknowledged.add(said["safe"])
        passes -= moment in ("anything", said.get("what"), said.get("phase"))
        if passes <= 0:
            break
    threading.Event().wait(draw.random() * draw.choice((0.0005, 0.003, 0.02)))
    child.kill()
    acknowledged |= {said["safe"] for said in iter(child.hear, None) if "safe" in said}
    child.close()
    return moment


@pytest.mark.requirement("K3", "L3.3", "L4.14")
def test_killed_at_any_moment_of_notes_and_compaction_the_log_resumes(
    start_child: StartChild, tmp_path: Path, seed: int, torture: bool
) -> None:
    draw = Random(seed)
    rounds = 200 if torture else 6
    total, torn = 0, 0
    seen: Counter[str] = Counter()
    acknowledged: set[str] = set()
    for number in range(rounds):
        home = tmp_path / f"home{number // LIVES_A_LOG}"
        if number % LIVES_A_LOG == 0:
            acknowledged = set[str]()
        seen[live_and_die(start_child, home, seed + number, draw, acknowledged)] += 1
        data = log_of(home)
        loaded = parse_log(data)
        torn += bool(loaded.torn) + len(loaded.damage)
        assert losses(data, acknowledged) == [], f"round {number}"
        assert problems(build_request(View().fold_all(loaded.entries))) == [] or not loaded.entries
        anyio.run(goes_on, home)
        total += len(acknowledged)
        if number % LIVES_A_LOG == LIVES_A_LOG - 1 or number == rounds - 1:
            made = Counter(type(one).__name__ for one in decisions(log_of(home)))
            assert made["NotesUpdated"] > 0
            seen.update({name: made[name] for name in ("Compacted", "CompactionUndone")})
    print(f"{rounds} kills, {total} acknowledged entries looked for, {torn} torn lines; {dict(seen)}")
    assert seen["Compacted"] >= rounds // 4


def test_a_log_that_lost_an_acknowledged_line_would_be_caught(
    start_child: StartChild, tmp_path: Path, seed: int
) -> None:
    """The known-bad twin of the test above."""
    acknowledged: set[str] = set()
    live_and_die(start_child, tmp_path, seed, Random(seed), acknowledged)
    lines = log_of(tmp_path).splitlines(keepends=True)
    assert losses(b"".join(lines), acknowledged) == []
    assert losses(b"".join(lines[:3] + lines[4:]), acknowledged) != []


@pytest.mark.requirement("K3", "L4.14")
def test_a_boundary_whose_line_was_cut_anywhere_is_ignored(tmp_path: Path, torture: bool) -> None:
    """A summary stands in the line of its boundary; a line that is not whole changes nothing that is shown."""

    async def fill() -> list[bytes]:
        async with opened(tmp_path) as session:
            await session.say("Write them all down.")
            for n in range(12):
                await session.prepare(model=MODEL, max_tokens=100)
                use = {"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"file_path": f"p/{n}"}}
                await session.observe({"id": f"m{n}", "role": "assistant", "model": MODEL, "content": [use]})
                await session.result(f"t{n}", f"src/pier_{n}.py " * 60)
            await session.prepare(model=MODEL, max_tokens=100)
            before = canonical(build_request(session.view))
            await session.compact()
            assert canonical(build_request(session.view)) != before
            return before

    async def shown() -> list[bytes]:
        async with opened(tmp_path, mode="read") as session:
            return canonical(build_request(session.view))

    before = anyio.run(fill)
    path = tmp_path / place(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"decision":"compacted"' in line)
    head, boundary = b"".join(lines[:at]), lines[at]
    places = {1, 2, len(boundary) // 2, len(boundary) - 3, *range(3, len(boundary) - 2, 40 if torture else 400)}
    for cut in sorted(places):
        path.write_bytes(head + boundary[:cut])
        assert anyio.run(shown) == before, f"cut after {cut} bytes"
    body = json.loads(boundary)
    body["body"]["summary"] = " "
    path.write_bytes(head + json.dumps(body).encode() + b"\n")
    assert anyio.run(shown) == before, "a boundary without its summary"
    path.write_bytes(head + boundary)
    assert anyio.run(shown) != before
    path.write_bytes(head + boundary[: len(boundary) // 2])
    anyio.run(goes_on, tmp_path)
    made = [one for one in decisions(path.read_bytes()) if isinstance(one, Compacted)]
    assert made == [], "a torn boundary came to life"


# -- failing calls


class Tracer:
    """A strace attached to a child, which makes the call it is told to fail."""

    def __init__(self, pid: int, folder: Path, inject: str = "") -> None:
        self.output = folder / f"trace-{pid}"
        calls = ",".join(f"?{call}" for call in WRITE_CLASS)
        command = ["strace", "-f", "-p", str(pid), "-o", str(self.output), "-e", f"trace={calls}"]
        self.process = subprocess.Popen(
            [*command, *(["-e", f"inject={inject}"] if inject else [])], stderr=subprocess.PIPE
        )
        assert self.process.stderr is not None
        said = self.process.stderr.readline().decode()
        if "attached" not in said:
            self.stop()
            pytest.skip(f"strace cannot attach here: {said.strip()}")

    def stop(self) -> None:
        """Let go of the child and wait until that is done; a child that was killed must have been waited for."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise

    def points(self) -> list[tuple[str, int]]:
        """List the calls that were seen, each with its ordinal in its thread, which is how strace counts."""
        seen = Counter(re.findall(r"^(\d+)\s+(\w+)\(", self.output.read_text(errors="replace"), re.MULTILINE))
        return sorted({(name, n) for (_, name), many in seen.items() for n in range(1, many + 1)})

    def some(self, torture: bool, seed: int) -> list[tuple[str, int]]:
        """Return all points, or in a quick run one of each of a few calls, those that make data durable among them."""
        points = self.points()
        by_name: dict[str, list[tuple[str, int]]] = {}
        for one in points:
            by_name.setdefault(one[0], []).append(one)
        draw = Random(seed)
        others = draw.sample(sorted(by_name.keys() - DURABLE), k=min(QUICK_CALLS, len(by_name) - len(DURABLE)))
        return points if torture else [draw.choice(by_name[name]) for name in (*sorted(DURABLE), *others)]

    def injected(self) -> bool:
        return "(INJECTED)" in self.output.read_text(errors="replace")


@pytest.fixture
def run(start_child: StartChild, tmp_path: Path) -> Iterator[Callable[..., tuple[Any, ...]]]:
    """Do one act in a fresh child, on a fresh copy of a session that is ready for it, while a call fails."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    home, tracers = tmp_path / "home", list[Tracer]()
    first = start_child(home, "obey", 0)
    for _ in range(6):
        assert first.ask("turn")[0] == {"ok": True}
    first.close()
    shutil.move(home, tmp_path / "kept")

    def run(act: str, inject: str = "") -> tuple[Child, dict[str, Any], list[dict[str, Any]], Tracer, set[str]]:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(tmp_path / "kept", home)  # the same place: a session is found by its folder
        child = start_child(home, "obey", 1)
        answer, said = child.ask("turn")
        assert answer == {"ok": True}
        safe = {one["safe"] for one in said if "safe" in one}
        tracer = Tracer(child.process.pid, tmp_path, inject)
        tracers.append(tracer)
        answer, said = child.ask(act)
        if not answer:
            child.kill()
        tracer.stop()
        return child, answer, said, tracer, safe | {one["safe"] for one in said if "safe" in one}

    yield run
    for tracer in tracers:
        tracer.stop()


@pytest.mark.requirement("K2", "K3", "L3.3", "L4.14")
@pytest.mark.parametrize("act", ["notes", "compact"])
def test_an_error_at_every_call_is_typed_or_told_and_the_session_goes_on(
    run: Callable[..., Any], tmp_path: Path, act: str, torture: bool, seed: int
) -> None:
    home, begun = tmp_path / "home", time.monotonic()
    _, answer, _, tracer, _ = run(act)
    assert answer == {"ok": True}
    points = tracer.some(torture, seed)
    assert {"write", "fdatasync"} <= {name for name, _ in points}
    typed = told = 0
    for turn, (name, number) in enumerate(points):
        for error in ("ENOSPC", "EIO") if torture else (("ENOSPC", "EIO")[turn % 2],):
            for when in ("", "+") if torture else ("",):
                where = f"{name} {number}{when} {error}"
                child, answer, said, tracer, safe = run(act, f"{name}:error={error}:when={number}{when}")
                assert tracer.injected(), where
                assert "untyped" not in answer, f"{where}: {answer}"
                fell_back = [one for one in said if "fell_back" in one]
                typed, told = typed + ("error" in answer), told + bool(fell_back)
                assert losses(log_of(home), safe) == [], where
                for again in ("turn", act, "turn"):  # the same process goes on
                    done, more = child.ask(again)
                    refused = done.get("error") == "CompactionError" and "ok" in answer
                    assert done == {"ok": True} or refused, f"{where}, then {again}: {done}"
                    safe |= {one["safe"] for one in more if "safe" in one}
                child.close()
                assert losses(log_of(home), safe) == [], where
                anyio.run(goes_on, home)  # and so does the next one
    print(f"{act}: {len(points)} calls, {typed} typed errors, {told} fallbacks, {time.monotonic() - begun:.0f} s")
    assert typed + told > 0


@pytest.mark.requirement("K3", "L3.3", "L4.14")
@pytest.mark.parametrize("act", ["notes", "compact"])
def test_killed_at_every_call_of_one_step_the_next_process_goes_on(
    run: Callable[..., Any], tmp_path: Path, act: str, torture: bool, seed: int
) -> None:
    home = tmp_path / "home"
    points = run(act)[3].some(torture, seed)
    for name, number in points:
        child, answer, _, _, safe = run(act, f"{name}:signal=KILL:when={number}")
        assert answer == {}, f"{name} {number} did not kill"
        child.close()
        assert losses(log_of(home), safe) == [], f"{name} {number}"
        anyio.run(goes_on, home)
    storage = FileStorage(home)
    assert storage.holder(place(home)) is None
    storage.close()
