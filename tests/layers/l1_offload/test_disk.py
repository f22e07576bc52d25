"""Concurrent writers and disk failures: one file, or the full result and an event."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.decisions import ResultOffloaded
from reverie.conversation.wire.request import build_request
from reverie.conversation.wire.validate import problems
from reverie.errors import StorageError
from reverie.layers.l1_offload import OffloadPolicy
from reverie.ports import Document
from reverie.storage.in_memory import InMemoryStorage

MakeDesk = Callable[..., Any]
PATIENCE_SECONDS = 90
FOLDER = "projects/app/s"

CHILD = """
import sys, json, resource
from reverie.conversation.view import View
from reverie.layers.l1_offload import ResultStore, OffloadPolicy, offload_result
from reverie.storage.files import FileStorage

root, called, letter, size, limit = sys.argv[1:]
storage = FileStorage(root)
if int(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
output = (letter.encode() + b"\\xff line\\n") * (int(size) // 7)
print("ready", flush=True)
sys.stdin.readline()
store = ResultStore(storage, "projects/app/s")
made = offload_result(store, "Bash", called, output, OffloadPolicy(), View())
later = called + "-later"
small = offload_result(store, "Bash", later, "small\\n" * 6_000, OffloadPolicy(), View())
print(json.dumps({
    "path": made.before[0].path if made.before else None,
    "whole": made.content == output.decode("utf-8", "replace"),
    "fallback": made.fallback,
    "later": small.before[0].path if small.before else None,
}))
"""


def start(root: Path, called: str, letter: str, size: int, *, limit: int = 0, wrapper: tuple[str, ...] = ()) -> Any:
    command = [*wrapper, sys.executable, "-c", CHILD, str(root), called, letter, str(size), str(limit)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answers(children: list[Any]) -> list[dict[str, Any]]:
    """Let children go at the same moment and return what each says."""
    try:
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
        return [json.loads(child.communicate(timeout=PATIENCE_SECONDS)[0]) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()


def content(letter: str, size: int) -> bytes:
    return (letter.encode() + b"\xff line\n") * (size // 7)


@pytest.mark.requirement("L1.3", "L1.10")
@pytest.mark.slow
def test_sixteen_processes_store_the_same_content_in_one_file(tmp_path: Path) -> None:
    size = 1_000_000
    said = answers([start(tmp_path, "toolu_1", "a", size) for _ in range(16)])
    assert {one["fallback"] for one in said} == {None}
    assert {one["path"] for one in said} == {f"{FOLDER}/tool-results/toolu_1.txt"}
    stored = sorted(path.name for path in (tmp_path / FOLDER / "tool-results").iterdir())
    assert stored == ["toolu_1-later.txt", "toolu_1.txt"]
    assert (tmp_path / FOLDER / "tool-results" / "toolu_1.txt").read_bytes() == content("a", size)


@pytest.mark.requirement("L1.3")
def test_processes_with_other_content_under_the_same_name_keep_both(tmp_path: Path) -> None:
    size = 200_000
    said = answers([start(tmp_path, "toolu_1", letter, size) for letter in "ababab"])
    assert {one["fallback"] for one in said} == {None}
    for letter, one in zip("ababab", said, strict=True):
        assert (tmp_path / one["path"]).read_bytes() == content(letter, size)
    assert len({one["path"] for one in said}) == 2


def check_full_disk(said: dict[str, Any], root: Path) -> None:
    assert said["path"] is None
    assert said["whole"] is True
    assert "passes whole" in said["fallback"]
    assert str(root / FOLDER / "tool-results" / "toolu_1.txt") in said["fallback"]
    assert said["later"] == f"{FOLDER}/tool-results/toolu_1-later.txt"


@pytest.mark.requirement("L1.9")
def test_a_file_that_may_not_grow_that_far_lets_the_result_pass_whole(tmp_path: Path) -> None:
    (said,) = answers([start(tmp_path, "toolu_1", "a", 4_000_000, limit=1_000_000)])
    check_full_disk(said, tmp_path)
    assert [path.name for path in (tmp_path / FOLDER / "tool-results").iterdir()] == ["toolu_1-later.txt"]


@pytest.mark.requirement("L1.9")
def test_a_disk_that_is_full_in_the_middle_lets_the_result_pass_whole(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'
    wrapper = ("unshare", "-rm", "sh", "-c", mount, str(tmp_path))
    if shutil.which("unshare") is None or subprocess.run([*wrapper, "true"], capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    (said,) = answers([start(tmp_path, "toolu_1", "a", 4_000_000, wrapper=wrapper)])
    check_full_disk(said, tmp_path)
    assert "No space left" in said["fallback"]


class Failing(InMemoryStorage):
    """A store whose Nth call fails: that one, or all from then on."""

    def __init__(self, at: int, *, on: bool) -> None:
        super().__init__()
        self.at, self.on = at, on
        self.calls = 0

    def check(self, key: str) -> None:
        self.calls += 1
        if self.calls == self.at or (self.on and self.calls > self.at):
            raise StorageError(f"cannot write {key}: No space left on device (ENOSPC)", path=key)

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        self.check(key)
        return super().write(key, data, expect=expect, create=create)

    def read(self, key: str) -> Document | None:
        self.check(key)
        return super().read(key)


SMALL = OffloadPolicy(
    default_limit_chars=600, declared_chars={}, ceiling_chars={}, preview_bytes=80, aggregate_chars=1_500
)
RESULTS = {f"t{at}": f"{at % 4}" * (590 if at % 3 else 800) for at in range(9)}


def through(make_desk: MakeDesk, storage: Any) -> Any:
    """Take results in and make the message ready, over a store that fails."""
    desk = make_desk(storage, SMALL)
    desk.ask(*RESULTS)
    for called, output in RESULTS.items():
        desk.give(called, output)
    desk.send()
    return desk


def unfaithful(desk: Any) -> list[str]:
    """Return what a desk shows neither whole nor as a preview of what is stored, and what it kept quiet."""
    desk.storage.at, desk.storage.on = 0, False
    wrong: list[str] = []
    for called, output in RESULTS.items():
        whole = desk.shown(called) == output
        if not whole and desk.back().read(called) != output.encode():
            wrong.append(called)
        decision = desk.view.offloaded(called)
        if isinstance(decision, ResultOffloaded) and hashlib.sha256(output.encode()).hexdigest() != decision.sha256:
            wrong.append(called)
        if whole and len(output) > 600 and not any(called in said for said in desk.fallbacks):
            wrong.append(f"{called}: nobody was told")
    return wrong


@pytest.mark.requirement("L1.9")
@pytest.mark.parametrize("on", [False, True], ids=["once", "from then on"])
def test_whichever_call_fails_the_result_passes_whole_and_somebody_is_told(make_desk: MakeDesk, on: bool) -> None:
    calls = 0
    for at in range(1, 40):
        desk = through(make_desk, Failing(at, on=on))
        failed = desk.storage.calls >= at
        assert bool(desk.fallbacks) == failed
        assert problems(build_request(desk.view)) == []
        assert unfaithful(desk) == []
        again = desk.send()
        assert (again.before, again.fallback) == ((), None)
        if not failed:
            break
        calls += 1
    assert 5 <= calls < 39


def test_a_desk_that_keeps_quiet_about_a_full_disk_is_caught(make_desk: MakeDesk) -> None:
    desk = through(make_desk, Failing(1, on=True))
    desk.fallbacks.clear()
    assert unfaithful(desk) != []


@pytest.mark.requirement("L1.5", "L1.9")
def test_when_the_largest_cannot_be_stored_the_next_is_tried(make_desk: MakeDesk) -> None:
    desk = make_desk(Failing(1, on=False), SMALL)
    desk.ask("a", "b", "c")
    for called, length in (("a", 599), ("b", 598), ("c", 597)):
        desk.give(called, called * length)
    made = desk.send()
    assert desk.shown("a") == "a" * 599
    assert [one.tool_use_id for one in made.before if isinstance(one, ResultOffloaded)] == ["b"]
    assert desk.view.is_kept("a")
    assert desk.view.is_kept("c")
    assert made.fallback is not None
    assert "a passes whole" in made.fallback
