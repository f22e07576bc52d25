"""Programs that the user chose for every project run nothing of a directory that is not trusted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent_stage import Stage, plays, results, use
from reverie.events import FellBack, HookRan
from reverie.runtime.places.trust import TrustList
from reverie.settings import HookCommand, McpServer
from reverie.tools import grep
from reverie.values import replace


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return an agent in a directory with programs named like those of the user, which leave a mark."""
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    stage = Stage(tmp_path, {"main": plays([use("Read", file_path="a.txt")], "Done.")})
    (stage.cwd / "a.txt").write_text("one\n")
    (stage.cwd / "things_server.py").write_text(f"open({str(tmp_path / 'ran-server')!r}, 'w')\n")
    for name in ("check.sh", "rg"):
        (stage.cwd / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{name}\n")
        (stage.cwd / name).chmod(0o755)
    return stage


def ran(tmp_path: Path) -> set[str]:
    return {path.name.removeprefix("ran-") for path in tmp_path.glob("ran-*")}


@pytest.mark.slow
@pytest.mark.requirement("S2")
@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_server_of_the_user_imports_nothing_from_a_directory_that_is_not_trusted(
    stage: Stage, tmp_path: Path, is_trusted: bool
) -> None:
    pytest.importorskip("mcp")
    own = tmp_path / "own"
    own.mkdir()
    (own / "things_server.py").write_text("import time; time.sleep(1)\n")
    server = McpServer(
        command=sys.executable, args=("-m", "things_server"), env={"PYTHONPATH": str(own)}, timeout_seconds=20
    )
    stage.settings = replace(stage.settings, mcp_servers={"things": server})
    if is_trusted:
        TrustList.open(stage.home).trust(stage.cwd)
    stage.ask(mode="default")
    assert ran(tmp_path) == ({"server"} if is_trusted else set())
    told = [event for event in stage.seen(FellBack) if "run in an empty directory" in event.why]
    assert len(told) == (not is_trusted)


@pytest.mark.requirement("S2")
@pytest.mark.parametrize("is_trusted", [False, True])
@pytest.mark.parametrize("command", ["./check.sh", "../work/check.sh --all", "A=b ./check.sh"])
def test_a_hook_of_the_user_starts_no_program_of_a_directory_that_is_not_trusted(
    stage: Stage, tmp_path: Path, command: str, is_trusted: bool
) -> None:
    stage.settings = replace(stage.settings, hooks={"before_tool": (HookCommand(command),)})
    if is_trusted:
        TrustList.open(stage.home).trust(stage.cwd)
    stage.ask(mode="default")
    assert ran(tmp_path) == ({"check.sh"} if is_trusted else set())
    assert [("is not trusted" in event.problem) for event in stage.seen(HookRan)] == [not is_trusted]
    assert "one" in results(stage.requests("main")[-1])[0]


def test_a_search_starts_no_program_of_the_directory(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stage.cwd)
    monkeypatch.setenv("PATH", f".:{stage.cwd.name}::{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    found = grep.find_ripgrep()
    assert not found or os.path.isabs(found)
    assert not found.startswith(str(stage.cwd))
