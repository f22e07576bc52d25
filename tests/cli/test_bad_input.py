"""Bad input gives one clear line on stderr and exit code 2, never a traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from .conftest import Reverie

READERS = (
    ["context"],
    ["show"],
    ["show", "--view"],
    ["import"],
    ["context", "--json"],
    ["import", "--dry-run", "--json"],
)


@pytest.fixture(params=["missing", "directory", "binary", "unknown", "empty", "pipe", "odd name", "beneath a file"])
def unusable(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a path that no session can be read from."""
    path = tmp_path / "bad.jsonl"
    match request.param:
        case "missing":
            pass
        case "directory":
            path.mkdir()
        case "binary":
            path.write_bytes(bytes(range(256)) * 50)
        case "unknown":
            path.write_text('{"some": "thing"}\n{"else": 1}\n')
        case "empty":
            path.touch()
        case "pipe":
            os.mkfifo(path)
        case "beneath a file":
            path.write_text("x")
            path = path / "deeper.jsonl"
        case _:
            path = tmp_path / ("n\x1b[2Jo\nsuch" + "x" * 300)
    return path


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_a_path_that_cannot_be_used_is_one_line_and_2(reverie: Reverie, unusable: Path, command: list[str]) -> None:
    code, out, err = reverie(*command, unusable)
    assert code == 2
    assert "\x1b" not in err
    assert err.startswith("reverie: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert len(err) > len("reverie: \n") + 10
    assert out == "" or "--json" in command


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "nothing-like-it"],
        ["context", "nothing-like-it"],
        ["export", "nothing-like-it"],
        ["delete", "nothing-like-it", "--yes"],
        ["sessions", "--project", "/no/such/place"],
        ["import", "/no/such/place", "--project", "/no/such/place"],
        ["context", "x", "--window", "0"],
        ["context", "x", "--window", "many"],
    ],
    ids=" ".join,
)
def test_a_name_that_leads_nowhere_is_one_line_and_2(reverie: Reverie, arguments: list[str]) -> None:
    code, out, err = reverie(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_home_that_is_no_directory_is_said_by_every_command(
    reverie: Reverie, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").write_text("in the way")
    monkeypatch.setenv("REVERIE_HOME", str(home / "file"))
    said = f"reverie: the home {home / 'file'} is not a directory; set REVERIE_HOME to one that you can write to\n"
    for arguments in (
        "sessions",
        "show x",
        "memory add x",
        "config",
        "config model x",
        "import x",
        "stats",
        "trust --yes",
    ):
        assert reverie(*arguments.split()) == (2, "", said)
    monkeypatch.setenv("REVERIE_HOME", str(home / "file" / "deeper"))
    assert f"cannot be created: {home / 'file'} is not a directory" in reverie("sessions")[2]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system that takes any bytes as names")
def test_a_name_that_is_no_text_is_no_trouble(reverie: Reverie, tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.jsonl")
    code, _, err = reverie("context", name)
    assert (code, err.count("\n")) == (2, 1)


AS_NOBODY = """
import os, sys
from reverie.cli.main import run
sample, *paths = sys.argv[1:]
for command in (["context"], ["show"], ["import", "--dry-run"]):  # whatever is imported is imported now
    run([*command, sample])
print("---", flush=True)
print("---", file=sys.stderr, flush=True)
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
for path in paths:
    for command in (["context"], ["show"], ["import", "--dry-run"]):
        print(run([*command, path]), flush=True)
"""


def test_what_this_user_may_not_read_is_one_line_and_2(sample: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        file, closed = Path(folder, "secret.jsonl"), Path(folder, "closed")
        shutil.copy(sample, file)
        file.chmod(0)
        closed.mkdir(mode=0)
        environ = {**os.environ, "REVERIE_HOME": folder}
        command = [sys.executable, "-c", AS_NOBODY, str(sample), str(file), str(closed / "x.jsonl"), str(closed)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder, env=environ)
    out, err = done.stdout.split("---\n")[1], done.stderr.split("---\n")[1]
    assert out.split() == ["2"] * 9, done.stderr
    assert [line for line in err.splitlines() if not line.startswith("reverie: ")] == []
    assert len(err.splitlines()) == 9
    assert err.count("may not be read by this user") >= 7


def test_a_stray_setting_of_a_repository_is_one_line_and_the_command_goes_on(
    reverie: Reverie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / ".reverie.toml").write_text('"st\\u001bray" = 1\n')
    monkeypatch.chdir(repository)
    code, out, err = reverie("memory", "list")
    assert (code, out.count("\n")) == (0, 1)
    assert err.startswith("reverie: warning: ignored: .reverie.toml: unknown setting st")
    assert err.count("\n") == 1
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("replya", "No such command 'replya'. Did you mean 'replay'? Try 'reverie --help'."),
        ("memory lst", "No such command 'lst'. Did you mean 'list'? Try 'reverie memory --help'."),
        (
            "help nosuch",
            "No such command 'nosuch'. To send it as a prompt: 'reverie chat nosuch'. Try 'reverie --help'.",
        ),
        ("chat --modle x", "No such option '--modle'. Did you mean '--model'? Try 'reverie chat --help'."),
        ("keep --foo", "No such option '--foo'. Try 'reverie keep --help'."),
        ("chat --budget x", "Invalid value for '--budget': 'x' is not a number. Try 'reverie chat --help'."),
        ("stats --days 0", "Invalid value for '--days': 0 is not between 1 and 36500. Try 'reverie stats --help'."),
        ("chat --max-turns 0", "Invalid value for '--max-turns': 0 is less than 1. Try 'reverie chat --help'."),
        ("demo --tokens x", "Invalid value for '--tokens': 'x' is not a whole number. Try 'reverie demo --help'."),
        ("replay --model gtp5", "no price is known for 'gtp5'; did you mean gpt-5?"),
        ("show nosuch", "'nosuch' is neither a session nor a file; 'reverie sessions' lists all sessions"),
        ("agents --session nosuch", "there is no session 'nosuch'; 'reverie sessions' lists them"),
        ("memory show nosuch", "there is no memory 'nosuch'; 'reverie memory list' lists the memories"),
        ("memory rewind yesterday", "'yesterday' is not a time; write it like 2026-11-15 or 2026-11-15T14:30"),
        ("memory --project /no/such list", "there is neither a directory '/no/such' nor a memory of it"),
        ("config presett thrifty", "config: unknown setting presett; did you mean preset?"),
        ("config preset cheap", "config: preset is 'cheap'; say faithful, balanced, thrifty"),
        ("config compact.patience abc", "config: compact.patience: give a number"),
        ("config agent.max_turns 2.5", "config: agent.max_turns: give a whole number"),
        (
            "delete --before yesterday",
            "--before 'yesterday' is no date; give one such as 2026-01-31 or 2026-01-31T18:30",
        ),
        ("replay --since yesterday", "--since 'yesterday' is no date; give one such as 2026-01-31 or 2026-01-31T18:30"),
        ("compact s --undo --model x", "--undo takes no other option but --dry-run, --yes and --json"),
        ("trust /no/such", "/no/such is not a directory, so it cannot be trusted"),
    ],
)
def test_a_new_user_s_mistake_is_one_line_that_says_what_to_do(reverie: Reverie, words: str, said: str) -> None:
    assert reverie(*words.split()) == (2, "", f"reverie: {said}\n")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["search"], "the query is empty: pass a few words to search for"),
        (["memory", "search"], "the query is empty: pass a few words to search for"),
        (["show"], "the name of the session is empty; 'reverie sessions' lists them"),
        (["export"], "the name of the session is empty; 'reverie sessions' lists them"),
        (["memory", "show"], "the name of the memory is empty; 'reverie memory list' lists the memories"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_argument_is_said_to_be_empty(reverie: Reverie, command: list[str], said: str, empty: str) -> None:
    assert reverie(*command, empty) == (2, "", f"reverie: {said}\n")


@pytest.mark.parametrize(
    "call",
    [
        ["compact", "--dry-run"],
        ["redact", "--scan"],
        ["notes", "--update"],
        ["rules", "--add", "Use tabs"],
        ["export"],
        ["read", "--search", "x"],
    ],
    ids=lambda call: str(call[0]),
)
def test_a_command_that_takes_only_sessions_says_how_a_recording_becomes_one(
    reverie: Reverie, home: Path, tmp_path: Path, call: list[str]
) -> None:
    file = tmp_path / "recorded.jsonl"
    file.write_text("{}\n")
    command, *options = call
    code, _, err = reverie(command, str(file), *(["t1"] if command == "read" else []), *options)
    assert code == 2
    assert f"recorded.jsonl is a file and no session: if it is a recording, 'reverie import {file}' makes a" in err
