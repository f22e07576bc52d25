"""Delete and purge remove exactly the listed files, and only on confirmation."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie import FileStorage
from reverie.runtime.places.projects import session_key

from .conftest import Asked, Reverie, on_a_screen


@pytest.fixture
def keys(stocked: str, home: Path) -> list[str]:
    """Give the stocked session results, notes and a memory, and return the keys of all of it."""
    storage = FileStorage(home)
    slug = next((home / "projects").iterdir()).name
    base = session_key(slug, stocked)
    storage.write(f"{base}/tool-results/t1.txt", b"big")
    storage.write(f"{base}/session-memory/summary.md", b"# notes")
    storage.write(f"projects/{slug}/memory/quoted.md", f"---\nname: x\nsource: {stocked} e4\n---\nhello".encode())
    storage.write(f"projects/{slug}/memory/other.md", b"---\nname: y\n---\nhello")
    storage.close()
    return [f"{base}.jsonl", f"{base}/session-memory/summary.md", f"{base}/tool-results/t1.txt"]


def files(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in (home / "projects").rglob("*") if path.is_file()}


@pytest.mark.requirement("K14")
def test_deleting_takes_the_log_only(asked: Asked, keys: list[str], home: Path) -> None:
    report = asked("delete", "fence-1", "--yes")
    assert (report["removed"], report["memories"], report["purge"]) == (keys[:1], [], False)
    assert keys[0] not in files(home)
    assert set(keys[1:]) <= files(home)


@pytest.mark.requirement("K14")
def test_purging_takes_all_that_came_from_it_and_says_so(
    reverie: Reverie, asked: Asked, keys: list[str], home: Path
) -> None:
    before = files(home)
    planned = asked("purge", "fence-1", "--dry-run")
    assert files(home) == before
    report = asked("purge", "fence-1", "--yes")
    assert sorted(report["removed"]) == keys
    assert [name.rsplit("/", 1)[-1] for name in report["memories"]] == ["quoted.md"]
    assert {**planned, "dry_run": False} == report
    assert before - files(home) == {*report["removed"], *report["memories"]}
    assert reverie("purge", "fence-1", "--yes")[0] == 2


def test_people_read_what_went(reverie: Reverie, keys: list[str]) -> None:
    code, out, _ = reverie("purge", "fence-1", "--yes")
    assert code == 0
    assert [line for line in out.splitlines() if not line.startswith("removed projects/")] == []
    assert len(out.splitlines()) == 4


@pytest.mark.parametrize("command", ["delete", "purge"])
def test_where_nobody_can_be_asked_nothing_is_removed(
    reverie: Reverie, keys: list[str], home: Path, command: str
) -> None:
    before = files(home)
    code, out, err = reverie(command, "fence-1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--yes" in err
    assert files(home) == before


def test_a_person_is_asked_and_no_means_no(keys: list[str], home: Path) -> None:
    before = files(home)
    refused = on_a_screen("purge", "fence-1", typed=b"n\n", code=1)
    assert "fence-1 and 3 more files permanently?" in refused
    assert "removed nothing" in refused
    assert files(home) == before
    assert "removed projects/" in on_a_screen("delete", "fence-1", typed=b"y\n")
    assert before - files(home) == {keys[0]}


@pytest.mark.requirement("K13")
def test_an_open_session_is_not_removed(reverie: Reverie, keys: list[str], home: Path) -> None:
    storage = FileStorage(home)
    lease = storage.lease(keys[0], holder="a test")
    try:
        code, _, err = reverie("purge", "fence-1", "--yes")
    finally:
        lease.release()
        storage.close()
    assert code == 2
    assert "a test" in err
    assert set(keys) <= files(home)
