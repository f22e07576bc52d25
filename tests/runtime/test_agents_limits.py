"""An agent that works elsewhere keeps its parent's rules, and gives its parent none for another directory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent_stage import Stage, plays, results, task, use
from reverie.runtime.agent.team import runner
from reverie.runtime.guard.permissions import Approval, ApprovalAnswer
from reverie.settings import PermissionRules
from reverie.values import replace

CANARY = "word-of-the-secret-file"
RULES = [("Read(secrets/prod.yaml)",), ("Read(./secrets/**)",), ("Read(secrets/*.yaml)", "Edit(./x)")]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return an agent in a repository, whose directory has a star in its name, with a file that git ignores."""
    stage = Stage(tmp_path, {})
    stage.cwd = tmp_path / "wo[r]k*"
    (stage.cwd / "secrets").mkdir(parents=True)
    (stage.cwd / "secrets" / "prod.yaml").write_text(f"{CANARY}\n")
    (stage.cwd / ".gitignore").write_text("secrets\n")
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", str(stage.cwd), *words], check=True, capture_output=True)
    return stage


def leaked(stage: Stage, deny: tuple[str, ...]) -> list[str]:
    """Return the results with the secret of an agent that works in a worktree, in bypass mode."""
    stage.settings = replace(stage.settings, permissions=PermissionRules(deny=deny))
    secret = stage.cwd / "secrets" / "prod.yaml"
    hidden = f"cd '{stage.cwd}' && python3 -c 'import glob; print(open(glob.glob(\"sec*/*\")[0]).read())'"
    calls = [
        use("Read", file_path=str(secret)),
        use("Grep", pattern="word", path=str(stage.cwd / "secrets"), output_mode="content"),
        use("Bash", command=f"cat '{secret}'"),
        use("Bash", command=hidden),
    ]
    stage.roles = {"main": plays([task("general", isolation="worktree")], "Done."), "general": plays(calls, "Done.")}
    stage.ask(mode="bypass")
    found = results(stage.requests("general")[-1])
    assert len(found) == len(calls)
    return [text for text in found if CANARY in text]


@pytest.mark.slow
@pytest.mark.requirement("L7.4", "S1")
@pytest.mark.parametrize("deny", RULES)
def test_an_agent_in_a_worktree_cannot_read_a_file_that_its_parent_cannot(stage: Stage, deny: tuple[str, ...]) -> None:
    assert leaked(stage, deny) == []


@pytest.mark.slow
def test_rules_that_move_with_the_working_directory_are_caught(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "fixed_rules", lambda rules, _: rules)
    assert leaked(stage, RULES[0])


@pytest.mark.slow
@pytest.mark.requirement("L7.4", "S1")
@pytest.mark.parametrize("isolation", ["worktree", "none"])
def test_always_for_an_agent_in_a_worktree_allows_nothing_in_its_parents_directory(
    stage: Stage, isolation: str
) -> None:
    asked: list[str] = []

    async def always(approval: Approval) -> ApprovalAnswer:
        asked.append(approval.tool)
        return ApprovalAnswer("always")

    calls = [use("Bash", command="touch made"), use("Write", file_path="new.txt", content="x")]
    start = [task("general", isolation=isolation)]
    stage.roles = {"main": plays(start, calls, "Done."), "general": plays(calls, "Done.")}
    stage.ask(mode="default", approve=always)
    own = asked.count("Bash")
    assert own == (2 if isolation == "worktree" else 1), "the same directory needs one answer, another one its own"
