"""Kept heads: after any change to files, a scan by a store that kept heads returns the same as reading all files."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from reverie.memories.store import head_files
from reverie.memories.store import store as shelf
from reverie.memories.store.head_files import JOURNAL
from reverie.memories.store.records import MemoryRecord
from reverie.memories.store.store import MemoryStore
from reverie.runtime.memory.memory import Memory

MANY = 80


def text_of(number: int, words: str = "of use", trust: str = "user") -> str:
    return (
        f"---\nname: Memory {number:02}\ndescription: {words} {number:02}\ntype: project\ntrust: {trust}\n---\nBody.\n"
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with a journal and many files, old enough to be kept."""
    folder = tmp_path / "memory"
    memory = Memory(folder)
    for number in range(4):
        memory.save(f"The release train number {number} leaves at noon", type="project", why="customers are told so")
    for number in range(MANY):
        (folder / f"project_{number:02}.md").write_text(text_of(number))
    memory.log()  # all are in the journal now, those from outside as an agent's word
    settle(folder)
    return folder


def settle(folder: Path) -> None:
    """Wait until every file is old enough to be kept."""
    deadline = time.monotonic() + 60
    while not all(head_files.has_settled(os.stat(one), time.time_ns()) for one in folder.glob("*.md")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def scanned(root: Path) -> list[MemoryRecord]:
    """Return what a scan says that has nothing to go by."""
    return MemoryStore(str(root)).scan().memories


def keeping(root: Path) -> MemoryStore:
    """Return a store that has kept heads."""
    store = MemoryStore(str(root))
    store.scan()  # the first scan keeps nothing, because most processes scan once
    store.scan()
    return store


def disturb(root: Path, chance: random.Random) -> None:
    """Change some files as other programs do, also so that neither size nor time shows it."""
    memory = Memory(root)
    for file in chance.sample(sorted(root.glob("project_*.md")), 12):
        before = file.stat()
        match chance.randrange(7):
            case 0:
                file.write_text(file.read_text().replace("description: of", "description: no"))
                os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
            case 1:
                file.unlink()
            case 2:
                other = root / "aside.tmp"
                other.write_text(file.read_text().replace("Body", "Eddy"))
                os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
                os.rename(other, file)
            case 3:
                memory.update(file.name, "The store wrote this one over", author="user")
            case 4:
                memory.confirm(file.name)
            case 5:
                file.write_text(file.read_text().replace("trust: user", "trust: unconfirmed"))
            case _:
                file.rename(file.with_name(f"{file.stem}_{chance.randrange(10)}.md"))
    (root / f"project_new_{chance.randrange(1_000)}.md").write_text(text_of(99))


@pytest.mark.requirement("S5")
@pytest.mark.slow
def test_a_scan_by_what_is_kept_says_what_reading_all_says(root: Path, seed: int) -> None:
    chance = random.Random(seed)
    store = keeping(root)
    for _ in range(3):
        assert store.scan().memories == scanned(root)
        disturb(root, chance)
        assert store.scan().memories == scanned(root)
        settle(root)


def test_a_keeper_that_goes_by_size_and_time_alone_is_caught(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "print_of", lambda found: hash((found.st_size, found.st_mtime_ns)))
    store = keeping(root)
    file = root / "project_07.md"
    before = file.stat()
    file.write_text(file.read_text().replace("description: of", "description: no"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.scan().memories != scanned(root)


def test_only_what_changed_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = keeping(root)
    opened: list[str] = []
    real = shelf.read_head

    def watched(folder: int, name: str, file: str) -> tuple[bytes, os.stat_result]:
        opened.append(file)
        return real(folder, name, file)

    monkeypatch.setattr(shelf, "read_head", watched)
    (root / "project_03.md").write_text(text_of(3, "now of use"))
    assert len(store.scan().memories) == MANY + 4
    assert opened == ["project_03.md"]


@pytest.mark.requirement("M9")
def test_an_erasure_leaves_no_heads_of_an_earlier_version_either(root: Path) -> None:
    memory = Memory(root)
    file = memory.save("The zebra crossing is in Lyon", type="project", why="zebras live there").file
    (root / JOURNAL / "heads").write_bytes(b"zebra")  # a version before the first wrote such a file
    memory.list()
    memory.forget(file, erase=True)
    scanned(root)
    left = [one for one in root.rglob("*") if one.is_file() and b"zebra" in one.read_bytes()]
    assert left == []


@pytest.mark.requirement("S5", "D2")
@pytest.mark.slow
def test_a_shared_directory_is_seen_by_nobodys_heads(root: Path, tmp_path: Path) -> None:
    for file in sorted(root.glob("*.md")):
        if file.name != "MEMORY.md":
            Memory(root).confirm(file.name)
    settle(root)
    scanned(root)
    assert {one.trust for one in scanned(root)} == {"user"}
    shared = Memory(tmp_path / "mine", team=root).list()
    assert {one.trust for one in shared} == {"agent"}
    assert {one.trust for one in scanned(root)} == {"user"}
    os.rename(root, tmp_path / "moved")
    assert {one.trust for one in Memory(tmp_path / "mine", team=tmp_path / "moved").list()} == {"agent"}


def test_a_directory_without_a_journal_gets_nothing_written_into_it(tmp_path: Path) -> None:
    for number in range(MANY):
        (tmp_path / f"project_{number:02}.md").write_text(text_of(number))
    settle(tmp_path)
    assert {one.trust for one in scanned(tmp_path)} == {"agent"}
    assert sorted(os.listdir(tmp_path)) == [f"project_{number:02}.md" for number in range(MANY)]
