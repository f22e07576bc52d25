"""``reverie notes``: show, update and edit the notes of a session."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from log_script import Script, call, text
from reverie import FileStorage, Library
from reverie.layers.l3_notes.sections import HEADINGS
from reverie.runtime.session.notes.keeper import NOTES_FILE

from .conftest import Asked, Reverie, on_a_screen

KEY = "projects/farm-1/fence-7.jsonl"


@pytest.fixture(autouse=True)
def session(home: Path) -> None:
    script = Script()
    script.user("Mend the fence in /farm/fence.py so that it holds 2,000 sheep \x1b[31m")
    script.reply(text("Looking."), call("t1", "Read", file_path="/farm/fence.py"))
    script.result("t1", "posts = 3\n")
    script.reply(call("t2", "Bash", command="make test"))
    script.result("t2", "ValueError: too few posts\nExit code 2")
    script.reply(text("It has too few posts."))
    storage = FileStorage(home)
    Library(storage).store(KEY, script.entries)
    storage.close()


def notes_file(home: Path) -> Path:
    return home / KEY.removesuffix(".jsonl") / NOTES_FILE


def test_a_session_without_notes_is_shown_some_and_keeps_none(reverie: Reverie, home: Path) -> None:
    code, out, err = reverie("notes", "fence-7")
    assert code == 0
    assert [line[2:] for line in out.splitlines() if line.startswith("# ")] == list(HEADINGS)
    assert "/farm/fence.py" in out
    assert "\x1b" not in out
    assert "has no notes yet" in err
    assert not notes_file(home).exists()
    assert FileStorage(home).load(KEY) is not None


@pytest.mark.requirement("L3.1", "L3.8")
def test_an_update_on_demand_is_logged_and_written(reverie: Reverie, asked: Asked, home: Path) -> None:
    made = asked("notes", "fence-7", "--update")
    assert made["kept"] is True
    assert "Current State" in made["changed"]
    assert made["covered"] == "e5"
    assert Path(made["path"]) == notes_file(home)
    assert stat.S_IMODE(os.stat(notes_file(home)).st_mode) == 0o600
    shown = asked("notes", "fence-7")
    assert shown["sections"] == made["sections"]
    assert shown["total_tokens"] == sum(shown["tokens"].values())
    again = asked("notes", "fence-7", "--update")
    assert again["changed"] == []
    code, out, err = reverie("notes", "fence-7")
    assert (code, err) == (0, "")
    assert "ValueError: too few posts" in out


def test_a_recording_of_another_agent_can_be_read_too(reverie: Reverie, sample: Path) -> None:
    code, out, _ = reverie("notes", sample)
    assert code == 0
    assert out.count("\n# ") == 9


@pytest.mark.requirement("L3.1")
def test_an_edit_by_hand_is_logged_as_a_persons(tmp_path: Path, asked: Asked) -> None:
    asked("notes", "fence-7", "--update")
    editor = tmp_path / "editor"
    about = "_What worked, what did not, what to avoid._"
    editor.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\npath = pathlib.Path(sys.argv[1])\n"
        f"path.write_text(path.read_text().replace('{about}', '{about}\\n\\nAsk Ann first.'))\n"
    )
    editor.chmod(0o700)
    on_a_screen("notes", "fence-7", "--edit", EDITOR=str(editor), VISUAL="")
    assert asked("notes", "fence-7")["sections"]["Learnings"] == "Ask Ann first."
    kept = asked("notes", "fence-7", "--update")["sections"]["Learnings"]
    assert kept.startswith("Ask Ann first.")


@pytest.mark.slow
def test_an_edit_that_loses_the_headings_is_refused_and_kept(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f"#!{sys.executable}\nimport pathlib, sys\npathlib.Path(sys.argv[1]).write_text('mine')\n")
    editor.chmod(0o700)
    shown = on_a_screen("notes", "fence-7", "--edit", code=2, EDITOR=str(editor), VISUAL="")
    assert "damaged" in shown
    left = Path(shown.split("your text is in ")[1].split()[0].strip())
    assert left.read_text() == "mine"
    left.unlink()


@pytest.mark.parametrize(
    "arguments",
    [
        ("notes", "fence-7", "--edit"),
        ("notes", "fence-7", "--edit", "--update"),
        ("notes", "nobody"),
        ("notes", "nobody", "--update"),
        ("notes",),
        ("notes", "fence-7", "--update", "--as-skill"),
        ("notes", "fence-7", "--dry-run"),
    ],
)
def test_bad_input_is_one_line_and_2(reverie: Reverie, arguments: tuple[str, ...]) -> None:
    code, out, err = reverie(*arguments)
    assert (code, out) == (2, "")
    assert err.strip()
    assert "Traceback" not in err
