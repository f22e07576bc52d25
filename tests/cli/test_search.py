"""``reverie search``: messages of past sessions, with handles that ``reverie read`` opens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log_script import Script, call, text
from reverie import FileStorage, Library
from reverie.cli.main import COMMANDS
from reverie.runtime.places.projects import log_key, project_slug
from reverie.settings import load_settings

from .conftest import on_a_screen

Answer = tuple[int, str, str]

pytestmark = pytest.mark.skipif("search" not in COMMANDS, reason="the command is not in the table yet")


@pytest.fixture
def past(tmp_path: Path) -> Path:
    """Put two sessions of two projects into the library."""
    here, there = tmp_path / "here", tmp_path / "there"
    storage = FileStorage(load_settings().home)
    for folder, name in ((here, "fence"), (there, "harbour")):
        folder.mkdir()
        script = Script()
        script.user(f"Please mend the {name} \x1b[31mred")
        script.reply(text(f"The {name} by the lighthouse stands again."))
        Library(storage).store(log_key(project_slug(folder), name), script.entries)
    storage.close()
    return here


@pytest.mark.requirement("R8")
def test_what_is_found_can_be_opened_by_its_handle(
    past: Path, asked: Callable[..., Any], reverie: Callable[..., Answer]
) -> None:
    found = asked("search", "lighthouse fence")["messages"]
    assert found[0]["session"] == "fence"
    assert found[0]["kind"] == "assistant"
    code, out, _ = reverie("read", found[0]["session"], found[0]["handle"])
    assert code == 0
    assert "The fence by the lighthouse" in out


def test_a_project_and_a_limit_narrow_the_search(past: Path, asked: Callable[..., Any]) -> None:
    assert {one["session"] for one in asked("search", "lighthouse")["messages"]} == {"fence", "harbour"}
    assert {one["session"] for one in asked("search", "lighthouse", "--project", past)["messages"]} == {"fence"}
    assert len(asked("search", "lighthouse", "--limit", 1)["messages"]) == 1


@pytest.mark.requirement("S7")
def test_what_is_printed_cannot_drive_a_terminal(past: Path, reverie: Callable[..., Answer]) -> None:
    code, out, _ = reverie("search", "mend fence")
    assert code == 0
    assert "mend the fence" in out
    assert "\x1b" not in out


def test_nothing_found_says_so_and_bad_input_is_refused(past: Path, reverie: Callable[..., Answer]) -> None:
    assert reverie("search", "xyzzy")[:2] == (
        0,
        "No matches: a message must contain a word of the query. Try names, identifiers, parts of a path.\n",
    )
    assert reverie("search", "  ")[0] == reverie("search")[0] == 2
    assert reverie("search", "xyzzy", "plugh")[1].startswith("No matches")
    assert reverie("search", "x", "--project", past / "none")[0] == 2
    assert reverie("search", "x", "--limit", 0)[0] == 2


@pytest.mark.requirement("F1")
def test_it_is_switched_off_with_memory(
    past: Path, reverie: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_SWITCH_MEMORY", "off")
    code, _, said = reverie("search", "fence")
    assert code == 2
    assert "switched off" in said


def test_the_messages_of_a_session_stand_below_its_title(past: Path, reverie: Callable[..., Answer]) -> None:
    code, out, _ = reverie("search", "mend fence lighthouse")
    assert code == 0
    titles = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert [title.split("/")[-1] for title in titles] == ["fence", "harbour"]
    assert titles[0].startswith("Please mend the fence")


def test_the_beginning_of_a_handle_opens_one_message(
    sample: Path, asked: Callable[..., Any], reverie: Callable[..., Answer]
) -> None:
    asked("import", sample)
    found = asked("search", "tide")["messages"][0]
    whole = reverie("read", found["session"], found["handle"])
    assert whole[0] == 0
    assert reverie("read", found["session"], found["handle"][:8]) == whole
    assert reverie("read", found["session"], found["handle"][:7])[0] == 2


def test_a_result_is_called_one_and_the_last_line_on_a_terminal_opens_a_message(
    home: Path, tmp_path: Path, reverie: Callable[..., Answer]
) -> None:
    script = Script()
    script.user("Look at the pier.")
    script.reply(call("t1", "Read", file_path="/repo/pier.txt"))
    script.result("t1", "The lantern of the pier is broken.")
    storage = FileStorage(home)
    Library(storage).store(log_key(project_slug(tmp_path), "pier"), script.entries)
    storage.close()
    piped = reverie("search", "lantern broken")[1]
    lines = piped.splitlines()
    [shown] = [at for at, line in enumerate(lines) if "lantern" in line]
    assert "  result  " in lines[shown - 1]
    assert "reverie read" not in piped
    last = on_a_screen("search", "lantern broken").strip().splitlines()[-1]
    assert last.endswith("shows the first message in full.")
    code, out, _ = reverie(*last.split("'")[1].split()[1:])
    assert code == 0
    assert "The lantern of the pier is broken." in out
