"""A line that nobody was asked about starts no program of the project, by whatever name or way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reverie.runtime.guard import permissions
from reverie.tools.git import run_git
from reverie.tools.shell import read_places
from reverie.tools.shell.sandbox import available
from shell_world import ShellWorld

RAN = "PAYLOAD-RAN"
SETUP = (
    "mkdir bin; printf '#!/bin/sh\\necho PAYLOAD-RAN\\n' > bin/grep; chmod +x bin/grep; cp bin/grep bin/git;"
    'ln -s "$(command -v python3)" bin/cat; echo \'print("PAYLOAD-" + "RAN")\' > script'
)
LINES = (
    "grep x README.md", "git log -1", "cat script", "for i in 1; do cat script; done", "ls | head -1 | xargs grep x",
    "find script -exec cat {} +", "echo script | xargs cat",
)  # fmt: skip

pytestmark = [
    pytest.mark.requirement("S3"),
    pytest.mark.skipif(not available().works, reason="commands ask where there is no sandbox"),
]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShellWorld:
    return ShellWorld(tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_search_path_into_the_project_runs_nothing_there(world: ShellWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.furnish(SETUP, repository=True)
    monkeypatch.setenv("PATH", f"{world.work}/bin:{os.environ['PATH']}")
    ran = world.run(*LINES)
    assert not any(RAN in text for text in ran.results)
    assert "the search path (PATH) finds grep in the directories of this session" in ran.results[0]
    assert ran.allowed == (False, False, False, False, True, True, True)
    assert "print" in ran.results[-1], "the system's program ran"
    assert run_git(world.work, "log", "-1", "--format=%s").stdout == "three\n", "our own calls too"


@pytest.mark.slow
def test_without_these_checks_the_sandbox_executes_no_file_of_the_project(
    world: ShellWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.furnish(SETUP, repository=True)
    path = f"{world.work}/bin:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(permissions, "program_of_project", lambda line, scope: "")
    monkeypatch.setattr(read_places, "search_path", lambda scope: path)
    assert "Permission denied" in world.run("grep x README.md").result
    plain = read_places.read_places

    def executable(*given: object) -> list[tuple[str, str]]:
        return [("--read" if option == "--data" else option, place) for option, place in plain(*given)]  # type: ignore[arg-type]

    monkeypatch.setattr(read_places, "read_places", executable)
    assert RAN in world.run("grep x README.md").result


def test_a_program_that_selects_a_version_by_a_file_of_the_project_runs_none_there(
    world: ShellWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some selectors of versions take a path from the project's settings."""
    world.furnish("mkdir tools; printf '#!/bin/sh\\necho PAYLOAD-RAN\\n' > tools/python; chmod +x tools/python")
    shims = world.folder / "shims"
    shims.mkdir()
    (shims / "python").write_text('#!/bin/sh\nexec "$PWD/tools/python" "$@"\n')
    (shims / "python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{os.environ['PATH']}")
    ran = world.run("python --version")
    assert ran.allowed == (True,)
    assert RAN not in ran.result
    assert "Permission denied" in ran.result


def test_a_session_beneath_the_system_s_programs_executes_none_of_its_own(world: ShellWorld) -> None:
    scope = read_places.ReadScope("/usr/share/doc", str(world.home), ("/usr/share/doc",))
    places = read_places.read_places(scope)
    assert ("--data", "/usr/share/doc") in places
    assert not {("--read", "/usr"), ("--read", "/usr/share"), ("--read", "/usr/share/doc")} & set(places)
    assert ("--read", "/usr/bin") in places
