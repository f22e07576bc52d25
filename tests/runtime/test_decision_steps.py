"""A decision on a command takes a bounded time, however the line or the repository is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reverie.runtime.guard.permissions import PermissionScope, decide
from reverie.settings import PermissionRules
from reverie.tools import Access
from reverie.tools.shell import read_words

RULES = PermissionRules(deny=("Bash(rm:*)", "Read(.env)"))
LIMIT = 10_000_000
LINES = {
    "wrappers of wrappers": "env " * 70 + "rm x",
    "wrappers of lines": "env eval " * 30 + "x",
    "lines of lines": "eval " * 400 + "x",
    "texts of shells": "sh -c " + "'a'\"b\" " * 300,
    "parts of a word": "x " + "a=" * 4_000,
    "folders of a word": "x " + "a=/" * 1_000,
    "the same word": "x " + "word " * 4_000,
    "directories that a line may be in": ";".join(f"cd {name}" for name in "abcdefghijklmnop"),
    "links to the same folder": "ls */*/*/*/*/*/none",
    "links to the root": "ls /proc/*/root/proc/*/root/proc/*/root/none",
    "many globs": "ls " + " ".join(f"*/*/*{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"),
    "nested substitutions": 'echo "$(echo ' * 100 + ')"' * 100,
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(read_words, "MAX_NAMES", 2_000)
    work = tmp_path / "work"
    work.mkdir()
    for letter in "abcdefghij":
        (work / letter).symlink_to(".")
    return work


@pytest.mark.parametrize("name", LINES)
def test_a_decision_takes_a_bounded_number_of_steps(
    name: str, work: Path, steps_of: Callable[[Callable[[], object]], int]
) -> None:
    scope = PermissionScope(work, home=work.parent)
    access = Access("run", LINES[name])
    assert steps_of(lambda: decide(RULES, "default", "Bash", access, scope)) < LIMIT


@pytest.mark.parametrize("line", ["ls */*/*/*/*/none", ";".join(f"cd {name}" for name in "abcdefghijklmnop")])
def test_a_line_that_is_too_much_to_check_asks(line: str, work: Path) -> None:
    scope = PermissionScope(work, home=work.parent)
    assert decide(RULES, "default", "Bash", Access("run", line), scope).outcome == "ask"


def test_a_command_that_a_rule_denies_is_found_inside_others() -> None:
    scope = PermissionScope(Path("/"))
    found = [
        "env " * 70 + "rm x",
        "env eval " * 4 + "rm x",
        "sh -c 'nice sh -c \"rm x\"'",
        "echo rm x | env sh -c 'sudo rm x'",
    ]
    assert [decide(RULES, "bypass", "Bash", Access("run", line), scope).outcome for line in found] == ["deny"] * 4
