"""Memories in a database: each machine has a working copy, and the shared journal is the only truth."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.errors import StorageConflict, StorageError
from reverie.runtime.memory.memory import Memory
from reverie.runtime.memory.shared_journal import StoredJournal
from reverie.storage.in_memory import InMemoryStorage

KEY = "projects/app/memory/.journal/journal.jsonl"


class World:
    """Several machines with a memory directory each, and one storage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = InMemoryStorage()

    def machine(self, name: str) -> Memory:
        return Memory(self.folder / name, shared=StoredJournal(self.storage, "projects/app/memory", "acme"))

    def files(self, name: str) -> dict[str, bytes]:
        root = self.folder / name
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.glob("*.md")}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.requirement("X2")
def test_a_memory_saved_on_one_machine_is_recalled_on_another(world: World) -> None:
    first, second = world.machine("a"), world.machine("b")
    first.save("Use the real database in tests", type="feedback", why="a mock hid a broken migration")
    second.refresh()
    assert world.files("b") == world.files("a")
    assert [head.name for head in second.list()] == [head.name for head in first.list()]
    assert second.log() == first.log()


def test_changes_on_both_machines_are_one_history(world: World) -> None:
    first, second = world.machine("a"), world.machine("b")
    first.save("Deploys happen on Tuesdays", type="project", why="the release train")
    second.save("The staging host is called heron", type="reference")
    first.save("Answer in German", type="user")
    second.refresh()
    first.refresh()
    assert len(first.list()) == 3
    assert world.files("a") == world.files("b")
    assert [entry.id for entry in first.log()] == [entry.id for entry in second.log()]


def test_a_new_machine_builds_the_directory_from_the_journal_alone(world: World) -> None:
    first = world.machine("a")
    saved = first.save("Deploys happen on Tuesdays", type="project", why="the release train")
    first.save("Answer in German", type="user")
    first.forget(saved.file, why="the train was stopped")
    world.machine("new")
    assert world.files("new") == world.files("a")


def test_memories_that_existed_before_the_database_go_into_it(world: World) -> None:
    Memory(world.folder / "a").save("Answer in German", type="user")
    world.machine("a").save("Deploys happen on Tuesdays", type="project", why="the release train")
    assert len(world.machine("b").list()) == 2
    assert world.files("b") == world.files("a")


def test_an_edit_by_hand_on_one_machine_reaches_the_others(world: World) -> None:
    first = world.machine("a")
    saved = first.save("Answer in German", type="user")
    path = world.folder / "a" / saved.file
    path.write_text(path.read_text().replace("German", "French"))
    first.log()  # an outside change is journaled when the directory is looked at
    second = world.machine("b")
    assert "French" in second.get(saved.file).body


def test_erased_text_leaves_the_journal_and_every_working_copy(world: World) -> None:
    first, second = world.machine("a"), world.machine("b")
    saved = first.save("The codename is pangolin", type="project", why="secret", source="s1")
    first.save("Answer in German", type="user")
    second.refresh()
    first.forget(saved.file, why="erased", erase=True)
    second.refresh()
    for name in ("a", "b"):
        everything = b"".join(path.read_bytes() for path in (world.folder / name).rglob("*") if path.is_file())
        assert b"pangolin" not in everything
        assert len(world.files(name)) == 2  # the index and the memory that stays
    assert b"pangolin" not in (world.storage.load(KEY) or b"")


def test_a_line_counts_once_it_is_in_the_shared_journal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.machine("a")
    first.save("Answer in German", type="user")

    def fail(key: str, line: bytes, *, expect: int | None = None) -> None:
        raise StorageConflict("the database is away", path=key)

    with monkeypatch.context() as away:
        away.setattr(world.storage, "append", fail)
        with pytest.raises(StorageError, match="away"):
            first.save("Deploys happen on Tuesdays", type="project", why="the release train")
    assert len(world.machine("a").list()) == 1
    assert len(world.machine("b").list()) == 1


def test_a_working_copy_is_not_changed_without_its_journal(world: World) -> None:
    world.machine("a").save("Answer in German", type="user")
    with pytest.raises(StorageError, match=r"working copy of .* of tenant acme"):
        Memory(world.folder / "a").save("Deploys happen on Tuesdays", type="project", why="the release train")


@settings(max_examples=12)
@pytest.mark.slow
@given(data=st.data(), steps=st.lists(st.sampled_from(["save", "forget", "undo", "edit", "look"]), max_size=12))
def test_after_any_changes_on_three_machines_all_copies_are_equal(
    data: st.DataObject, steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = World(tmp_path_factory.mktemp("machines"))
    machines = {name: world.machine(name) for name in "abc"}
    for number, step in enumerate(steps):
        memory = machines[data.draw(st.sampled_from("abc"))]
        memory.refresh()
        heads = memory.list()
        if step == "save":
            memory.save(f"Rule number {number} holds for module {number}", type="feedback", why="it was agreed")
        elif step == "forget" and heads:
            memory.forget(heads[0].file, why="no longer true")
        elif step == "undo" and memory.log():
            memory.undo(memory.log()[0].id)
        elif step == "edit" and heads:
            path = memory.path / heads[-1].file
            path.write_text(path.read_text() + f"\nLine {number}\n")
            memory.log()
    for memory in machines.values():
        memory.refresh()
    world.machine("fresh")
    assert world.files("a") == world.files("b") == world.files("c") == world.files("fresh")
