"""A denied file that was added to git and removed again stays among its objects; no line shows it unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.tools.shell import git_history
from reverie.tools.shell.sandbox import available
from shell_world import CANARY, ShellWorld

SETUP = (
    "git add -f .env; git rev-parse :.env > lost; git rm -q --cached .env; echo a > kept; git add kept;"
    "git commit -qm kept; git rev-parse HEAD:kept > blob; git rev-parse HEAD > commit;"
    "git commit -q --amend -m other; git rev-parse HEAD~0 > new"
)

pytestmark = [
    pytest.mark.requirement("S1", "S3"),
    pytest.mark.skipif(not available().works, reason="commands ask where there is no sandbox"),
]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShellWorld:
    world = ShellWorld(tmp_path, monkeypatch)
    world.furnish(SETUP, repository=True)
    return world


def id_of(world: ShellWorld, name: str) -> str:
    return (world.work / name).read_text().strip()


@pytest.mark.slow
def test_an_object_that_nothing_leads_to_asks(world: ShellWorld) -> None:
    lost, kept = id_of(world, "lost"), id_of(world, "blob")
    lines = (
        *(f"git cat-file -p {lost}", f"git show {lost[:7]}", f"git show v1-2-g{lost[:9]}", f"git diff {lost} {kept}"),
        *("x=$(cat lost); git cat-file -p $x", "cat lost | xargs git show", f"for i in 1; do git show {lost}; done"),
    )
    ran = world.run(*lines)
    assert ran.allowed == (False,) * len(lines)
    free = world.call(*(("Bash", {"command": line}) for line in lines[:1]), deny=())
    assert CANARY in free.result, "it is there, and without a rule it is no secret"


@pytest.mark.slow
def test_commits_and_files_that_a_branch_or_log_leads_to_run(world: ShellWorld) -> None:
    lines = [f"git cat-file -p {id_of(world, 'blob')}", "git show HEAD:kept", "git diff HEAD~1 HEAD"]
    lines += [f"git show --stat {id_of(world, name)[:8]}" for name in ("commit", "new")]
    lines += [
        "for i in 1; do git show --stat HEAD; done",
        'git log --oneline | while read -r id _; do echo "$id"; done',
    ]
    assert world.run(*lines).allowed == (True,) * len(lines)


@pytest.mark.slow
def test_where_there_are_too_many_files_to_find_each_repository_a_computed_line_asks(
    world: ShellWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "for i in 1; do git show --stat HEAD; done"
    assert world.run(line).allowed == (True,)
    monkeypatch.setattr(git_history, "MAX_ENTRIES", 5)
    assert world.run(line, "git show --stat HEAD").allowed == (False, True)
    assert world.call(("Bash", {"command": line}), deny=()).allowed == (True,)
