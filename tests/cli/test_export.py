"""An export is the log byte for byte, and never overwrites a file without permission."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest

from reverie import Session

from .conftest import Asked, Reverie, on_a_screen


@pytest.fixture
def log(stocked: str, home: Path) -> bytes:
    """Return the bytes of the stocked log, made worse than any program would."""
    (path,) = home.rglob("fence-1.jsonl")
    path.write_bytes(path.read_bytes() + b"\x00\xff\x1b[2J not JSON\n" + b'{"torn')
    return path.read_bytes()


@pytest.mark.requirement("K14")
def test_stdout_gets_every_byte(log: bytes) -> None:
    command = [str(Path(sys.executable).with_name("reverie")), "export", "fence-1"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert done.stdout == log


@pytest.mark.requirement("K14")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_gets_every_byte_of_a_large_log_buffered_or_not(log: bytes, home: Path, unbuffered: str) -> None:
    (path,) = home.rglob("fence-1.jsonl")
    path.write_bytes(path.read_bytes() + b"\n" + b"x" * 3_000_000)
    command = [str(Path(sys.executable).with_name("reverie")), "export", "fence-1"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, capture_output=True, timeout=60, check=True, env=environment)
    assert done.stdout == path.read_bytes()


@pytest.mark.requirement("K14")
def test_a_file_gets_every_byte_and_is_its_owners_alone(reverie: Reverie, log: bytes, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    before = os.umask(0)
    try:
        code, out, _ = reverie("export", "fence-1", "--output", target)
    finally:
        os.umask(before)
    assert (code, target.read_bytes()) == (0, log)
    assert target.stat().st_mode & 0o777 == 0o600
    assert out.startswith("wrote ")


def test_nothing_is_written_over_unless_it_is_forced(reverie: Reverie, log: bytes, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("precious")
    code, _, err = reverie("export", "fence-1", "-o", target)
    assert (code, target.read_text()) == (2, "precious")
    assert "--force" in err
    assert reverie("export", "fence-1", "-o", target, "--force")[0] == 0
    assert target.read_bytes() == log
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_that_a_killed_export_left_in_the_users_folder_goes_with_a_later_one(
    reverie: Reverie, log: bytes, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    words = ["export", "fence-1", "-o", str(folder / "out.jsonl"), "--force"]
    killed = f"""
import os, signal
from reverie.cli.main import run
os.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
run({words!r})
"""
    assert subprocess.run([sys.executable, "-c", killed], timeout=60).returncode == -9
    [left] = folder.iterdir()
    theirs = folder / ".out.jsonl.1"
    theirs.write_text("of the user")
    assert reverie(*words)[0] == 0
    assert left.exists(), "its writer may still be at it"
    for one in (left, theirs):
        os.utime(one, (1, 1))
    assert reverie(*words)[0] == 0
    assert {one.name for one in folder.iterdir()} == {theirs.name, "out.jsonl"}


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_a_place_that_cannot_take_a_file_is_one_line_and_2(
    reverie: Reverie, log: bytes, tmp_path: Path, force: list[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path, tmp_path / "no" / "such", tmp_path / "pipe"):
        code, out, err = reverie("export", "fence-1", "-o", target, *force)
        assert (code, out, err.count("\n")) == (2, "", 1)
    assert list(tmp_path.iterdir()) == [tmp_path / "pipe"]


def test_a_dry_run_writes_nothing(reverie: Reverie, log: bytes, tmp_path: Path) -> None:
    code, out, _ = reverie("export", "fence-1", "-o", tmp_path / "out", "--dry-run")
    assert (code, list(tmp_path.iterdir())) == (0, [])
    assert out.startswith("would write")


def test_json_says_what_was_written_or_holds_the_log(asked: Asked, log: bytes, tmp_path: Path) -> None:
    report = asked("export", "fence-1", "-o", tmp_path / "out")
    assert (report["bytes"], report["sha256"]) == (len(log), hashlib.sha256(log).hexdigest())
    assert "log" not in report
    assert b64decode(asked("export", "fence-1")["log_base64"]) == log


@pytest.mark.requirement("S7")
def test_a_terminal_gets_no_control_characters(log: bytes) -> None:
    shown = on_a_screen("export", "fence-1").encode()
    assert b"not JSON" in shown
    assert b"\x1b" not in shown
    assert b"\x00" not in shown


def test_an_export_can_be_imported_again(
    asked: Asked, reverie: Reverie, stocked: str, home: Path, tmp_path: Path
) -> None:
    (path,) = home.rglob("fence-1.jsonl")
    before = path.read_bytes()
    reverie("export", stocked, "-o", tmp_path / "fence-1.jsonl")
    reverie("delete", stocked, "--yes")
    assert asked("import", tmp_path / "fence-1.jsonl", "--project", tmp_path)["imported"] == 1
    (again,) = home.rglob("*.jsonl")
    assert again.read_bytes() == before


def test_a_session_that_has_only_a_message_so_far_is_named_without_a_path_of_the_home(reverie: Reverie) -> None:
    Session.post("waiting", "The build is red.")
    code, out, err = reverie("export", "waiting")
    assert (code, out) == (2, "")
    assert err == "reverie: waiting has no log: it was deleted, or has only got messages so far\n"
