"""``reverie memory``: everything the store does, for people and, with --json, for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie.cli.main import run
from reverie.cli.memory import command
from reverie.errors import InputError
from reverie.memories.store.store import MemoryStore
from reverie.runtime.memory.memory import Memory

Answer = tuple[int, str, str]


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Return the memories of the project the commands are run in."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return Memory.open(".")


@pytest.fixture
def said(capsysbinary: pytest.CaptureFixture[bytes], memory: Memory) -> Callable[..., Answer]:
    """Return a function that runs a command of the group and gives exit code, stdout and stderr."""

    def call_it(*arguments: object) -> Answer:
        code = run([str(argument) for argument in arguments], commands=command)
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return call_it


@pytest.fixture
def told(said: Callable[..., Answer]) -> Callable[..., Any]:
    """Return a function that runs a command with --json and gives what it says."""

    def ask(*arguments: object, code: int = 0) -> Any:
        got, out, err = said(*arguments, "--json")
        assert got == code, err
        return json.loads(out)

    return ask


@pytest.mark.requirement("M9", "B4")
def test_a_memory_is_added_listed_shown_edited_taken_back_and_forgotten(
    told: Callable[..., Any], memory: Memory
) -> None:
    added = told("add", "Use the real database in tests", "--type", "feedback", "--why", "a mock hid a bug")
    listed = told("list")
    assert [set(listed[0]) >= {"file", "name", "type", "description", "modified", "trust"}, len(listed)] == [True, 1]
    assert (listed[0]["file"], listed[0]["trust"]) == (added["file"], "user")
    assert told("show", added["file"])["body"].startswith("Use the real database in tests\n")
    edited = told("edit", added["file"], "--text", "Use the real database in all tests", "--why", "again")
    assert edited["changed"] is True
    assert [entry["act"] for entry in told("log")] == ["updated", "saved"]
    assert {line["who"] for line in told("blame", added["file"])} == {"user"}
    assert told("undo", "--dry-run")["change"]["files"] == [added["file"]]
    assert told("undo")["change"]["undoes"] == [edited["id"]]
    assert told("show", added["file"])["body"].startswith("Use the real database in tests\n")
    assert told("rewind", edited["id"])["change"]["act"] == "rewound"
    assert told("rm", added["file"], "--dry-run")["files"] == [added["file"]]
    assert told("rm", added["file"])["files"] == [added["file"]]
    assert told("list") == []
    assert told("undo")["change"]["act"] == "undone"
    assert told("path") == {"path": str(memory.path)}
    assert told("lint") == []
    assert told("reindex")["change"] is None


@pytest.mark.requirement("M9")
def test_an_expired_memory_is_marked_when_it_is_saved_listed_shown_and_found(said: Callable[..., Answer]) -> None:
    saved = said("add", "Deploy on Tuesdays, ops is there", "--type", "reference", "--expires", "2020-01-01")[1]
    assert "expired on 2020-01-01; update or forget it" in saved
    file = saved.split("saved ")[1].split()[0]
    assert "(expired on 2020-01-01) Deploy on Tuesdays" in said("list")[1]
    assert "(expired on 2020-01-01) Deploy on Tuesdays" in said("search", "Tuesdays")[1]
    assert "expired on 2020-01-01; not recalled" in said("show", file)[1]
    assert "expired" not in said("edit", file, "--expires", "9999-12-31")[1]
    assert "expired" not in "".join(said(*words)[1] for words in (["list"], ["search", "Tuesdays"], ["show", file]))
    assert "expired on 2020-01-02" in said("edit", file, "--expires", "2020-01-02")[1]


@pytest.mark.requirement("M6", "M12")
def test_reindex_repairs_the_index_of_the_team_too(
    told: Callable[..., Any], said: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_TEAM_MEMORY", str(tmp_path / "shared"))
    told("add", "Tickets of the ward are in the tracker", "--type", "reference")
    index = tmp_path / "shared" / "MEMORY.md"
    right = index.read_text()
    index.write_text(right * 2)
    assert "memory reindex" in said("lint")[1]
    assert said("reindex", "--dry-run")[1] == "the index would change\n"
    assert told("reindex")["team"]["id"].startswith("team:")
    assert (index.read_text(), said("reindex")[1]) == (right, "nothing to change\n")


def test_show_takes_the_start_of_a_name_and_names_near_ones(
    told: Callable[..., Any], said: Callable[..., Answer]
) -> None:
    first = told("add", "Use the real database in tests", "--type", "feedback")["file"]
    second = told("add", "Use tabs in Makefiles only", "--type", "feedback")["file"]
    for start in (first[:20], first[:20].upper(), "Use the real"):
        assert told("show", start)["file"] == first, start
    code, out, err = said("show", "use")
    assert (code, out) == (2, "")
    assert "'use' matches 2 memories" in err
    assert first in err
    assert second in err
    code, out, err = said("show", "use the raal data")
    assert (code, out) == (2, "")
    assert f"did you mean {first}?" in err
    for far in ("", "zzzzzzzz"):
        code, out, err = said("show", far)
        assert (code, out, "did you mean" in err) == (2, "", False)
    assert said("rm", first[:20])[0] == 2, "the start of a name deletes nothing"
    assert len(told("list")) == 2


def test_what_is_wrong_is_refused_in_one_clear_line(said: Callable[..., Answer]) -> None:
    for arguments, words in [
        (["add", "We are currently debugging it", "--type", "project"], "not saved: it is a passing detail"),
        (["add", "x", "--type", "idea"], "idea"),
        (["show", "nothing.md"], "there is no memory"),
        (["show", "../../etc/passwd.md"], "cannot be used"),
        (["undo"], "nothing to undo"),
        (["undo", "c99"], "no change"),
        (["rewind", "yesterday"], "is not a time"),
        (["rm"], "pass either"),
        (["edit", "nothing.md", "--text", "y"], "there is no memory"),
    ]:
        code, out, err = said(*arguments)
        assert (code, out) == (2, ""), arguments
        assert words in err
        assert err.count("\n") == 1


def test_lint_names_the_bad_file_and_leaves_by_1(
    told: Callable[..., Any], said: Callable[..., Answer], memory: Memory
) -> None:
    told("add", "The user is a nurse who codes in Rust", "--type", "user")
    (memory.path / "bad.md").write_text("---\nname: &x\n---\n")
    found = told("lint", code=1)
    assert {one["file"] for one in found} == {"bad.md"}
    code, out, _ = said("list")
    assert code == 0
    assert "nurse" in out


def test_review_shows_a_diff_and_accepts_or_rejects(
    told: Callable[..., Any], said: Callable[..., Answer], memory: Memory
) -> None:
    one = memory.save(
        "Deploys run at night by cron", type="user", author="extract", trust="unconfirmed", source="s1 m1"
    )
    two = memory.save(
        "Backups go to the other region", type="user", author="extract", trust="unconfirmed", source="s2 m1"
    )
    pending = told("review")["pending"]
    assert {entry["file"] for entry in pending} == {one.file, two.file}
    assert all("+trust: unconfirmed" in entry["diff"] for entry in pending)
    assert "+Deploys run at night by cron" in said("review")[1]
    told("review", "--accept", one.file, "--dry-run")
    assert len(told("review")["pending"]) == 2
    seen = {row["file"]: row["version"][:12] for row in pending}
    assert f"{one.file}@{seen[one.file]}" in said("review")[1]
    assert said("review", "--accept", f"{one.file}@{'0' * 12}")[0] != 0
    assert len(told("review")["pending"]) == 2, "it is not the version that was shown"
    assert told("review", "--accept", f"{one.file}@{seen[one.file]}", "--reject", two.file)["pending"] == []
    assert [(head.file, head.trust) for head in memory.list()] == [(one.file, "user")]


def test_forgetting_a_source_and_erasing_need_no_terminal_but_a_word(
    told: Callable[..., Any], said: Callable[..., Answer], memory: Memory
) -> None:
    memory.save("Deploys run at night by cron", type="user", source="s1 m1")
    assert len(told("rm", "--source", "s1", "--dry-run")["files"]) == 1
    code, _, err = said("rm", "--source", "s1", "--erase")
    assert (code, "confirmation needs a terminal" in err) == (2, True)
    kept = Path(os.environ["REVERIE_HOME"]) / "queue" / "words-of-hooks.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("{}")
    assert len(told("rm", "--source", "s1", "--erase", "--yes")["files"]) == 1
    assert not kept.exists(), "hooks keep the words of memories"
    assert b"cron" not in (memory.path / ".journal/journal.jsonl").read_bytes()


def test_a_deletion_names_the_change_that_undoes_it_unless_it_was_an_erasure(
    said: Callable[..., Answer], memory: Memory
) -> None:
    one, two = (memory.save(text, type="user").file for text in ("The user likes tabs", "The user likes rice"))
    assert "undo" not in said("rm", one, "--dry-run")[1]
    assert "recorded as c3; 'reverie memory undo c3' undoes this" in said("rm", one)[1]
    assert said("undo", "c3")[0] == 0
    assert {head.file for head in memory.list()} == {one, two}
    assert "undo" not in said("rm", two, "--erase", "--yes")[1]


def test_nothing_that_is_printed_can_drive_a_terminal(said: Callable[..., Answer], memory: Memory) -> None:
    memory.save(
        "Red \x1b[31malert\u202e for the user",
        type="user",
        name="red \x1b]0;x\x07",
        author="extract",
        trust="unconfirmed",
    )
    memory.update(memory.list()[0].file, why="because \x1b[2J", description="an alert \x1b[1m for all of us")
    file = memory.list()[0].file
    for arguments in (["list"], ["show", file], ["log"], ["blame", file], ["review"], ["lint"]):
        _, out, err = said(*arguments)
        assert not set(out + err) & {"\x1b", "\x07", "\u202e"}, arguments


def test_another_project_has_other_memories(told: Callable[..., Any], tmp_path: Path) -> None:
    told("add", "The user is a nurse who codes in Rust", "--type", "user")
    (tmp_path / "other").mkdir()
    assert told("--project", tmp_path / "other", "list") == []
    assert told("list", "--project", tmp_path / "other") == []
    with pytest.raises(InputError, match="neither a directory"):
        Memory.open(tmp_path / "gone")
    (tmp_path / "gone").mkdir()
    Memory.open(tmp_path / "gone").save("The gate of the field is green", type="reference")
    (tmp_path / "gone").rmdir()
    assert [one["type"] for one in told("list", "--project", tmp_path / "gone")] == ["reference"]


def test_a_project_without_memories_has_no_history(said: Callable[..., tuple[int, str, str]]) -> None:
    assert said("log") == (0, "no changes yet; 'reverie memory add' makes one\n", "")


def test_saving_the_same_text_again_says_only_that(said: Callable[..., tuple[int, str, str]]) -> None:
    assert "has no line '**Why:** ...'" in said("add", "Use unittest, never pytest", "--type", "feedback")[1]
    code, out, err = said("add", "Use unittest, never pytest", "--type", "feedback")
    assert (code, err) == (0, "")
    assert out.splitlines() == ["feedback_use_unittest_never_pytest_29a3f7.md already contains this"]


def test_the_same_text_under_another_type_is_noticed(said: Callable[..., tuple[int, str, str]]) -> None:
    assert "the same text" not in said("add", "The user codes in Rust", "--type", "user")[2]
    assert "has the same text under another type" in said("add", "The user codes in Rust", "--type", "project")[2]


@pytest.fixture
def read_files(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return the inodes of all files that are read from now on; huge ones are not read in truth."""
    read, taken = os.read, set[int]()

    def noted(descriptor: int, size: int) -> bytes:
        found = os.fstat(descriptor)
        taken.add(found.st_ino)
        return read(descriptor, size) if found.st_size < 2**28 else b""

    monkeypatch.setattr(os, "read", noted)
    return taken


def test_a_huge_file_among_the_memories_costs_a_look_at_its_size(
    reverie: Callable[..., Answer], read_files: set[int]
) -> None:
    said = ["--type", "project", "--why", "w", "--name", "releases", "Releases are cut on Tuesdays."]
    assert reverie("memory", "add", *said)[0] == 0
    huge = Path(reverie("memory", "path")[1].strip()) / "project_huge.md"
    huge.write_text("---\nname: huge\ndescription: huge\ntype: project\n---\nbody\n")
    os.truncate(huge, 2**30)
    for words in (["show", "releases"], ["search", "releases"], ["list"], ["log"], ["undo", "--dry-run"]):
        assert reverie("memory", *words)[0] == 0
    assert reverie("stats")[0] == 0
    assert "has 1,073,741,824 bytes, and a memory at most 4 MB" in reverie("memory", "lint")[1]
    code, _, err = reverie("memory", "show", "project_huge.md")
    assert code == 2
    assert "shorten it or move it away" in err
    assert huge.stat().st_ino not in read_files
    assert read_files


def test_a_huge_index_costs_a_look_at_its_size_and_a_warning(
    reverie: Callable[..., Answer], read_files: set[int]
) -> None:
    said = ["--type", "project", "--why", "w", "--name", "releases", "Releases are cut on Tuesdays."]
    assert reverie("memory", "add", *said)[0] == 0
    folder = Path(reverie("memory", "path")[1].strip())
    os.truncate(folder / "MEMORY.md", 2**30)
    for words in (["show", "releases"], ["search", "releases"], ["list"], ["log"]):
        assert reverie("memory", *words)[0] == 0, words
    assert reverie("stats")[0] == 0
    assert "MEMORY.md has 1,073,741,824 bytes" in reverie("memory", "lint")[1]
    code, _, err = reverie("memory", "add", *said[:4], "Another fact about the releases.")
    assert code == 2
    assert "shorten it or move it away" in err
    assert "1,073,741,824 bytes" in MemoryStore(str(folder)).load_index().warning
    assert (folder / "MEMORY.md").stat().st_ino not in read_files


def test_on_a_narrow_screen_the_description_stands_whole_below_its_file(
    said: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "The user prefers British spelling in all documentation that customers read, and American in code"
    assert said("add", text, "--type", "user")[0] == 0
    monkeypatch.setenv("COLUMNS", "80")
    first, *below = said("list")[1].splitlines()
    assert first.endswith(".md")
    assert " ".join(" ".join(below).split()) == text
    assert max(map(len, [first, *below])) <= 80
    monkeypatch.setenv("COLUMNS", "200")
    assert said("list")[1].startswith("modified ")


def test_memories_are_exported_and_imported_byte_for_byte_and_the_import_is_undone_as_one(
    told: Callable[..., Any], said: Callable[..., Answer], memory: Memory, tmp_path: Path
) -> None:
    files = [told("add", text)["file"] for text in ("The office is in Delft", "The heating fails in May")]
    exported = tmp_path / "exported"
    assert told("export", exported, "--dry-run")["files"] == sorted([*files, "MEMORY.md"])
    assert not exported.exists()
    assert said("export", exported)[0] == 0
    assert said("export", exported)[0] == 2, "the folder exists"
    before = {path.name: path.read_bytes() for path in exported.iterdir()}
    (exported / ".journal").mkdir()
    (exported / ".journal" / "journal.jsonl").write_text("of another directory")
    told("rm", *files)
    dry = told("import", exported, "--dry-run")
    assert (sorted(dry["imported"]), dry["id"], memory.list()) == (sorted(files), "", [])
    made = told("import", exported)
    assert {file: memory.path_of(file).read_bytes() for file in files} == {file: before[file] for file in files}
    assert {head.trust for head in memory.list()} == {"agent"}, "a file's own claim gives it no trust of the user"
    assert all(file in memory.index().text for file in files)
    assert told("import", exported)["same"] == sorted(files)
    told("undo", made["id"])
    assert memory.list() == []


def test_an_import_replaces_nothing_unasked_and_takes_no_secret_and_no_link(
    told: Callable[..., Any], memory: Memory, tmp_path: Path
) -> None:
    file, other = told("add", "The office is in Delft")["file"], tmp_path / "other"
    ours = memory.path_of(file).read_bytes()
    other.mkdir()
    (other / file).write_bytes(ours + b"Since 2019.\n")
    (other / "secret.md").write_text("The key is AKIA" + "Z7QJX4PVN2MKWT5R")
    (tmp_path / "outside.md").write_text("Outside.")
    (other / "link.md").symlink_to(tmp_path / "outside.md")
    found = told("import", other, code=1)
    assert (found["different"], sorted(found["refused"])) == ([file], ["link.md", "secret.md"])
    assert memory.path_of(file).read_bytes() == ours
    assert told("import", other, "--replace", code=1)["imported"] == [file]
    assert memory.path_of(file).read_bytes() == ours + b"Since 2019.\n"
    assert memory.get(file).trust == "agent"
