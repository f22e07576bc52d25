"""The list of sessions: newest first, by project, damage shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from log_script import Script
from reverie import FileStorage, Library
from reverie.cli.sessions.sessions import shown_name
from reverie.runtime.library import SessionListing
from reverie.runtime.places.projects import log_key, project_slug

from .conftest import Asked, Reverie


def put(home: Path, project: Path, name: str, *, start: float) -> None:
    script = Script(start=start)
    script.user(f"This is {name}")
    storage = FileStorage(home)
    Library(storage).store(log_key(project_slug(project), name), script.entries)
    storage.close()


def test_sessions_are_listed_with_the_newest_first(reverie: Reverie, asked: Asked, home: Path, tmp_path: Path) -> None:
    put(home, tmp_path, "older", start=1_700_000_000)
    put(home, tmp_path, "newest", start=1_800_000_000)
    put(home, tmp_path / "other", "middle", start=1_750_000_000)
    listed = asked("sessions")
    assert [one["session"] for one in listed["sessions"]] == ["newest", "middle", "older"]
    assert listed["unreadable"] == []
    assert {"title", "project", "model", "messages", "bytes", "touched", "damaged"} <= set(listed["sessions"][0])
    _, out, _ = reverie("sessions")
    assert [line.split()[0] for line in out.splitlines()] == ["session", "newest", "middle", "older"]
    assert "This is newest" in out


def test_a_project_has_sessions_of_its_own(reverie: Reverie, asked: Asked, home: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    put(home, here, "mine", start=1_700_000_000)
    assert [one["session"] for one in asked("sessions", "--project", here)["sessions"]] == ["mine"]
    assert asked("sessions", "--project", there)["sessions"] == []
    assert "No sessions in this project yet" in reverie("sessions", "--project", there)[1]


def test_an_empty_library_says_how_to_fill_it_and_stays_empty(reverie: Reverie, home: Path) -> None:
    code, out, err = reverie("sessions")
    assert (code, err) == (0, "")
    assert "reverie import" in out
    assert list(home.iterdir()) == []


def test_damage_is_shown(reverie: Reverie, asked: Asked, stocked: str, home: Path) -> None:
    (log,) = home.rglob("fence-1.jsonl")
    log.write_bytes(b"{ damaged\n" + log.read_bytes() + b'{"torn')
    assert asked("sessions")["sessions"][0]["damaged"] == 2
    assert "2 lines" in reverie("sessions")[1]


def test_long_names_take_the_place_of_other_columns_and_are_never_folded(
    reverie: Reverie, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "100262__marshmallow-code__marshmallow-" + "1867" * 4
    put(home, tmp_path, name, start=1_700_000_000)
    monkeypatch.setenv("COLUMNS", "115")
    heading, row = reverie("sessions")[1].splitlines()
    assert row.startswith(name)
    assert "project" not in heading
    assert "title" in heading
    monkeypatch.setenv("COLUMNS", "190")
    assert "project" in reverie("sessions")[1].splitlines()[0]


def test_a_title_that_would_drive_a_terminal_does_not(reverie: Reverie, stocked: str) -> None:
    _, out, _ = reverie("sessions")
    assert "Mend the fence" in out
    assert "\x1b" not in out


def test_a_long_random_name_is_shortened_only_where_it_stays_unique() -> None:
    names = [
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        "0f8fad5b-ffff-469f-a165-70867728950e",
        "7c9e6679-7425-40de-944b-e07fc1f90ae7",
        "by-hand",
    ]
    found = [SessionListing(name, "", "", "", "", "", "", "", 0, 0, 0) for name in names]
    assert [shown_name(name, found) for name in names] == [names[0], names[1], "7c9e6679", "by-hand"]
