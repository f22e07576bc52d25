"""A rule for one command of a line lets no other command read outside, run a program, or move the first elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_stage import Stage, plays, results, use
from hostile_repository import CANARY, hostile_repository
from reverie.runtime.guard import permissions
from reverie.runtime.guard.always import rules_to_keep
from reverie.runtime.guard.permissions import PermissionScope, decide
from reverie.settings.records import PermissionRules
from reverie.tools import Access
from reverie.values import replace

ALLOWED = ("Bash(mkdir -p out)",)


def outcome(line: str, *allow: str, cwd: Path = Path("/repo"), deny: tuple[str, ...] = ()) -> str:
    rules = PermissionRules(allow=allow, deny=deny)
    return decide(rules, "default", "Bash", Access("run", line), PermissionScope(cwd, home=Path("/home/me"))).outcome


READS = [
    "cat {home}/.ssh/id_rsa",
    "cat key",
    "grep -Rh '' linked",
    "cd {home}/.ssh && cat id_rsa",
    "find . -name key -exec cat {{}} +",
]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return an agent in a hostile repository with links into the home of a user who allowed one command."""
    home = tmp_path / "user"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text(f"{CANARY}\n")
    monkeypatch.setenv("HOME", str(home))
    hostile_repository(tmp_path / "work", tmp_path / "ran", home / ".ssh" / "id_rsa")
    (tmp_path / "work" / "key").symlink_to(home / ".ssh" / "id_rsa")
    (tmp_path / "work" / "linked").mkdir()
    (tmp_path / "work" / "linked" / "ssh").symlink_to(home / ".ssh")
    (tmp_path / "work" / "secret.txt").write_text(f"{CANARY}\n")
    return Stage(tmp_path, {})


def said(stage: Stage, lines: list[str], **rules: tuple[str, ...]) -> list[str]:
    stage.roles = {"main": plays([use("Bash", command=line) for line in lines], "Done.")}
    stage.settings = replace(stage.settings, permissions=PermissionRules(**rules))
    stage.ask(mode="default")
    return results(stage.requests("main")[-1])


def hostile_lines(tmp_path: Path) -> list[str]:
    return [f"{read.format(home=tmp_path / 'user')}; mkdir -p out" for read in READS]


@pytest.mark.requirement("S1")
def test_a_rule_for_one_command_lets_no_other_read_outside(stage: Stage, tmp_path: Path) -> None:
    texts = said(stage, hostile_lines(tmp_path), allow=ALLOWED)
    assert [text for text in texts if CANARY in text or "denied" not in text] == []


@pytest.mark.requirement("S1")
def test_a_guard_that_looks_only_at_the_effects_of_commands_is_caught(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "may_join", lambda *_, **__: True)
    assert all(CANARY in text for text in said(stage, hostile_lines(tmp_path), allow=ALLOWED))


@pytest.mark.requirement("S1")
def test_a_rule_for_one_command_shows_no_denied_file(stage: Stage) -> None:
    lines = ["grep -rh '' .; mkdir -p out", "ls | xargs cat; mkdir -p out", "diff -r . linked; mkdir -p out"]
    texts = said(stage, lines, allow=ALLOWED, deny=("Read(secret.txt)",))
    assert [text for text in texts if CANARY in text or "denied" not in text] == []


@pytest.mark.requirement("S3")
def test_a_rule_for_another_command_lets_no_program_of_the_repository_run(stage: Stage, tmp_path: Path) -> None:
    said(stage, ["git status; mkdir -p out", "git diff; mkdir -p out"], allow=ALLOWED)
    assert list((tmp_path / "ran").iterdir()) == []


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("place", ["/tmp/evil", "~", "sub", "..", "sub/..", "-", "*", ""])
@pytest.mark.parametrize("rule", ["Bash(make)", "Bash(pytest:words)"])
def test_the_exact_command_is_not_the_same_in_another_directory(rule: str, place: str) -> None:
    command = "make" if rule == "Bash(make)" else "pytest tests"
    assert outcome(command, rule) == "allow"
    assert outcome(f"cd {place} && {command}".replace("  ", " "), rule) == "ask"


@pytest.mark.requirement("S1")
@pytest.mark.parametrize(
    "line",
    [
        "echo 'import os' | python3",
        "cat a.py | python3",
        "ls && echo x | python3",
        "echo 'a|b' | python3",
        "echo a | cat | python3",
        "if true; then echo x | python3; fi",
        "echo x |python3",
        "echo x | pytest tests",
    ],
)
def test_the_exact_command_is_not_the_same_with_an_input(line: str) -> None:
    assert outcome(line, "Bash(python3)", "Bash(pytest:words)") == "ask"
    assert outcome(line, "Bash(python3:*)", "Bash(pytest:*)") == "allow"


@pytest.mark.parametrize(
    "line", ["python3 | tail", "cd /repo && python3 | tail", "grep 'a|b' x && python3", "ls; python3 || echo no"]
)
def test_the_exact_command_may_write_to_a_pipe(line: str) -> None:
    assert outcome(line, "Bash(python3)") == "allow"


def test_a_prefix_that_allows_anything_holds_in_the_directories_of_the_session() -> None:
    assert outcome("cd sub && make all", "Bash(make:*)") == "allow"
    assert outcome("cd /tmp/evil && make all", "Bash(make:*)") == "ask"
    assert outcome("cd /tmp/evil && make all", "Bash(make:*)", "Bash(cd:*)") == "allow"
    assert outcome("cd /tmp/evil && make all; cat x", "Bash(make:*)", "Bash(cd:*)") == "ask"


@pytest.mark.parametrize(
    "line",
    [
        "make 2>&1 | tail -3",
        "make | grep -n error",
        "make && echo done",
        "cd /repo && make",
        "cd . && make",
        "ls && make",
        "cat a.txt; make",
        "make | sort | uniq -c | head",
        "make | awk '{print $1}'",
        "make | jq .a",
        "git commit -m x && git status",
    ],
)
def test_filters_and_files_inside_may_stand_beside_an_allowed_command(line: str) -> None:
    assert outcome(line, "Bash(make)", "Bash(git commit:*)") == "allow"


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("line", ["npm :*", "git push origin main:*", "env :*", "ls a:*"])
def test_this_exact_command_is_never_a_prefix(line: str) -> None:
    for rule in rules_to_keep("Bash", Access("run", line), cwd=Path("/repo")):
        assert outcome(f"{line.removesuffix(':*')} x", rule) == "ask"
