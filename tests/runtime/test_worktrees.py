"""Worktrees of agents: removed if unchanged, kept on a branch if changed, pruned later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Settings
from reverie.errors import InputError
from reverie.models import ScriptedModel
from reverie.runtime.agent.agent import Agent
from reverie.runtime.agent.team.worktrees import Worktree, prune
from reverie.settings import Switches


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody."""
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("one = 1\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_one_that_changed_nothing_is_removed_with_its_branch(tmp_path: Path, repository: Path) -> None:
    tree = Worktree.add(repository / "src", home=tmp_path / "home", name="general-1")
    assert (tree.cwd / "a.py").read_text() == "one = 1\n"
    assert tree.cwd == tree.path / "src"
    assert tree.finish() == ("", "")
    assert not tree.path.exists()
    assert "reverie" not in git(repository, "branch", "--list", "--all")
    assert git(repository, "worktree", "list").count("\n") == 0


@pytest.mark.parametrize("how", ["edit", "new file", "commit"])
@pytest.mark.requirement("L7.4")
def test_one_with_changes_stays_on_its_branch_and_the_repository_is_untouched(
    tmp_path: Path, repository: Path, how: str
) -> None:
    tree = Worktree.add(repository, home=tmp_path / "home", name="general-1")
    (tree.path / ("src/a.py" if how == "edit" else "new.py")).write_text("two = 2\n")
    if how == "commit":
        git(tree.path, "add", ".")
        git(tree.path, "commit", "-qm", "second")
    assert tree.finish() == (str(tree.path), "reverie/general-1")
    assert tree.path.is_dir()
    assert git(repository, "status", "--porcelain") == ""
    assert (repository / "src" / "a.py").read_text() == "one = 1\n"


def test_a_hook_of_the_repository_is_not_run(tmp_path: Path, repository: Path) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    Worktree.add(repository, home=tmp_path / "home", name="general-1").finish()
    assert not (tmp_path / "ran").exists()


def test_without_a_repository_or_a_commit_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"in no git repository.*without one"):
        Worktree.add(tmp_path, home=tmp_path / "home", name="x")
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    with pytest.raises(InputError, match="no commit yet"):
        Worktree.add(empty, home=tmp_path / "home", name="x")
    with pytest.raises(InputError, match="cannot name a worktree"):
        Worktree.add(tmp_path, home=tmp_path / "home", name="../x")


CRASH = (
    "import os, sys; from pathlib import Path; from reverie.runtime.agent.team.worktrees import Worktree\n"
    "for name in ('clean', 'changed'):\n"
    "    tree = Worktree.add(Path(sys.argv[1]), home=Path(sys.argv[2]), name=name)\n"
    "    if name == 'changed': (tree.path / 'new.py').write_text('x')\n"
    "os._exit(9)\n"
)


def test_after_a_crash_what_is_clean_is_removed_and_what_is_not_stays(tmp_path: Path, repository: Path) -> None:
    home = tmp_path / "home"
    subprocess.run([sys.executable, "-c", CRASH, str(repository), str(home)], check=False)
    alive = Worktree.add(repository, home=home, name="alive")
    assert sorted(name for name in os.listdir(home / "worktrees") if "." not in name) == ["alive", "changed", "clean"]
    assert prune(home) == ["clean"]
    assert sorted(name for name in os.listdir(home / "worktrees") if "." not in name) == ["alive", "changed"]
    assert prune(home) == []
    alive.finish()
    assert prune(tmp_path / "nowhere") == []


def test_a_worktree_whose_repository_is_gone_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "worktrees").mkdir()
    lock = tmp_path / "worktrees" / "old.lock"
    lock.write_text(f"{tmp_path}/nowhere\nreverie/old\n{'0' * 40}\n")
    assert prune(tmp_path) == ["old"]
    assert not lock.exists()


@pytest.mark.requirement("L7.4")
@pytest.mark.parametrize("changes", [True, False])
def test_an_agent_in_a_worktree_works_there_and_says_where_its_changes_are(
    tmp_path: Path, repository: Path, changes: bool
) -> None:
    write = {"type": "tool_use", "name": "Write", "input": {"file_path": "made.py", "content": "x = 1\n"}}

    def answer(request: dict[str, Any]) -> Any:
        done = any(message["role"] == "assistant" for message in request["messages"])
        return "Made." if done or not changes else [write]

    async def steps() -> str:
        settings = Settings(tmp_path / "home", switches=Switches(extraction=False, recall=False, dream=False))
        agent = Agent(
            model=ScriptedModel(answer),
            cwd=repository,
            session="s",
            settings=settings,
            storage=InMemoryStorage(),
            mode="accept-edits",  # its checkout lies in the user's home, and is its to write in all the same
        )
        async with agent:
            return (await agent.spawn("Make it.", kind="general", worktree=True)).text

    said = anyio.run(steps)
    assert git(repository, "status", "--porcelain") == ""
    if changes:
        path = Path(said.split("kept in ")[1].split(",")[0])
        assert (path / "made.py").read_text() == "x = 1\n"
        assert "on the branch reverie/general-" in said
    else:
        assert "kept in" not in said
        assert list((tmp_path / "home" / "worktrees").iterdir()) == []
