"""Commands in a directory that nobody trusts run nothing from it."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from hostile_repository import bare_repository, hostile_repository
from reverie.cli.main import run
from reverie.cli.terminal.completion import project_files
from reverie.testing.messages_server import MessagesServer

COMMANDS = (
    "doctor",
    "sessions",
    "memory list",
    "memory search x",
    "search x",
    "stats",
    "trust --list",
    "agents",
    "inbox",
)


@pytest.fixture(params=["repository", "bare repository in a clone"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a directory whose git configuration names programs, each of which leaves a file in ``ran``."""
    (tmp_path / "id_rsa").touch()
    if request.param == "repository":
        return hostile_repository(tmp_path / "work", tmp_path / "ran", tmp_path / "id_rsa")
    (tmp_path / "ran").mkdir()
    return bare_repository(tmp_path / "clone" / "docs", tmp_path / "ran")


def ran(folder: Path) -> list[str]:
    places = [folder.parent / "ran", folder.parent.parent / "ran"]
    return [path.name for place in places if place.is_dir() for path in place.iterdir()]


def typed_in_turn(command: list[str], steps: list[tuple[str, bytes]], environment: dict[str, str]) -> str:
    """Run a command on a terminal, type each text once the one before it is shown, and return all that was shown."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    shown, until = bytearray(), time.monotonic() + 60
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        try:
            while time.monotonic() < until:
                if steps and steps[0][0].encode() in shown:
                    os.write(leader, steps.pop(0)[1])
                if select.select([leader], [], [], 0.1)[0]:
                    shown += os.read(leader, 65_536)
        except OSError:  # the command has ended
            pass
        finally:
            process.kill()
            os.close(leader)
    return shown.decode(errors="replace")


@pytest.mark.slow
@pytest.mark.requirement("S2")
def test_a_chat_runs_nothing_from_its_directory(folder: Path, torture: bool) -> None:
    """The list of files is read when a chat begins and after every prompt; a second chat is a test of torture."""
    if folder.name == "docs" and not torture:
        assert "HEAD" in project_files(folder), "the list that a chat takes"
        assert ran(folder) == []
        return
    command = [str(Path(sys.executable).with_name("reverie")), "chat", "--model", "anthropic:claude-sonnet-5"]
    with MessagesServer(lambda request: "Good evening.") as server:
        given = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "a key", "TERM": "xterm-256color"}
        steps = [("Shift-Tab mode", b"hello\r"), ("Good evening.", b"/quit\r")]
        environment = {**os.environ, **given, "REVERIE_SWITCH_EXTRACTION": "off"}
        shown = typed_in_turn([*command, "--cwd", str(folder)], steps, environment)
        assert steps == [], shown
        assert len(server.requests) == 1
    assert ran(folder) == []
    subprocess.run(["git", "ls-files"], cwd=folder, capture_output=True)
    assert ran(folder), "the installed git runs a program for the same list"


@pytest.mark.requirement("S2")
def test_other_commands_run_nothing_from_their_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for command in COMMANDS:
        assert run(command.split()) in (0, 1), capfd.readouterr().err
    call = {"session_id": "s", "cwd": str(folder), "transcript_path": "", "prompt": "hello"}
    for event in ("SessionStart", "UserPromptSubmit", "Stop"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(call).encode())))
        with pytest.raises(SystemExit, match="0"):
            run(["hook", "--host", "claude-code", event])
    assert ran(folder) == []
