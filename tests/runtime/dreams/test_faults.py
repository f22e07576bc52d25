"""Kill the dreamer, or fail its call, at every write: the result is the old state or the new one."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.memory.memory import Memory
from reverie.settings import Settings

EARLIER = datetime(2026, 11, 10, 12, 0, 0, tzinfo=UTC)
LATER = datetime(2026, 11, 18, 12, 0, 0, tzinfo=UTC)
BEGAN = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC).timestamp()  # when a child dreams
FAULTS = ("signal=KILL", "error=ENOSPC", "error=EIO")
STAMPED = 1_700_000_000.0


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with something to merge, something to date and an earlier dream's stamp."""
    root = tmp_path_factory.mktemp("before") / "memory"
    memory = Memory(root, clock=lambda: EARLIER)
    why = "a mock hid a broken migration"
    memory.save("Use the real database in tests, port 5432", type="feedback", name="real database", why=why)
    said = "Tests use the real database on port 5432, never a mock"
    memory.save(said, type="feedback", name="database tests", why=why)
    # A reference is saved as it was given, so that the dream has something to date.
    memory.save("The release leaves tomorrow at noon", type="reference", name="release", why="the customer waits")
    (root / ".consolidate-lock").write_text("{}\n")
    os.utime(root / ".consolidate-lock", (STAMPED, STAMPED))
    return root


def state(root: Path) -> dict[str, bytes]:
    """Return all that the directory holds but for its journal."""
    return {
        str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*.md") if ".journal" not in file.parts
    }


def assert_whole(root: Path, home: Path, allowed: list[dict[str, bytes]], done: Any) -> None:
    """Look at the directory as the next process finds it, and dream again."""
    memory = Memory(root, clock=lambda: LATER)
    memory.list()  # whoever reads carries out what is durable
    found = state(root)
    assert found in allowed
    stamp = (root / ".consolidate-lock").stat().st_mtime
    assert stamp == (BEGAN if "ok" in done.answer else STAMPED) or (done.killed and found == allowed[-1])
    dreams = Dreams(memory, Settings(home=home), project=home, clock=lambda: LATER)
    assert dreams.status().running is None
    told = dreams.status().ended
    assert told is None or told.is_over
    report = anyio.run(dreams.run)
    assert report.state == "completed"
    assert (root / ".consolidate-lock").stat().st_mtime == LATER.timestamp()
    assert not [one for one in memory.lint() if "index" in one.problem]
    reports = {one.dream: one for one in dreams.reports()}
    if told is not None:
        first = reports[told.dream]
        assert first.state == ("completed" if found == allowed[-1] else "killed" if done.killed else "failed"), first
        assert bool(first.entry) == (found == allowed[-1])
    for entry in reversed(memory.log()):
        assert entry.act in ("saved", "dreamed"), "nothing looks as if somebody outside had done it"
    left = {path.name for path in (root / ".journal").iterdir()}
    assert left <= {"journal.jsonl", "lock", "dreams", "dream-lock", "dream-stamp"}, left
    assert not [
        path
        for path in (root / ".journal" / "dreams").iterdir()
        if path.name.startswith(".reverie-tmp") and "ok" in done.answer
    ]


@pytest.mark.requirement("L6.3", "L6.6", "M7", "B3")
@pytest.mark.parametrize("by", ["local", "model"])
@pytest.mark.slow
def test_at_every_write_a_kill_or_an_error_leaves_before_or_after(
    traced: Callable[..., Any], before: Path, tmp_path: Path, by: str, torture: bool, seed: int
) -> None:
    root, home = tmp_path / "memory", tmp_path / "home"
    home.mkdir()

    def fresh() -> None:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(before, root)
        for file in home.glob("*.sqlite*"):
            file.unlink()

    fresh()
    whole = traced(root, home, by)
    assert whole.answer["ok"]["state"] == "completed", whole.answer
    old, new = state(before), state(root)
    assert len({name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}) >= 2
    points = whole.points()
    assert len(points) > 60
    rotation = itertools.cycle(FAULTS)
    chosen = points if torture else points[seed % 20 :: 20]
    counts: Counter[str] = Counter()
    for call, at in chosen:
        for fault in FAULTS if torture else [next(rotation)]:
            fresh()
            done = traced(root, home, by, f"{call}:{fault}:when={at}")
            where = f"{by}: {call} {at} {fault}: {done.answer}"
            if not (done.injected or done.killed):
                counts["not reached"] += 1  # a thread took a step more or less than before
            assert not done.answer.get("untyped"), where
            try:
                assert_whole(root, home, [new] if "ok" in done.answer else [old, new], done)
            except AssertionError as error:
                raise AssertionError(where) from error
            counts["killed" if done.killed else "failed" if "error" in done.answer else "went on"] += 1
    print(f"{by}: {len(points)} calls, {sum(counts.values())} faults: {dict(counts)}")
    assert counts["killed"] > 1
    assert counts["not reached"] <= 1 + len(chosen) // 20


def test_a_dreamer_that_writes_file_by_file_is_caught(before: Path, tmp_path: Path) -> None:
    root, home = tmp_path / "memory", tmp_path / "home"
    home.mkdir()
    shutil.copytree(before, root)
    new = dict(state(root))
    del new["feedback_database_tests.md"]
    new["feedback_real_database.md"] += b"never a mock\n"
    (root / "feedback_database_tests.md").unlink()  # a known-bad twin: killed after the first of two files

    class Killed:
        killed = True
        answer: dict[str, Any] = {}  # noqa: RUF012

    with pytest.raises(AssertionError):
        assert_whole(root, home, [state(before), new], Killed)
