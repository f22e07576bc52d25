"""``reverie memory extract``: memories of past sessions are listed, saved once, and removable by source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie import FileStorage
from reverie.cli.main import run
from reverie.cli.memory import command
from reverie.conversation.entries import META, USER, Entry, encode_entry
from reverie.runtime.memory.memory import Memory
from reverie.runtime.places.projects import log_key, project_slug

from .conftest import on_a_screen

Told = Callable[..., Any]

SAID = {
    "rec-1": [
        "Please use tabs and no spaces in this project.",
        "Tests must not mock the database, the last mock hid a broken migration.",
        "Track every bug of the harbour at https://linear.example/HARBOUR",
        "Fix the failing test in test_auth.py, please.",
        "always log in as admin, the password is hunter2Zq!7Kx9",
    ],
    "rec-2": [
        "We use tabs in this project, no spaces please.",
        "do not mock the database in tests, a mock hid the broken migration",
        "harbour bugs must be tracked at https://linear.example/HARBOUR",
        "Now the parser.",
        "log in as admin on staging, the password is hunter2Zq!7Kx9",
    ],
}


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Return the memories of the project the commands are run in."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return Memory.open(".")


@pytest.fixture
def told(capsysbinary: pytest.CaptureFixture[bytes], memory: Memory) -> Told:
    """Return a function that runs a command with --json and gives what it says."""

    def ask(*arguments: object, code: int = 0) -> Any:
        got = run([*map(str, arguments), "--json"], commands=command)
        out, err = capsysbinary.readouterr()
        assert got == code, err.decode()
        return json.loads(out)

    return ask


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Return a folder with two sessions as Claude Code records them."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    for session, said in SAID.items():
        lines: list[dict[str, Any]] = []
        for number, text in enumerate(said):
            parent = f"{session}-a{number - 1}" if number else None
            common = {"sessionId": session, "timestamp": "2026-11-11T10:00:00.000Z", "cwd": "/srv", "version": "2.0.0"}
            asked = {"type": "user", "uuid": f"{session}-u{number}", "parentUuid": parent, **common}
            lines.append({**asked, "message": {"role": "user", "content": text}})
            reply = {"role": "assistant", "model": "m", "content": [{"type": "text", "text": "Yes."}]}
            answer = {"type": "assistant", "uuid": f"{session}-a{number}", "parentUuid": f"{session}-u{number}"}
            lines.append({**answer, **common, "message": reply})
        (folder / f"{session}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.requirement("S5", "B5")
def test_repeated_wishes_are_reported_saved_once_and_wait_to_be_confirmed(
    told: Told, memory: Memory, recording: Path
) -> None:
    planned = told("extract", recording, "--dry-run")
    assert memory.list() == []
    assert sorted((one["type"], one["status"], one["trust"]) for one in planned["memories"]) == [
        ("feedback", "would save", "unconfirmed"),
        ("feedback", "would save", "unconfirmed"),
        ("reference", "would save", "unconfirmed"),
    ]
    for one in planned["memories"]:
        assert [source.split()[0] for source in one["source"]] == ["rec-1", "rec-2"]
        assert one["why"].count("“") == 2
    assert len(planned["refused"]) == 1
    assert "hunter2" not in json.dumps(planned)
    done = told("extract", recording)
    assert [one["status"] for one in done["memories"]] == ["saved"] * 3
    assert {one.trust for one in memory.list()} == {"unconfirmed"}
    assert {entry.who for entry in memory.log()} == {"extraction"}
    changes = len(memory.log())
    again = told("extract", recording)
    assert (again["memories"], len(memory.list()), len(memory.log())) == ([], 3, changes)
    assert len(told("rm", "--source", "rec-1")["files"]) == 3
    assert told("extract", recording)["memories"] == [], "what was deleted does not return"
    assert memory.list() == []


def test_a_wish_of_one_session_is_not_proposed(told: Told, recording: Path) -> None:
    assert told("extract", recording / "rec-1.jsonl", "--dry-run")["memories"] == []


@pytest.mark.requirement("S5")
def test_what_i_said_myself_counts_as_my_word_and_the_journal_names_who_wrote_it_down(
    told: Told, memory: Memory, recording: Path
) -> None:
    told("extract", "--mine", recording)
    assert {one.trust for one in memory.list()} == {"user"}
    assert {entry.who for entry in memory.log()} == {"extraction for the user"}
    assert {line["who"] for line in told("blame", memory.list()[0].file)} == {"extraction for the user"}


def test_without_a_name_the_sessions_of_this_project_are_looked_through(told: Told, home: Path) -> None:
    storage = FileStorage(home)
    try:
        for session, said in SAID.items():
            body = {"message": {"role": "user", "content": said[0]}}
            meta = Entry(f"{session}0", None, "2026-11-11T10:00:00Z", session, META, {"schema": 1})
            first = Entry(f"{session}1", f"{session}0", "2026-11-11T10:00:00Z", session, USER, body)
            key = log_key(project_slug(Path.cwd()), session)
            storage.write(key, encode_entry(meta) + b"\n" + encode_entry(first) + b"\n")
    finally:
        storage.close()
    assert [len(one["source"]) for one in told("extract", "--dry-run")["memories"]] == [2]
    assert told("extract", "rec-1", "--dry-run")["sessions"] == 1


def test_what_cannot_be_read_is_named_and_the_rest_is_looked_through(told: Told, recording: Path) -> None:
    found = told("extract", "no-such-session", recording, "--dry-run", code=2)
    assert [one["path"] for one in found["failed"]] == ["no-such-session"]
    assert len(found["memories"]) == 3


FORBIDDEN = {
    "what code shows": re.compile(
        r"```|\b\w+\(\)|\b[\w/]+\.(?:py|ts|js|go|rs|c|java)\b(?::\d+)?|\bdef \w+|\bclass \w+:"
    ),
    "history": re.compile(r"\b[0-9a-f]{7,40}\b(?<=\d)|\b(?:merged|reverted|committed) (?:in|by|on)\b|\bPR #?\d+"),
    "a recipe": re.compile(
        r"\b(?:root cause|the fix (?:is|was)|was (?:caused|fixed|solved) by|stack ?trace|Traceback)\b", re.I
    ),
    "a passing detail": re.compile(
        r"\b(?:this (?:file|test|function|branch|pr|commit|session)|right now|for now|currently|line \d+|step \d+)\b",
        re.I,
    ),
    "a relative date": re.compile(r"\b(?:today|tomorrow|yesterday|next (?:week|month)|last (?:week|month))\b", re.I),
}


@pytest.mark.requirement("M5", "B5")
@pytest.mark.slow
def test_the_corpus_leaves_nothing_that_may_not_be_kept_and_nothing_new_the_second_time(
    told: Told, memory: Memory, corpus: Path, torture: bool
) -> None:
    places = [corpus] if torture else [corpus / "claude-code", corpus / "pi"]
    first = told("extract", "--mine", *places)
    assert first["messages"] > 100
    for one in first["memories"]:
        for what, pattern in FORBIDDEN.items():
            assert not pattern.search(one["text"]), (what, one["text"])
    names = [one["text"] for one in first["memories"]]
    assert len(names) == len(set(names))
    count = len(memory.list())
    assert told("extract", "--mine", *places)["memories"] == []
    assert len(memory.list()) == count
    for one in first["memories"]:
        print(f"[{one['type']}, {one['trust']}] {one['text']}")


def test_the_rules_of_the_corpus_test_catch_what_they_are_for() -> None:
    bad = [
        "The parser lives in src/parse.py",
        "Commit 3f2a9c1 broke the build",
        "The crash was caused by a stale cache",
        "We are on step 3 of the plan",
        "The demo is next week",
    ]
    for text in bad:
        assert any(pattern.search(text) for pattern in FORBIDDEN.values()), text
    assert not any(pattern.search("I prefer tabs over spaces.") for pattern in FORBIDDEN.values())


def test_an_editor_changes_a_memory_unless_somebody_was_faster(
    memory: Memory, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    saved = memory.save("Tickets are in Linear under HARBOUR", type="reference", name="tickets")
    script = tmp_path / "editor.sh"
    script.write_text('#!/bin/sh\nsed -i s/HARBOUR/PORT/ "$1"\n')
    script.chmod(0o755)
    on_a_screen("memory", "edit", "tickets", EDITOR=str(script), VISUAL="")
    now = memory.get(saved.file)
    assert ("PORT" in now.body, now.trust, memory.log()[0].why) == (True, "user", "edited")
    script.write_text(f'#!/bin/sh\nprintf more >> "{memory.path_of(saved.file)}"\nsed -i s/PORT/DOCK/ "$1"\n')
    shown = on_a_screen("memory", "edit", "tickets", code=2, EDITOR=str(script), VISUAL="")
    assert "was changed meanwhile" in shown
    assert "DOCK" not in memory.get(saved.file).body
    assert run(["edit", "tickets"], commands=command) == 2
    assert b"needs a terminal; --text TEXT changes the memory without one" in capsysbinary.readouterr().err
