"""Glob: files by pattern, newest first, without hidden and ignored files; patterns like git's and Python's."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import InputError
from reverie.text.globs import expanded_patterns, path_regex
from reverie.tools import Output, ToolContext
from reverie.tools.files.tree_walk import walk
from reverie.tools.glob import MAX_FOUND, Glob


def glob(context: ToolContext, pattern: str, **more: Any) -> Output:
    return anyio.run(Glob().run, {"pattern": pattern, **more}, context)


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    files = ["a.py", "b.txt", "src/c.py", "src/deep/d.py", "src/deep/e.ts", ".github/ci.yml", "src/.env", "docs/[x].md"]
    for age, name in enumerate(files):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    return ToolContext(cwd=tmp_path)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py"]),
        ("**/*.py", ["a.py", "src/c.py", "src/deep/d.py"]),
        ("src/**/*.{py,ts}", ["src/c.py", "src/deep/d.py", "src/deep/e.ts"]),
        ("src/**", ["src/c.py", "src/deep/d.py", "src/deep/e.ts"]),
        ("**/deep/?.[pt][ys]", ["src/deep/d.py", "src/deep/e.ts"]),
        ("src/[!d]*", ["src/c.py"]),
        (".github/**", [".github/ci.yml"]),
        ("**/.env", ["src/.env"]),
        ("docs/\\[x\\].md", ["docs/[x].md"]),
        ("{a.py,src/deep/*.ts}", ["a.py", "src/deep/e.ts"]),
    ],
)
def test_a_pattern_finds_its_files_newest_first(context: ToolContext, pattern: str, found: list[str]) -> None:
    assert str(glob(context, pattern).content).split("\n") == found


def test_nothing_found_says_where_it_looked(context: ToolContext) -> None:
    output = glob(context, "**/*.rs", path="src")
    assert not output.is_error
    assert f"under {context.cwd}/src" in str(output.content)


def test_too_many_are_cut_and_said(tmp_path: Path) -> None:
    for number in range(MAX_FOUND + 5):
        (tmp_path / f"{number}.txt").touch()
    lines = str(glob(ToolContext(cwd=tmp_path), "*.txt").content).split("\n")
    assert len(lines) == MAX_FOUND + 1
    assert lines[-1].startswith("[5 older ones")


@pytest.mark.parametrize("pattern", ["../outside/*", "/etc/*.conf", "sub/../../outside/*", "~/*", "door/*"])
def test_a_pattern_that_leads_out_is_asked_for_and_refused(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "ws" / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").touch()
    (tmp_path / "ws" / "door").symlink_to(tmp_path / "outside")
    context = ToolContext(cwd=tmp_path / "ws")
    assert not Glob().access({"pattern": pattern}, context).target.startswith(str(tmp_path / "ws"))
    assert glob(context, pattern).is_error


def test_links_are_not_followed_and_dots_after_a_wildcard_are_refused(context: ToolContext) -> None:
    (context.cwd / "loop").symlink_to(".")
    assert "loop" not in str(glob(context, "**/*.py").content)
    assert glob(context, "*/../*.py").is_error


def test_a_directory_that_is_missing_or_a_file_is_an_error(context: ToolContext) -> None:
    assert "does not exist" in str(glob(context, "*", path="missing").content)
    assert glob(context, "*", path="a.py").is_error


def test_cancelling_stops_a_long_walk(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / f"{number}").mkdir()

    async def steps() -> None:
        with anyio.move_on_after(0) as scope:
            await Glob().run({"pattern": "**/*"}, ToolContext(cwd=tmp_path))
        assert scope.cancelled_caught

    anyio.run(steps)


def test_a_pattern_never_runs_away() -> None:
    """One that did would not end before the limit on every test."""
    assert not path_regex("**/" + "*a" * 60 + "*b").fullmatch("x/" + "a" * 250)
    assert not path_regex("**/" * 12 + "b").fullmatch("/".join("a" * 20))


@given(st.text("ab*?", max_size=6), st.text("ab", max_size=8))
def test_a_name_matches_as_the_shell_would_say(pattern: str, name: str) -> None:
    import fnmatch

    if "**" in pattern or not pattern or not name:
        return
    assert bool(path_regex(pattern).fullmatch(name)) == fnmatch.fnmatchcase(name, pattern)


def test_braces_stand_for_their_choices_and_not_for_too_many() -> None:
    assert expanded_patterns("a{b,c{d,e}}f") == ["abf", "acdf", "acef"]
    assert expanded_patterns("a{b}\\{c,d\\}") == ["a{b}\\{c,d\\}"]
    with pytest.raises(InputError):
        expanded_patterns("{a,b}" * 12)


NAMES = ["a", "b", "ab", "foo.py", "x.log", "build", "src", "a b", "{z}", "{a,b}"]
RULES = [
    "*.log",
    "build/",
    "/a",
    "a/b",
    "**/foo.py",
    "src/**",
    "!x.log",
    "!src/a",
    "a*",
    "[ab]",
    "foo.*",
    "/src/*",
    "**/build/**",
    "a/**/b",
    "?",
    "!*/",
    "b/",
    "*",
    "{z}",
    "a b",
    "!a",
    "\\!x",
    "#c",
    "*b",
    "**/",
    "/**",
    "{a,b}",
    "x.log \\",
    "a\\ b",
    "[!a]",
    "src/",
    "!/build",
]


@pytest.mark.slow
def test_what_git_ignores_is_left_out_and_nothing_else(tmp_path: Path, seed: int, torture: bool) -> None:
    rng = random.Random(seed)
    for number in range(400 if torture else 40):
        folder = tmp_path / str(number)
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        for _ in range(25):
            path = folder.joinpath(*(rng.choice(NAMES) for _ in range(rng.randint(1, 4))))
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            except OSError:
                continue  # a file stands where a directory is wanted, or the other way round
        folders = [folder, *(each for each in folder.rglob("*") if each.is_dir() and ".git" not in each.parts)]
        for _ in range(rng.randint(1, 2)):
            rules = "\n".join(rng.sample(RULES, rng.randint(1, 4)))
            (rng.choice(folders) / ".gitignore").write_text(f"{rules}\n")
        command = ["git", "-C", str(folder), "ls-files", "-o", "--exclude-standard", "-z"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            found = sorted(walked.path for walked in walk(descriptor))
        finally:
            os.close(descriptor)
        assert found == sorted(path for path in listed if path and not path.endswith(".gitignore")), folder
