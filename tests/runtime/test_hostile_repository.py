"""An agent in a repository that names programs: none runs, nothing outside is shown, and a checkout asks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_stage import Stage, plays, results, task, use
from hostile_repository import CANARY, bare_repository, git, hostile_repository
from reverie.events import PermissionDecided
from reverie.runtime.guard.permissions import Approval, ApprovalAnswer
from reverie.settings import Mode
from reverie.tools.shell.git_program import loader_of
from reverie.tools.shell.sandbox import available

KEY = "a-key-of-the-tests"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return an agent in a hostile repository, whose user has a key in the home and one in the environment."""
    home = tmp_path / "user"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text(f"{CANARY}\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    hostile_repository(tmp_path / "work", tmp_path / "ran", home / ".ssh" / "id_rsa")
    return Stage(tmp_path, {})


def ran(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "ran").iterdir())


LINES = (
    "git status", "git diff", "git diff HEAD~1 | cat", "git log -p", "git blame b.bin", "git -C docs status",
    "cd docs && git diff", "git stash list", "git describe --always --dirty", "jq -n '$ ENV'", "jq -n env",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.requirement("S3")
@pytest.mark.skipif(not available().works, reason="commands ask where there is no sandbox")
def test_commands_that_only_read_run_no_program_and_show_no_key(stage: Stage, tmp_path: Path) -> None:
    bare_repository(stage.cwd / "docs", tmp_path / "ran")
    stage.roles = {"main": plays([use("Bash", command=line) for line in LINES], "Done.")}
    stage.ask(mode="default")
    said = dict(zip(LINES, results(stage.requests("main")[-1]), strict=True))
    assert ran(tmp_path) == []
    assert not [line for line, text in said.items() if CANARY in text or KEY in text]
    assert "modified:   a.txt" in said["git status"]
    assert said["git diff"].count("+second") == 4, "drivers are ignored, and the difference is shown"
    assert "first" in said["git log -p"]
    assert "second" in said["git blame b.bin"]


@pytest.mark.requirement("S3")
@pytest.mark.skipif(not available().works, reason="commands ask where there is no sandbox")
def test_a_binary_of_the_repository_does_not_run_by_the_loader_of_programs(stage: Stage) -> None:
    """The loader must be executable for git to start, and runs each file that it can read."""
    (stage.cwd / "folder").mkdir()
    (stage.cwd / "folder" / "tool.elf").write_bytes(Path(shutil.which("uname") or "").read_bytes())
    (stage.cwd / ".gitattributes").write_text("*.elf diff=elf\n")
    loader = (loader_of(os.path.realpath(shutil.which("git") or "")) or [""])[0]
    git(stage.cwd, "config", "diff.elf.textconv", loader)
    git(stage.cwd, "add", ".gitattributes", "folder")
    assert "+Linux" in git(stage.cwd, "status", "-v"), "plain git runs it"
    lines = ("git status -v", "git diff --cached")
    stage.roles = {"main": plays([use("Bash", command=line) for line in lines], "Done.")}
    stage.ask(mode="default")
    said = results(stage.requests("main")[-1])
    assert not any("+Linux" in text for text in said)
    assert all("folder/tool.elf" in text for text in said)


@pytest.mark.requirement("S3")
def test_a_command_that_a_person_approves_has_the_whole_environment(stage: Stage) -> None:
    stage.roles = {"main": plays([use("Bash", command='printf %s "$ANTHROPIC_API_KEY"')], "Done.")}

    async def yes(approval: Approval) -> ApprovalAnswer:
        return ApprovalAnswer("once")

    stage.ask(mode="default", approve=yes)
    assert KEY in results(stage.requests("main")[-1])[0]


def spawned(stage: Stage, call: dict[str, Any], mode: Mode, **more: Any) -> tuple[str, list[PermissionDecided]]:
    """Let the main agent start another one, and return the result and the decisions about it."""
    stage.roles = {"main": plays([call], "Done."), "general": plays("Looked."), "apart": plays("Looked.")}
    stage.ask(mode=mode, **more)
    decided = [event for event in stage.seen(PermissionDecided) if event.tool == "Agent"]
    return results(stage.requests("main")[-1])[0], decided


@pytest.mark.requirement("S2", "L7.4")
@pytest.mark.parametrize(
    ("kind", "mode", "why"),
    [("general", "default", "a branch and a checkout"), ("apart", "plan", "plan mode: Agent does more than read")],
)
def test_a_worktree_asks_in_default_mode_and_is_denied_in_plan_mode(
    stage: Stage, tmp_path: Path, kind: str, mode: Mode, why: str
) -> None:
    """A type that works in a worktree asks like a call that says so."""
    (stage.home / "agent-types").mkdir(parents=True)
    head = "name: apart\ndescription: Works apart.\nisolation: worktree"
    (stage.home / "agent-types" / "apart.md").write_text(f"---\n{head}\n---\nROLE apart\n")
    said, decided = spawned(stage, task(kind, **({"isolation": "worktree"} if kind == "general" else {})), mode)
    assert why in said
    assert [event.allowed for event in decided] == [False]
    assert "reverie/" not in git(stage.cwd, "for-each-ref", "--format=%(refname)")
    assert not (stage.home / "worktrees").exists()


@pytest.mark.slow
@pytest.mark.requirement("S2", "L7.4")
@pytest.mark.parametrize("mode", ["default", "accept-edits"])
def test_an_allowed_worktree_runs_no_program_of_the_repository(stage: Stage, tmp_path: Path, mode: Mode) -> None:
    questions: list[Approval] = []

    async def yes(approval: Approval) -> ApprovalAnswer:
        questions.append(approval)
        return ApprovalAnswer("once")

    said, _ = spawned(stage, task("general", isolation="worktree"), mode, approve=yes)
    assert "Looked." in said
    assert [question.access.kind for question in questions] == (["checkout"] if mode == "default" else [])
    assert ran(tmp_path) == []
    assert list((stage.home / "worktrees").iterdir()) == [], "it changed nothing, so it is gone"
