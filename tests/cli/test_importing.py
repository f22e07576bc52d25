"""Recordings become sessions of the library, once, and omissions are reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from reverie import FileStorage, Library, read_session
from reverie.conversation.entries import encode_entry, marked_imported
from reverie.runtime.archive.recordings import storable
from reverie.runtime.places.projects import log_key, project_slug
from reverie.runtime.search.sessions import SessionSearch

from .conftest import Asked, Reverie, on_a_screen

SESSION = "6513270e-269e-4d37-b2a7-4de452e6b438"


@pytest.mark.requirement("D3")
def test_a_recording_becomes_a_session_with_every_entry_as_it_was_read(
    asked: Asked, sample: Path, home: Path, tmp_path: Path
) -> None:
    report = asked("import", sample, "--project", tmp_path)
    key = log_key(project_slug(tmp_path), SESSION)
    assert (report["imported"], report["already_there"], report["failed"]) == (1, 0, [])
    assert report["sessions"][0]["key"] == key
    assert report["sessions"][0]["skipped"] == {"bookkeeping: file-history-snapshot": 1}
    stored = Library(FileStorage(home)).load(key)
    found = read_session(sample)[0]
    kept = marked_imported(found.entries, SESSION)
    assert list(map(encode_entry, stored.entries)) == list(map(encode_entry, kept))


@pytest.mark.requirement("D3")
def test_the_second_time_it_is_already_there_and_left_alone(
    reverie: Reverie, asked: Asked, sample: Path, home: Path
) -> None:
    asked("import", sample)
    (log,) = home.rglob("*.jsonl")
    before = log.read_bytes()
    report = asked("import", sample)
    assert (report["imported"], report["already_there"]) == (0, 1)
    assert report["sessions"][0]["status"] == "already there"
    assert log.read_bytes() == before
    code, out, err = reverie("import", sample)
    assert (code, err) == (0, "")
    assert out.endswith("0 imported, 1 already there.\n")


@pytest.mark.requirement("X5")
def test_an_imported_session_is_found_by_the_person_it_is_about(
    asked: Asked, reverie: Reverie, sample: Path, home: Path, tmp_path: Path
) -> None:
    sample = Path(shutil.copy(sample, tmp_path))

    def about(subject: str) -> list[str]:
        code, out, err = reverie("export", "--subject", subject, "--output", "out", "--dry-run", "--json")
        assert code == 0, err
        return json.loads(out)["documents"]

    asked("import", sample)
    assert about("person-7") == []
    assert asked("import", sample, "--subject", "person-7")["extended"] == 1
    assert asked("import", sample, "--subject", "person-7")["already_there"] == 1
    (log,) = home.rglob("*.jsonl")
    assert [key.rsplit("/", 1)[1] for key in about("person-7")] == [log.name]
    before = log.read_bytes()
    with sample.open("a") as stream:
        newest = json.loads(sample.read_text().splitlines()[-1])
        stream.write(json.dumps({**newest, "uuid": "0" * 8, "parentUuid": newest["uuid"]}) + "\n")
    asked("import", sample)
    assert (log.read_bytes().count(b"person-7"), log.read_bytes() != before) == (1, True)


def test_an_empty_id_of_a_person_selects_nothing(asked: Asked, reverie: Reverie, sample: Path, home: Path) -> None:
    asked("import", sample)
    for command in (["import", sample], ["export", "--output", home / "out"], ["delete", "--before", "2999-01-01"]):
        code, _, err = reverie(*command, "--subject", " ")
        assert (code, "--subject is empty" in err) == (2, True)
    assert len(list(home.rglob("*.jsonl"))) == 1
    assert not (home / "out").exists()


@pytest.mark.requirement("R8")
def test_an_imported_session_is_indexed_by_the_import_and_not_by_the_first_search(
    asked: Asked, sample: Path, home: Path
) -> None:
    asked("import", sample)
    with SessionSearch(home) as search:
        assert search.rank("the").messages
        assert search.refresh().bytes == 0


def test_a_dry_run_says_the_same_and_writes_nothing(asked: Asked, sample: Path, home: Path) -> None:
    planned = asked("import", sample, sample.parent, "--dry-run")
    assert list(home.iterdir()) == []
    assert (planned["imported"], planned["sessions"][0]["status"]) == (1, "would be imported")
    done = asked("import", sample)
    assert done["sessions"][0]["key"] == planned["sessions"][0]["key"]


@pytest.mark.requirement("A3")
def test_a_session_is_filed_where_the_user_stands_and_its_own_directory_is_only_recorded(
    asked: Asked, sample: Path, tmp_path: Path
) -> None:
    work = tmp_path / "tidetable"
    work.mkdir()
    recording = tmp_path / "moved.jsonl"
    recording.write_text(sample.read_text().replace("/home/mara/tidetable", str(work)))
    assert asked("import", recording)["sessions"][0]["project"] == project_slug(Path.cwd())
    (listed,) = asked("sessions")["sessions"]
    assert (listed["cwd"], listed["imported"]) == (str(work), True)


def test_a_directory_is_searched_and_what_cannot_be_read_does_not_keep_the_rest_out(
    reverie: Reverie, asked: Asked, sample: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "recordings" / "deep"
    folder.mkdir(parents=True)
    shutil.copy(sample, folder / "one.jsonl")
    (folder / "notes.json").write_text('{"some": "thing"}')
    report = asked("import", tmp_path / "recordings", tmp_path / "missing.jsonl", code=2)
    assert (report["imported"], len(report["failed"])) == (1, 1)
    assert "missing.jsonl" in report["failed"][0]["error"]
    (tmp_path / "hollow").mkdir()
    code, out, err = reverie("import", tmp_path / "hollow")
    assert (code, out) == (2, "")
    assert "it contains no recorded session" in err


def test_the_search_of_a_directory_shows_on_a_terminal_that_it_goes_on(sample: Path) -> None:
    assert f"searching {sample.parent}: 1 recording" in on_a_screen("import", str(sample.parent), columns=190)


def test_damage_and_skipped_records_are_counted_and_said(
    reverie: Reverie, asked: Asked, sample: Path, tmp_path: Path
) -> None:
    lines = sample.read_text().splitlines()
    lines[5] = lines[5][: len(lines[5]) // 2]
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("\n".join(lines) + "\n")
    report = asked("import", damaged, "--dry-run")
    assert (report["damaged_lines"], report["skipped_records"] >= 1) == (1, True)
    _, out, _ = reverie("import", damaged)
    assert "line 6: " in out
    assert "1 x bookkeeping" in out


def test_long_names_take_the_place_of_other_columns_and_are_never_folded(
    reverie: Reverie, sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "100262__marshmallow-code__marshmallow-" + "1867" * 4
    recording = tmp_path / "long.jsonl"
    recording.write_text(sample.read_text().replace(SESSION, name))
    monkeypatch.setenv("COLUMNS", "110")
    heading, row = reverie("import", recording, "--dry-run")[1].splitlines()[:2]
    assert row.startswith(f"would be imported  {name}  ")
    assert heading.split() == ["session", "messages", "title"]
    monkeypatch.setenv("COLUMNS", "190")
    heading = reverie("import", recording, "--dry-run")[1].splitlines()[0]
    assert heading.split() == ["session", "project", "format", "messages", "title"]


@pytest.mark.parametrize(("given", "name"), [("_x", "x"), ("a.jsonl", "a"), ("...", "session"), ("a" * 300, "a" * 128)])
def test_an_odd_id_still_names_a_log(given: str, name: str) -> None:
    assert storable(given) == name


@pytest.mark.requirement("D3")
@pytest.mark.slow
def test_every_recording_of_the_corpus_can_be_imported(asked: Asked, corpus: Path, tmp_path: Path) -> None:
    report = asked("import", corpus, "--project", tmp_path)
    assert report["failed"] == []
    assert report["imported"] == len(report["sessions"]) >= 20
    listed = asked("sessions")["sessions"]
    assert {one["session"] for one in listed} == {one["session"] for one in report["sessions"]}
    assert {one["damaged"] for one in listed} == {0}
    assert json.dumps(report)


@pytest.mark.requirement("A1")
def test_a_session_that_grew_since_its_import_is_extended(
    asked: Asked, sample: Path, home: Path, tmp_path: Path
) -> None:
    lines = sample.read_bytes().splitlines(keepends=True)
    growing = tmp_path / sample.name
    growing.write_bytes(b"".join(lines[: len(lines) // 2]))
    asked("import", growing)
    (log,) = home.rglob("projects/*/*.jsonl")
    first = log.read_bytes()
    growing.write_bytes(b"".join(lines))
    report = asked("import", growing)
    assert (report["imported"], report["extended"], report["sessions"][0]["status"]) == (0, 1, "extended")
    assert len(Library(FileStorage(home)).load(report["sessions"][0]["key"]).entries) >= len(
        read_session(sample)[0].entries
    )
    assert len(log.read_bytes()) > len(first)
    assert asked("import", growing)["already_there"] == 1


@pytest.mark.requirement("A4")
def test_damaged_lines_are_told_at_every_door(reverie: Reverie, sample: Path, tmp_path: Path) -> None:
    lines = sample.read_bytes().splitlines(keepends=True)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(b"".join([*lines[:8], b"{half\n", *lines[9:]]))
    assert reverie("import", sample)[0] == 0
    for command in (["import", damaged, "--dry-run"], ["replay", damaged, "--policy", "recorded"]):
        code, out, _ = reverie(*command)
        assert code == 0
        assert "line 9: " in out or "1 damaged line left out" in out, command
    code, _, err = reverie("inspect", damaged, "--html", tmp_path / "page.html")
    assert code == 0
    assert "left out 1 damaged line" in err
