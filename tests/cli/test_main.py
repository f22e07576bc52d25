"""The command: help without imports, and one place where errors become a line and an exit code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from reverie.cli.main import COMMANDS, RENAMED, LazyGroup, group, run
from reverie.errors import InputError, ReverieError, StorageError

FIRST_PAGE = (
    "chat demo replay context stats sessions show search keep export delete compact notes memory dream agents inspect "
    "install import move mcp gateway acp db config trust doctor completion"
)


def reverie(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the installed command as a person would."""
    command = [str(Path(sys.executable).with_name("reverie")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload]


def failing(error: BaseException | Callable[[], object]) -> click.Command:
    """Return a command that fails in one way."""

    def callback() -> None:
        if isinstance(error, BaseException):
            raise error
        error()

    return click.Command("fails", callback=callback)


@pytest.mark.requirement("U4")
def test_help_fits_on_one_screen_and_lists_the_main_commands() -> None:
    done = reverie("--help", env={**os.environ, "COLUMNS": "80"})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert listed(done.stdout) == set(FIRST_PAGE.split())


def test_help_all_lists_every_command() -> None:
    assert listed(reverie("help", "all").stdout) == set(COMMANDS)


def listed(page: str) -> set[str]:
    """Return the commands of a page of help."""
    return set(re.findall(r"^  ([a-z]+)  +\S", page, re.MULTILINE))


@pytest.mark.requirement("U4")
@pytest.mark.parametrize(
    ("short", "long"),
    [
        (["help", "stats"], ["stats", "--help"]),
        (["version"], ["--version"]),
        (["-V"], ["--version"]),
        (["-p", "fix it"], ["chat", "-p", "fix it"]),
        (["-c"], ["chat", "-c"]),
        (["--model", "nobody:x", "fix it"], ["chat", "--model", "nobody:x", "fix it"]),
        (["fix the failing tests"], ["chat", "fix the failing tests"]),
        (["/review"], ["chat", "/review"]),
        (["--continu"], ["chat", "--continu"]),
    ],
)
def test_options_or_a_prompt_without_a_command_are_those_of_chat(
    short: list[str], long: list[str], tmp_path: Path
) -> None:
    bare = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    run_in = {"env": {**bare, "REVERIE_HOME": str(tmp_path)}, "cwd": tmp_path, "stdin": subprocess.DEVNULL}
    one, other = reverie(*short, **run_in), reverie(*long, **run_in)
    assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)
    assert one.stdout or one.stderr


@pytest.mark.requirement("U4")
@pytest.mark.parametrize(("wrong", "right"), [("replya", "replay"), ("session", "sessions"), ("exprot", "export")])
def test_a_mistyped_command_is_no_prompt_and_gets_a_suggestion(wrong: str, right: str) -> None:
    done = reverie(wrong)
    assert done.returncode == 2
    assert done.stderr == f"reverie: No such command '{wrong}'. Did you mean '{right}'? Try 'reverie --help'.\n"
    assert "Did you mean" not in reverie("qqqqqq").stderr
    assert 'reverie chat "qqqqqq xx"' in reverie("qqqqqq", "xx").stderr


@pytest.mark.requirement("U4")
@pytest.mark.parametrize("name", RENAMED)
def test_an_old_name_works_and_says_the_new_one(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"Usage: reverie {RENAMED[name][0]} ")
    assert f"'reverie {name}' is now 'reverie {' '.join(RENAMED[name])}'" in shown.err


@pytest.mark.requirement("U4")
def test_python_runs_the_package() -> None:
    done = subprocess.run([sys.executable, "-m", "reverie", "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"reverie {version('reverie')}\n"


def test_no_command_at_all_is_a_question_for_help() -> None:
    assert reverie().stdout == reverie("--help").stdout
    assert reverie().returncode == 0


def test_version_is_that_of_the_package() -> None:
    assert reverie("--version").stdout == f"reverie {version('reverie')}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_row_of_the_table_is_a_command_with_help(name: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert command.help


def test_a_commands_module_is_imported_only_when_it_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lazy_example.py").write_text(
        "import click\n@click.command()\ndef command():\n    click.echo('ran')\n    return 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    group = LazyGroup("reverie", table={"example": ("lazy_example", "An example.")})
    assert run(["--help"], commands=group) == 0
    assert "lazy_example" not in sys.modules
    assert run(["example"], commands=group) == 3
    assert "lazy_example" in sys.modules


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("notes.txt: not a session; give a .jsonl file"), "notes.txt: not a session; give a .jsonl file"),
        (StorageError("x: no space left", path="x"), "x: no space left"),
        (ReverieError(), "ReverieError"),
        (InputError("first\nsecond\x1b[2J"), "first second"),
        (PermissionError(13, "Permission denied", "/some/file"), "/some/file: Permission denied"),
        (FileNotFoundError(2, "No such file or directory", b"bytes"), "bytes: No such file or directory"),
        (OSError("odd"), "odd"),
        (click.UsageError("Missing argument 'FILE'."), "Missing argument 'FILE'. Try 'reverie --help'."),
        (click.FileError("a.toml", "gone"), "Could not open file 'a.toml': gone. Try 'reverie --help'."),
    ],
)
def test_an_error_is_one_line_on_stderr_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    assert run([], commands=failing(error)) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"reverie: {line}\n")


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run([], commands=failing(ZeroDivisionError()))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_quiet_and_130(capsys: pytest.CaptureFixture[str], error: BaseException) -> None:
    assert run([], commands=failing(error)) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nonsense"], ["doctor", "--nonsense"], ["doctor", "too", "much"]])
def test_a_wrong_command_line_is_one_line_and_2(arguments: list[str]) -> None:
    done = reverie(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("reverie: ")
    assert done.stderr.count("\n") == 1
    assert "--help" in done.stderr


def test_an_error_that_names_a_hostile_path_prints_harmlessly() -> None:
    done = reverie("\x1b]0;owned\x07doctor")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert "\x07" not in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["doctor", "--json"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [str(Path(sys.executable).with_name("reverie")), *arguments]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_behind_stdout_is_one_line_and_2() -> None:
    with open("/dev/full", "w") as full:
        command = [str(Path(sys.executable).with_name("reverie")), "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "reverie: No space left on device\n")


def test_a_terminal_that_knows_ascii_only_gets_escapes_and_no_trace(home: Path) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "REVERIE_HOME": str(home / "é")}
    done = reverie("doctor", env=environ)
    assert "\\xe9" in done.stdout
    assert done.stderr == ""


@pytest.mark.requirement("B6")
def test_one_runtime_has_a_door_for_every_kind_of_user(capsys: pytest.CaptureFixture[str]) -> None:
    import reverie

    assert {"Session", "SyncSession", "Agent", "Memory"} <= set(dir(reverie))
    for door in ("chat", "mcp", "hook", "gateway", "inspect", "acp"):
        assert run([door, "--help"]) == 0, door
        assert "Usage: reverie" in capsys.readouterr().out
