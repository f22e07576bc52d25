"""Many processes at once: every acknowledged change is there, and no file is read half-written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie.memories.store.index import lines_of
from reverie.runtime.memory.memory import Memory

SHARED = 3


def crowd(start_worker: Callable[..., Any], root: Path, many: int, seconds: float, how: str) -> list[dict[str, Any]]:
    """Let so many processes loose on one directory and return what each was promised."""
    memory = Memory(root)
    for which in range(SHARED):
        body = "Count 0 is the count. " + "<0>" * 200 + " end 0."
        memory.save(body, type="user", name=f"shared {which}", description=f"a number that all share, {which}")
    workers = [start_worker(root, f"w{number}", seconds, how) for number in range(many)]
    for worker in workers:
        assert worker.hear() == {"ready": True}
    for worker in workers:
        worker.tell(go=True)
    return [worker.hear() for worker in workers]


def assert_kept(root: Path, said: list[dict[str, Any]]) -> None:
    """Check that what was promised is what is there."""
    memory = Memory(root)
    assert all(said), "every process lived to the end"
    assert [one["torn"] for one in said if one["torn"]] == []
    assert [one["missed"] for one in said if one["missed"]] == [], "what one has saved, one recalls"
    files = {head.file for head in memory.list()}
    expected = {f"user_shared_{which}.md" for which in range(SHARED)} | {file for one in said for file in one["added"]}
    assert files == expected
    for which in range(SHARED):
        there = memory.get(f"user_shared_{which}.md")
        assert int(there.body.split()[1]) == sum(one["counted"][which] for one in said)
    listed = [line.file for line in lines_of((root / "MEMORY.md").read_text())]
    assert sorted(listed) == sorted(files), "index = files, each once"
    versions: dict[str, str | None] = {}
    entries = sorted(memory.log(), key=lambda one: one.number)
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    for entry in entries:
        assert entry.act != "outside"
        for change in entry.changes:
            assert versions.get(change.file) == change.before, "the history of a file is a line"
            versions[change.file] = change.after
    written = {(change.file, change.after) for entry in entries for change in entry.changes}
    seen = {(file, version) for one in said for file, several in one["recalled"].items() for version in several}
    assert seen <= written, "what was recalled is what somebody wrote"


@pytest.mark.requirement("M6", "M7", "R2")
@pytest.mark.slow
def test_a_crowd_of_processes_loses_nothing(start_worker: Callable[..., Any], tmp_path: Path, torture: bool) -> None:
    many, seconds = (16, 60) if torture else (6, 3)
    said = crowd(start_worker, tmp_path / "memory", many, seconds, "careful")
    acts, reads, recalls = (sum(one[what] for one in said) for what in ("done", "reads", "recalls"))
    print(f"{many} processes, {seconds} s: {acts} acts, {reads} reads, {recalls} memories recalled")
    assert acts > many
    assert recalls > many
    assert_kept(tmp_path / "memory", said)


@pytest.mark.slow
def test_a_crowd_that_does_not_compare_before_it_sets_is_caught(
    start_worker: Callable[..., Any], tmp_path: Path
) -> None:
    for attempt in range(20):
        root = tmp_path / str(attempt)
        said = crowd(start_worker, root, 4, 1.5, "careless")
        try:
            assert_kept(root, said)
        except AssertionError:
            return
    pytest.fail("nobody lost a count in twenty rounds; the test cannot see it")
