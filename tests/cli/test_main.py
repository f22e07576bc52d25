"""The command: help without imports, and one place where errors become a line and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from reverie.cli.main import COMMANDS, LazyGroup, group, run
from reverie.errors import InputError, ReverieError, StorageError


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


def test_help_lists_every_command() -> None:
    done = reverie("--help")
    assert done.returncode == 0
    assert [line for name, (_, line) in COMMANDS.items() if name not in done.stdout] == []
    assert done.stderr == ""


def test_no_command_at_all_is_a_question_for_help() -> None:
    assert reverie().stdout == reverie("--help").stdout
    assert reverie().returncode == 0


def test_version_is_that_of_the_package() -> None:
    assert reverie("--version").stdout == f"reverie {version('reverie')}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_table_is_the_one_the_command_gives_itself(name: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert command.get_short_help_str(limit=200) == COMMANDS[name][1]


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
