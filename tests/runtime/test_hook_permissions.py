"""A hook that asks is heard in every mode, and one that allows takes no wall away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_stage import Stage, plays, results, use
from reverie.runtime.agent import tool_runs
from reverie.runtime.guard.permissions import Approval, ApprovalAnswer
from reverie.settings import HookCommand, Mode, PermissionRules
from reverie.tools.shell.sandbox import available
from reverie.values import replace

CALLS = [
    use("Read", file_path="a.txt"),
    use("Bash", command="ls"),
    use("Write", file_path="b.txt", content="x"),
    use("Bash", command="touch c"),
]


def asked_by_hook(tmp_path: Path, mode: Mode) -> tuple[list[Approval], list[str]]:
    """Return the questions, each of which is refused, and the results of calls that a hook asks about."""
    stage = Stage(tmp_path, {"main": plays(CALLS, "Done.")})
    (stage.cwd / "a.txt").write_text("one\n")
    stage.settings = replace(stage.settings, permissions=PermissionRules(allow=("Bash(touch c)", "Write")))
    asked: list[Approval] = []

    async def no(approval: Approval) -> ApprovalAnswer:
        asked.append(approval)
        return ApprovalAnswer("deny")

    async def hook(payload: Any) -> dict[str, str]:
        return {"permissionDecision": "ask", "permissionDecisionReason": "look at it"}

    stage.ask(mode=mode, approve=no, hooks={"before_tool": [hook]})
    assert [path.name for path in stage.cwd.iterdir()] == ["a.txt"]
    return asked, results(stage.requests("main")[-1])


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("mode", ["default", "accept-edits", "bypass"])
def test_a_hook_that_asks_is_heard_whatever_rules_and_mode_allow(tmp_path: Path, mode: Mode) -> None:
    asked, said = asked_by_hook(tmp_path, mode)
    assert len(asked) == len(CALLS)
    assert all("denied" in text for text in said)
    assert {approval.reason for approval in asked} == {"look at it"}
    assert not any(approval.suggestions for approval in asked), "the hook asks again, so 'always' would be untrue"


def test_without_a_person_a_hook_that_asks_denies(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"main": plays(CALLS, "Done.")})
    stage.ask(mode="bypass", hooks={"before_tool": [lambda _: {"permissionDecision": "ask"}]})
    assert all("there is no person to ask" in text for text in results(stage.requests("main")[-1]))


@pytest.mark.requirement("S1")
@pytest.mark.skipif(not available().works, reason="commands ask where there is no sandbox")
@pytest.mark.parametrize("mode", ["default", "bypass"])
def test_a_hook_that_allows_shows_no_denied_file(tmp_path: Path, mode: Mode) -> None:
    assert [text for text in allowed_by_hook(tmp_path, mode) if "the-secret" in text] == []


@pytest.mark.skipif(not available().works, reason="commands ask where there is no sandbox")
def test_a_hook_that_takes_the_walls_away_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tool_runs.Verdict("allow", "", "hook")
    monkeypatch.setattr(tool_runs, "hooked_verdict", lambda *_: bare)
    assert [text for text in allowed_by_hook(tmp_path, "default") if "the-secret" in text]


def allowed_by_hook(tmp_path: Path, mode: Mode) -> list[str]:
    stage = Stage(tmp_path, {"main": plays([use("Bash", command="grep -rh '' .")], "Done.")})
    (stage.cwd / ".env").write_text("the-secret\n")
    stage.settings = replace(stage.settings, permissions=PermissionRules(deny=("Read(.env)",)))
    stage.ask(mode=mode, hooks={"before_tool": [lambda _: {"permissionDecision": "allow"}]})
    return results(stage.requests("main")[-1])


@pytest.mark.requirement("S2")
def test_an_agent_does_not_change_a_file_that_a_hook_runs_without_asking(tmp_path: Path) -> None:
    calls = [
        use("Read", file_path="check.sh"),
        use("Write", file_path="check.sh", content="touch PWNED"),
        use("Write", file_path="b.txt", content="x"),
    ]
    stage = Stage(tmp_path, {"main": plays(calls, "Done.")})
    (stage.cwd / "check.sh").write_text("exit 0\n")
    stage.settings = replace(stage.settings, hooks={"before_tool": (HookCommand("sh ./check.sh"),)})
    stage.ask(mode="accept-edits")
    assert (stage.cwd / "check.sh").read_text() == "exit 0\n"
    assert (stage.cwd / "b.txt").read_text() == "x"
    assert "controls later commands" in results(stage.requests("main")[-1])[1]
