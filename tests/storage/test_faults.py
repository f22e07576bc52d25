"""Make the Nth system call fail, for every N: a typed error that names the path, nothing lost, the next call works."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.log import parse_log
from reverie.storage import log_files
from reverie.storage.files import FileStorage

PATIENCE_SECONDS = 60.0
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
ERRORS = ("ENOSPC", "EIO", "EROFS")

# What is done while calls fail; before each, the store holds one acknowledged entry and one document.
ACTS: dict[str, dict[str, Any]] = {
    "append to a new log": {"act": "append", "key": "new/deep/log", "uuid": "tried"},
    "append to a log": {"act": "append", "key": "log", "uuid": "tried"},
    "write a new document": {"act": "write", "key": "new/deep/document", "text": "tried"},
    "replace a document": {"act": "write", "key": "document", "text": "tried"},
    "delete": {"act": "delete", "key": "scrap"},
    "lease": {"act": "lease", "name": "session"},
}


class Tracer:
    """A strace attached to a child, which makes the calls it is told to fail."""

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
        """Let go of the child and wait until that is done."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=PATIENCE_SECONDS)

    def calls(self) -> list[str]:
        """Name the calls that were seen, in order."""
        return re.findall(r"^\d+\s+(\w+)\(", self.output.read_text(errors="replace"), re.MULTILINE)

    def injected(self) -> bool:
        return "(INJECTED)" in self.output.read_text(errors="replace")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    storage = FileStorage(root)
    storage.append("log", _line("before"))
    storage.write("document", b"before")
    storage.write("scrap", b"before")
    storage.lease("session").release()
    storage.close()
    return root


@pytest.fixture
def run(
    start_child: Callable[..., Any], tmp_path: Path, store: Path
) -> Iterator[Callable[..., tuple[Any, dict[str, Any], Tracer]]]:
    """Do an act in a fresh child on a fresh copy of the store while calls fail."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    tracers: list[Tracer] = []

    def run(
        act: dict[str, Any],
        inject: str = "",
        warm: bool = False,
        durability: str = "always",
        kind: str = "FileStorage",
    ) -> tuple[Any, dict[str, Any], Tracer]:
        root = tmp_path / "copy"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(store, root)
        child = start_child(root)
        child.do("allow_tracing")
        child.do("use", kind=kind, durability=durability)
        child.do("load", key="log")
        if warm:
            child.do("append", key="log", uuid="warm")
        tracer = Tracer(child.pid, tmp_path, inject)
        tracers.append(tracer)
        return child, child.ask(**act), tracer

    yield run
    for tracer in tracers:
        tracer.stop()


def _line(uuid: str) -> bytes:
    return json.dumps({"uuid": uuid, "parent": None, "time": "", "session": "s", "kind": "user", "body": {}}).encode()


def _points(run: Callable[..., Any], act: dict[str, Any], warm: bool = False) -> list[tuple[str, int]]:
    """List every write-class call of an act, as name and ordinal."""
    child, answer, tracer = run(act, warm=warm)
    assert "ok" in answer, answer
    tracer.stop()
    child.close()
    return [(name, number) for name, many in Counter(tracer.calls()).items() for number in range(1, many + 1)]


def _uuids(root: Path, key: str) -> list[str]:
    storage = FileStorage(root)
    loaded = parse_log(storage.load(key) or b"")
    storage.close()
    return [entry.uuid for entry in loaded.entries]


def _check_nothing_lost(root: Path, act: dict[str, Any], acknowledged: bool) -> None:
    """Look at the store as the next process would find it."""
    storage = FileStorage(root)
    assert _uuids(root, "log")[0] == "before"
    document = storage.load("document")
    assert document in ((b"tried",) if acknowledged and act.get("key") == "document" else (b"before", b"tried"))
    if act["act"] == "append" and acknowledged:
        assert "tried" in _uuids(root, act["key"])
    if act["act"] == "write" and act["key"] != "document":
        assert storage.load(act["key"]) in ((b"tried",) if acknowledged else (None, b"tried"))
    assert storage.load("scrap") in ((None,) if acknowledged and act["act"] == "delete" else (None, b"before"))
    storage.close()


@pytest.mark.requirement("K2", "K3")
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.slow
def test_killed_at_every_write_class_call_nothing_is_lost(run: Callable[..., Any], tmp_path: Path, act: str) -> None:
    points = _points(run, ACTS[act])
    assert points
    for name, number in points:
        child, answer, tracer = run(ACTS[act], f"{name}:signal=KILL:when={number}")
        assert answer == {}, f"{name} {number} did not kill"
        child.close()
        tracer.stop()
        root = tmp_path / "copy"
        _check_nothing_lost(root, ACTS[act], acknowledged=False)
        storage = FileStorage(root)
        assert storage.holder("session") is None
        storage.append("log", _line("after"))
        assert _uuids(root, "log")[-1] == "after"
        storage.write("document", b"after")
        storage.lease("session").release()
        if ACTS[act]["act"] == "append":
            storage.append(ACTS[act]["key"], _line("again"))
            assert _uuids(root, ACTS[act]["key"])[-1] == "again"
        storage.close()
    print(f"{act}: killed at {len(points)} calls, 0 lost")


def _fail_at_every_call(
    run: Callable[..., Any], tmp_path: Path, act: dict[str, Any], when: str = "", warm: bool = False, each: bool = True
) -> int:
    """Fail each call of an act, with each error or with each in turn; return how many failures the act reported."""
    reported = injected = 0
    for turn, (name, number) in enumerate(_points(run, act, warm)):
        for error in ERRORS if each else ERRORS[turn % 3 :][:1]:
            child, answer, tracer = run(act, f"{name}:error={error}:when={number}{when}", warm)
            where = f"{name} {number}{when} {error}: {answer}"
            tracer.stop()
            assert tracer.injected(), where
            injected += 1
            assert "untyped" not in answer, where
            if "error" in answer:
                reported += 1
                assert answer["errno"] == getattr(errno, error), where
                assert answer["path"].startswith(str(tmp_path / "copy")), where
                assert answer["path"] in answer["message"], where
                assert error in answer["message"], where
            _check_nothing_lost(tmp_path / "copy", act, acknowledged="ok" in answer)
            _check_the_next_call_works(child, tmp_path / "copy", act, where, failed="error" in answer)
            child.close()
    print(f"{act['act']}: {injected} I/O faults injected, {reported} typed errors, 0 lost")
    return reported


def _check_the_next_call_works(child: Any, root: Path, act: dict[str, Any], where: str, failed: bool) -> None:
    if failed:
        again = child.ask(**{**act, "uuid": "again"} if act["act"] == "append" else act)
        assert "ok" in again, f"{where}, then {again}"
    child.do("append", key="log", uuid="after")
    assert _uuids(root, "log")[-1] == "after", where
    if act["act"] == "append" and failed:
        assert "again" in _uuids(root, act["key"]), where


@pytest.mark.requirement("K2")
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.slow
def test_an_error_at_every_call_is_typed_names_the_path_and_loses_nothing(
    run: Callable[..., Any], tmp_path: Path, act: str, torture: bool
) -> None:
    each = torture or ACTS[act]["act"] == "append"
    assert _fail_at_every_call(run, tmp_path, ACTS[act], each=each) > 0


@pytest.mark.requirement("K2")
@pytest.mark.slow
def test_an_error_in_an_open_log_is_typed_names_the_path_and_loses_nothing(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    assert _fail_at_every_call(run, tmp_path, ACTS["append to a log"], warm=True) > 0


@pytest.mark.requirement("K2")
@pytest.mark.parametrize("act", ["append to a new log", "replace a document"])
def test_an_error_at_every_call_from_one_on_is_typed_and_loses_nothing(
    run: Callable[..., Any], tmp_path: Path, act: str, torture: bool
) -> None:
    if not torture:
        pytest.skip("the long form; give --torture")
    assert _fail_at_every_call(run, tmp_path, ACTS[act], when="+") > 0


def test_a_store_that_lets_errors_out_as_they_come_is_caught(run: Callable[..., Any]) -> None:
    _, answer, tracer = run(ACTS["append to a log"], "fdatasync:error=EIO:when=1", kind="Careless")
    assert tracer.injected()
    assert answer["untyped"] is True
    assert answer["path"] == ""


@pytest.mark.requirement("K2")
@pytest.mark.parametrize("taken", [0, 1, 100])
def test_a_write_that_takes_less_than_the_line_is_an_error(run: Callable[..., Any], tmp_path: Path, taken: int) -> None:
    child, answer, tracer = run(ACTS["append to a log"], f"write:retval={taken}:when=1", warm=True)
    tracer.stop()
    assert answer["error"] == "StorageError"
    assert answer["path"] == str(tmp_path / "copy" / "log")
    assert f"only {taken} of" in answer["message"]
    child.do("append", key="log", uuid="after")
    assert _uuids(tmp_path / "copy", "log") == ["before", "warm", "after"]


@pytest.mark.requirement("K2", "K3")
@pytest.mark.parametrize("cut", [0, 1, 75, 150])
def test_a_line_the_kernel_cut_short_is_set_apart(start_child: Callable[..., Any], tmp_path: Path, cut: int) -> None:
    child = start_child(tmp_path)
    child.do("append", key="log", uuid="before")
    child.do("limit_file_size", size=(tmp_path / "log").stat().st_size + cut)
    answer = child.ask("append", key="log", uuid="cut")
    assert answer["error"] == "StorageError"
    assert answer["path"] == str(tmp_path / "log")
    assert answer["errno"] is not None
    child.do("unlimit_file_size")
    child.do("append", key="log", uuid="after")
    child.do("append", key="log", uuid="last")
    loaded = parse_log((tmp_path / "log").read_bytes())
    assert [entry.uuid for entry in loaded.entries if entry.uuid != "cut"] == ["before", "after", "last"]
    assert [damage.line for damage in loaded.damage] == ([2] if cut in (1, 75) else [])


def _second(run: Callable[..., Any], inject: str) -> tuple[Any, dict[str, Any], Tracer]:
    return run(ACTS["append to a log"], inject, durability="second")


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        threading.Event().wait(0.01)


def test_with_a_second_to_lose_the_flush_comes_behind(run: Callable[..., Any]) -> None:
    _, answer, tracer = _second(run, "fdatasync:delay_enter=0")
    assert answer == {"ok": None}
    _await(lambda: "fdatasync" in tracer.calls())
    assert log_files._FLUSH_AFTER_SECONDS <= 0.5, "which leaves the flush as long again within the second"


@pytest.mark.slow
def test_a_flush_that_failed_behind_is_told_by_the_next_append(run: Callable[..., Any], tmp_path: Path) -> None:
    child, answer, tracer = _second(run, "fdatasync:error=EIO:when=1")
    assert answer == {"ok": None}
    _await(tracer.injected)
    tracer.stop()
    told = {}
    for number in range(50):
        told = child.ask("append", key="log", uuid=f"next-{number}")
        if "error" in told:
            break
    assert (told["error"], told["errno"], told["path"]) == ("StorageError", errno.EIO, str(tmp_path / "copy" / "log"))
    child.do("append", key="log", uuid="after")
    assert _uuids(tmp_path / "copy", "log")[-1] == "after"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of a quarter megabyte, or skip where that is not allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = sys.platform == "linux" and shutil.which("mount") is not None and os.geteuid() == 0
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if not mounted or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.requirement("K2", "K3")
def test_a_full_disk_loses_nothing_and_is_used_again_once_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 100_000)
    child_root = small_disk / "store"
    storage = FileStorage(child_root)
    acknowledged: list[str] = []
    refusal: Exception | None = None
    for number in range(10_000):
        line = _line(f"entry-{number}") + b" " * 700
        try:
            storage.append("log", line)
            acknowledged.append(f"entry-{number}")
        except Exception as error:
            refusal = error
            break
    assert getattr(refusal, "errno", None) == errno.ENOSPC
    assert str(child_root / "log") in str(refusal)
    assert len(acknowledged) > 10
    with pytest.raises(Exception, match="ENOSPC"):
        storage.write("document", b"x" * 50_000)
    found = _uuids(child_root, "log")
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1, "the refused line may be there but for its newline; nothing else"
    ballast.unlink()
    storage.append("log", _line("after"))
    storage.write("document", b"x" * 50_000)
    assert _uuids(child_root, "log") == [*found, "after"]
    assert sorted(storage.list()) == ["document", "log"]
    storage.close()


@pytest.mark.requirement("S1", "D4")
def test_a_system_without_openat2_walks_and_is_as_safe(
    start_child: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    outside = tmp_path / "outside"
    outside.mkdir()
    (store / "link").symlink_to(outside)
    wrapper = (
        "strace",
        "-f",
        "-o",
        str(tmp_path / "trace"),
        "-e",
        "trace=openat2",
        "-e",
        "inject=openat2:error=ENOSYS",
    )
    child = start_child(store, wrapper)
    answer = child.ask("write", key="folder/deep/file", text="x")
    if not answer:
        pytest.skip("strace cannot run a program here")
    assert "ok" in answer
    assert child.ask("write", key="link/file", text="x")["error"] == "UnsafePath"
    assert child.ask("append", key="link/deep/file", uuid="x")["error"] == "UnsafePath"
    child.do("append", key="folder/log", uuid="x")
    child.do("lease", name="session")
    assert list(outside.iterdir()) == []
    assert (store / "folder" / "deep" / "file").read_bytes() == b"x"
    assert "(INJECTED)" in (tmp_path / "trace").read_text()
