"""Only ``tools/git.py`` and the program behind it call git."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "reverie"
ALLOWED = {
    "tools/git.py": "run_remote_git runs git in an empty repository of ours, where no setting of another one counts",
    "tools/shell/git_program.py": "it is the program behind tools/git.py",
}
STARTERS = {"run", "Popen", "call", "check_call", "check_output", "system", "popen", "which", "fork_exec"}
PREFIXES = ("exec", "spawn", "posix_spawn", "create_subprocess")


def calls_of_git(source: str) -> Iterator[int]:
    """Yield the lines where a command line begins with git: a list, a tuple, or an argument that starts a program."""
    for node in ast.walk(ast.parse(source)) if "git" in source else ():
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 1 and _is_git(node.elts[0]):
            if isinstance(node, ast.List) or any(_is_option(part) for part in node.elts[1:]):
                yield node.lineno
        elif isinstance(node, ast.Call) and _starts(node.func) and any(map(_is_git, node.args)):
            yield node.lineno


def _starts(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in STARTERS or name.startswith(PREFIXES)


def _is_git(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    try:
        words = shlex.split(node.value)
    except ValueError:
        words = node.value.split()
    return bool(words) and words[0].rpartition("/")[2] == "git"


def _is_option(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred) or (isinstance(node, ast.Constant) and str(node.value).startswith("-"))


@pytest.mark.requirement("S2")
def test_git_is_called_in_one_place() -> None:
    found = {
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).as_posix() not in ALLOWED
        for line in calls_of_git(path.read_text())
    }
    assert found == set(), "call run_git of tools/git.py"


@pytest.mark.parametrize(
    "line",
    [
        'subprocess.run(["git", "status"])',
        'command = ["git", "-C", folder, *arguments]',
        'os.system("git status")',
        'subprocess.check_output(f"git log {name}", shell=True)',
        'await asyncio.create_subprocess_exec("git", "status")',
        'os.execvp("/usr/bin/git", arguments)',
        'argv = ("git", "-c", "x=y")',
        'shutil.which("git")',
    ],
)
def test_another_call_of_git_is_found(line: str) -> None:
    assert list(calls_of_git(f"async def f():\n    {line}\n")) == [2]


def test_words_that_only_name_git_are_no_call() -> None:
    for line in ('x = ("git", "cargo")', 'GIT = {"git": 1}', 'y = "git status"', 'row.get("git")'):
        assert list(calls_of_git(line)) == []
