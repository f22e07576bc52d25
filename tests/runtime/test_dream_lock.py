"""The dream lock: one dream at a time under kills and stops; the stamp is the time of a success."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reverie.errors import StorageError, UnsafePath
from reverie.runtime.dream.lock import DreamLock, HeldLock, LockHolder
from reverie.runtime.dream.progress import ProgressWriter, read_progress

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
SITE = Path(msgspec.__file__).resolve().parents[1]
PATIENCE_SECONDS = 280.0
EARLIER, START, NEXT = 1_700_000_000.25, 1_800_000_000.5, 1_800_100_000.0


@pytest.fixture
def swift() -> Iterator[Path]:
    """Return a folder where nothing waits for a disk, where there is one."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared, prefix="reverie-test-") as folder:
        yield Path(folder)


def script(name: str, *arguments: object) -> Any:
    """Run a script that stands beside this file and return what it says."""
    command = [sys.executable, "-S", "-E", str(HERE / name), str(SOURCE), str(SITE), *map(str, arguments)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE_SECONDS, check=True)
    return json.loads(ran.stdout)


def taken(lock: DreamLock, now: float = START) -> HeldLock:
    held = lock.take(now)
    assert held is not None
    return held


@pytest.fixture
def lock(tmp_path: Path) -> DreamLock:
    """Return the lock of a directory whose last dream was a while ago."""
    root = tmp_path / "memory"
    root.mkdir()
    (root / ".consolidate-lock").write_text("{}")
    os.utime(root / ".consolidate-lock", (EARLIER, EARLIER))
    return DreamLock(root)


# -- a crowd


def assert_one_at_a_time(said: dict[str, Any]) -> None:
    """Check what the witness saw."""
    assert said["two"] == 0, "the kernel refused the witness's own lock: two held at once"
    assert said["overlaps"] == 0, "what was written down overlaps"
    assert said["errors"] == []
    assert said["spared"], "a process that had nothing to do with it was ended"
    assert said["free_at_the_end"]


@pytest.mark.requirement("L6.2")
@pytest.mark.slow
def test_a_crowd_that_is_killed_stopped_and_lied_to_never_holds_twice(tmp_path: Path, torture: bool, seed: int) -> None:
    many, seconds = (64, 60) if torture else (12, 3)
    said = script("dream_crowd.py", tmp_path, many, seconds, seed, "ours")
    print(f"load {os.getloadavg()[0]:.1f}:", said)
    assert_one_at_a_time(said)
    assert said["holds"] > 10
    assert said["deaths_of_holders"] > 1
    assert said["gates_opened"] > 1
    assert said["hung_ended"] > 0 or not torture


@pytest.mark.slow
def test_the_usual_pid_file_is_caught(tmp_path: Path, torture: bool, seed: int) -> None:
    said = script("dream_crowd.py", tmp_path, 64 if torture else 12, 30, seed, "pidfile")
    print(said)
    with pytest.raises(AssertionError, match="two held at once"):
        assert_one_at_a_time(said)


# -- every step


def assert_before_or_after(rows: list[dict[str, Any]], act: str, before: str, fault: str) -> None:
    """Check what the next process finds after a fault at each step."""
    earlier = EARLIER if before == "stamped" else None
    assert len(rows) > (25 if act == "succeed" else 10)
    for row in rows:
        assert row["status"] in ((-signal.SIGKILL, 3) if fault == "kill" else (0, 1, 3)), row
        assert row["last"] in ((earlier, START) if act == "succeed" else (earlier,)), row
        assert row["taken"], row
        assert row["failed"] == row["last"], row
        assert row["stamp"] == (row["last"] is not None), row
        assert row["succeeded"] == NEXT, row
        assert row["left"] == [".consolidate-lock", "dream-lock"], row
    if act == "succeed":
        assert rows[0]["last"] == earlier
        assert rows[-1]["last"] == START
        moves = sum(one["last"] != other["last"] for one, other in pairwise(rows))
        assert moves == 1 or fault != "kill", "it happens at one step"


@pytest.mark.requirement("L6.3")
@pytest.mark.parametrize("before", ["stamped", "new"])
@pytest.mark.parametrize("act", ["succeed", "fail"])
@pytest.mark.parametrize("fault", ["kill", "EIO", "ENOSPC"])
@pytest.mark.slow
def test_a_fault_at_any_step_leaves_the_time_of_the_last_success(
    swift: Path, act: str, before: str, fault: str, torture: bool
) -> None:
    if fault == "ENOSPC" and not torture:
        pytest.skip("the way another error goes; run with --torture")
    assert_before_or_after(script("dream_steps.py", swift, act, before, fault, "ours"), act, before, fault)


@pytest.mark.slow
def test_a_stamp_that_is_written_in_place_is_caught(swift: Path) -> None:
    rows = script("dream_steps.py", swift, "succeed", "stamped", "kill", "in_place")
    with pytest.raises(AssertionError):
        assert_before_or_after(rows, "succeed", "stamped", "kill")


# -- one at a time, in one process


@pytest.mark.requirement("L6.2", "L6.3")
def test_success_leaves_the_start_of_the_run_and_a_note_for_people(lock: DreamLock) -> None:
    held = taken(lock)
    assert lock.last() == EARLIER
    held.succeed()
    assert lock.last() == START
    said = json.loads(Path(lock.stamp_path).read_text())
    assert said["pid"] == os.getpid()
    assert said["boot"]
    assert said["started"]


@pytest.mark.requirement("L6.3")
def test_failure_in_any_way_leaves_the_time_to_the_nanosecond(lock: DreamLock) -> None:
    os.utime(lock.stamp_path, ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    taken(lock).fail()
    with pytest.raises(RuntimeError), taken(lock):
        raise RuntimeError
    with taken(lock):
        pass  # nobody said that it succeeded
    assert os.stat(lock.stamp_path).st_mtime_ns == 1_700_000_000_123_456_789


@pytest.mark.requirement("L6.3")
def test_where_there_was_no_stamp_failure_leaves_none(tmp_path: Path) -> None:
    lock = DreamLock(tmp_path / "memory")
    held = taken(lock)
    assert lock.last() is None
    held.fail()
    assert not os.path.exists(lock.stamp_path)
    taken(lock).succeed()
    assert lock.last() == START


def test_a_second_taker_is_turned_away_and_told_who_holds_it(lock: DreamLock) -> None:
    held = taken(lock)
    other = DreamLock(lock.root)
    assert other.take(NEXT) is None
    holder = other.holder()
    assert holder is not None
    assert holder.pid == os.getpid()
    assert holder.began == START
    assert str(os.getpid()) in str(holder)
    held.succeed()
    assert other.holder() is None
    taken(other, NEXT).succeed()
    held.fail()
    held.succeed()
    assert lock.last() == NEXT, "a run that is over changes nothing any more"


Chosen = st.one_of(st.none(), st.sampled_from([0.0, 1.0, EARLIER, START + 86_400.0]))


@given(times=st.lists(st.tuples(Chosen, st.sampled_from(["succeed", "fail"]), Chosen), max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # one folder will do: all begin by its stamp
def test_whatever_is_done_to_the_stamp_a_run_ends_as_it_should(
    times: list[tuple[float | None, str, float | None]], swift: Path
) -> None:
    lock = DreamLock(swift)
    for before, act, during in times:
        tamper(Path(lock.stamp_path), before)
        held = taken(lock)
        tamper(Path(lock.stamp_path), during)
        held.succeed() if act == "succeed" else held.fail()
        assert lock.last() == (START if act == "succeed" else during or None)
        assert os.path.exists(lock.stamp_path) == (act == "succeed" or during is not None)


def tamper(stamp: Path, when: float | None) -> None:
    stamp.unlink(missing_ok=True)
    if when is not None:
        stamp.write_text('{"pid": 1, "started": "1", "boot": "x"}')
        os.utime(stamp, (when, when))


def test_a_dream_that_ends_while_its_progress_is_read_is_not_taken_for_killed(
    lock: DreamLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = taken(lock)
    writer = ProgressWriter(lock.root, "d1", began=START)
    asked = DreamLock.holder

    def holder(this: DreamLock) -> LockHolder | None:
        writer.change("completed", "done")
        held.succeed()
        return asked(this)

    monkeypatch.setattr(DreamLock, "holder", holder)
    found = read_progress(lock.root)
    assert found is not None
    assert found.state == "completed"


def test_a_lock_file_that_was_removed_ends_the_run_as_a_failure(lock: DreamLock) -> None:
    held = taken(lock)
    os.unlink(lock.lock_path)
    other = taken(lock, NEXT)
    with pytest.raises(StorageError, match="dream-lock was removed"):
        held.succeed()
    other.succeed()
    assert lock.last() == NEXT


def test_a_forked_child_does_not_keep_the_lock(lock: DreamLock) -> None:
    code = f"""
import os, sys, signal
from reverie.runtime.dream.lock import DreamLock
held = DreamLock({lock.root!r}).take({START})
if os.fork() == 0:
    os.write(1, b"child\\n")
    os.read(0, 1)  # lives on when its parent is dead, until the test lets go of this pipe
    os._exit(0)
os.write(1, b"parent\\n")
signal.pause()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        assert {process.stdout.readline(), process.stdout.readline()} == {b"child\n", b"parent\n"}
        assert lock.take(NEXT) is None
        process.kill()
        process.wait(PATIENCE_SECONDS)
        taken(lock, NEXT).fail()


@pytest.mark.parametrize("name", [".consolidate-lock", ".journal/dream-lock"])
def test_nothing_is_written_through_a_link(lock: DreamLock, tmp_path: Path, name: str) -> None:
    taken(lock).fail()
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for link in (os.symlink, os.link):
        os.unlink(os.path.join(lock.root, name))
        link(outside, os.path.join(lock.root, name))
        with pytest.raises(UnsafePath):
            lock.take(START)
        assert outside.read_text() == "mine"


@pytest.mark.parametrize("data", [b"", b"\0" * 512, b"[" * 4_000, b"17", b'{"pid": -1}', b'{"pid": "x"}'])
def test_a_damaged_note_in_the_lock_names_nobody_and_stops_nobody(lock: DreamLock, data: bytes) -> None:
    taken(lock).fail()
    Path(lock.lock_path).write_bytes(data)
    assert lock.holder() is None
    taken(lock).succeed()
    assert lock.last() == START
