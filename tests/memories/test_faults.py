"""Kill the writer, or fail its call, at every write: the result is the old state or the new one."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reverie.memories.store.journal import JournalEntry
from reverie.runtime.memory.memory import Memory

EARLIER = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
FIRST = "feedback_real_database.md"
ACTS: dict[str, tuple[str, dict[str, Any]]] = {
    "save": (
        "save",
        {"args": ["The release leaves on Tuesdays"], "type": "project", "name": "release day", "why": "x"},
    ),
    "edit": (
        "update",
        {"args": [FIRST, "Use the real database in every test of the store"], "description": "new words"},
    ),
    "delete": ("forget", {"args": [FIRST]}),
    "undo": ("undo", {"args": [2]}),
    "rewind": ("rewind", {"args": ["c1"]}),
}
FAULTS = ("signal=KILL", "error=ENOSPC", "error=EIO")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with three changes behind it."""
    root = tmp_path_factory.mktemp("before") / "memory"
    memory = Memory(root, clock=lambda: EARLIER)
    memory.save("Use the real database in tests", type="feedback", name="real database", why="a mock hid a bug")
    memory.save("Tickets live in the tracker of the platform team", type="reference", name="tickets")
    memory.update(FIRST, "Use the real database in all tests", why="it happened again")
    return root


def state(root: Path) -> dict[str, bytes]:
    """Return all that the directory holds but for its journal."""
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*.md")}


def assert_linear(entries: list[JournalEntry]) -> None:
    """Check that each change of a file starts from where the one before ended."""
    versions: dict[str, str | None] = {}
    for entry in sorted(entries, key=lambda one: one.number):
        for change in entry.changes:
            assert versions.get(change.file) == change.before, (entry.id, change.file)
            versions[change.file] = change.after


def assert_whole(root: Path, allowed: list[dict[str, bytes]]) -> None:
    """Look at the directory as the next process finds it, and use it."""
    memory = Memory(root, clock=lambda: EARLIER)
    memory.list()
    assert state(root) in allowed
    assert not [found for found in memory.lint() if "index" in found.problem]
    memory.save("Deploys need two reviewers since the outage", type="project", name="reviewers", why="x")
    assert "project_reviewers.md" in state(root)
    entries = memory.log()
    assert entries[0].act == "saved", "nothing looks as if somebody outside had done it"
    assert_linear(entries)
    assert sorted(path.name for path in (root / ".journal").iterdir()) == ["journal.jsonl", "lock"]


@pytest.mark.requirement("M6", "M7")
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.slow
def test_at_every_write_a_kill_or_an_error_leaves_old_or_new(
    traced: Callable[..., Any], before: Path, tmp_path: Path, act: str, torture: bool
) -> None:
    name, how = ACTS[act]
    root = tmp_path / "memory"
    shutil.copytree(before, root)
    whole = traced(root, name, how)
    assert whole.answer == {"ok": True}, whole.answer
    old, new = state(before), state(root)
    assert old != new
    points = [(call, at) for call, many in Counter(whole.calls).items() for at in range(1, many + 1)]
    assert len(points) > 10
    rotation = itertools.cycle(FAULTS)
    reported = tried = 0
    for call, at in points:
        for fault in FAULTS if torture else [next(rotation)]:
            shutil.rmtree(root)
            shutil.copytree(before, root)
            done = traced(root, name, how, f"{call}:{fault}:when={at}")
            where = f"{act}: {call} {at} {fault}: {done.answer}"
            assert done.injected or done.killed, where
            tried += 1
            assert not done.answer.get("untyped"), where
            if "error" in done.answer:
                reported += 1
                assert done.answer["error"] == "StorageError", where
                assert str(root) in done.answer["message"], where
            assert_whole(root, [new] if "ok" in done.answer else [old, new])
    print(f"{act}: {len(points)} write calls, {tried} faults, {reported} reported")
    assert reported > 3


def test_a_store_that_writes_in_place_is_caught(before: Path, tmp_path: Path) -> None:
    root = tmp_path / "memory"
    shutil.copytree(before, root)
    new = dict(state(root))
    new[FIRST] = new[FIRST].replace(b"in all tests", b"in every test")
    torn = new[FIRST][: len(new[FIRST]) // 2]
    (root / FIRST).write_bytes(torn)  # a known-bad twin: killed in the middle of writing the file itself
    with pytest.raises(AssertionError):
        assert_whole(root, [state(before), new])
