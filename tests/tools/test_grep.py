"""Grep: the same lines with and without ripgrep, within limits, and also in results that left the view."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.tools import Output, ToolContext
from reverie.tools import grep as grep_module
from reverie.tools.files.literals import required_literal
from reverie.tools.files.search_program import search
from reverie.tools.files.workspace import with_grant
from reverie.tools.grep import Grep, find_ripgrep

WORDS = [
    "alpha",
    "Beta",
    "gamma_1",
    "foo.bar",
    "x == y",
    "Straße",
    "日本",
    "needle",
    "ﬁne",
    "",
    "  tab\there",
    "if (a) {",
]
PATTERNS = [
    "alpha",
    "beta",
    "needle",
    r"foo\.bar",
    "foo.bar",
    r"\bgamma_\d+\b",
    "^alpha$",
    "(alpha|needle)",
    "al+pha?",
    "needle.*alpha",
    "x == [xyz]",
    r"if \(a\) \{",
    "日本",
    "Stra.e",
    r"\s\s",
    "nee?dle{1}",
    "[ab]",
    r"\w+_1",
    "^$",
    "alpha$",
]


def grep(context: ToolContext, pattern: str, **more: Any) -> Output:
    return anyio.run(Grep().run, {"pattern": pattern, **more}, context)


def rows(output: Output) -> list[str]:
    assert isinstance(output.content, str)
    assert not output.is_error, output.content
    return output.content.split("\n")


def fill(folder: Path, rng: random.Random, files: int) -> None:
    for number in range(files):
        place = folder / rng.choice(["", "src", "src/deep", "docs", "a.b"])
        place.mkdir(parents=True, exist_ok=True)
        lines = [" ".join(rng.choices(WORDS, k=rng.randrange(4))) for _ in range(rng.randrange(12))]
        newline = rng.choice(["\n", "\n", "\r\n"])
        name = f"file{number}{rng.choice(['.py', '.txt', '.md', ''])}"
        (place / name).write_text(newline.join(lines) + rng.choice(["", newline]), newline="")
    (folder / "binary.dat").write_bytes(b"alpha needle\0alpha")
    (folder / "wide.txt").write_text("alpha needle\n", encoding="utf-16")
    (folder / ".hidden").write_text("alpha needle\n")
    (folder / "link.txt").symlink_to("wide.txt")


def request(folder: int, pattern: str, **more: Any) -> dict[str, Any]:
    plain = {"mode": "content", "ignore_case": False, "multiline": False, "numbers": True, "before": 0, "after": 0}
    where = {"descriptor": folder, "is_folder": True, "label": "", "rules": [], "ignore": True, "hidden": False}
    where |= {"folder": "/", "scope": ["/", "/", (), ()], "linked": True}
    rest = {"head_limit": None, "globs": [], "endings": [], "ripgrep": "", "text": None, "pattern": pattern}
    return {**plain, **where, **rest, **more}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    fill(folder, random.Random(7), 60)
    return folder


needs_ripgrep = pytest.mark.skipif(not find_ripgrep(), reason="no ripgrep here")


@needs_ripgrep
@given(
    st.sampled_from(PATTERNS)
    | st.text("alph nedstr.Beta_1", min_size=1, max_size=8).filter(lambda text: text.strip(".")),
    st.sampled_from(["content", "files_with_matches", "count"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from([None, 1, 7]),
)
@pytest.mark.slow
def test_results_are_the_same_with_ripgrep_and_without(
    tree: Path, pattern: str, mode: str, ignore_case: bool, multiline: bool, around: int, head: int | None
) -> None:
    folder = os.open(tree, os.O_RDONLY)
    options = {"mode": mode, "ignore_case": ignore_case, "multiline": multiline, "head_limit": head}
    try:
        asked = request(folder, pattern, **options, before=around, after=around)
        assert search({**asked, "ripgrep": find_ripgrep()}) == search(asked)
    finally:
        os.close(folder)


def wrong_literal(pattern: str) -> str:
    """Take the longest run of letters wherever it stands: what one might write first."""
    return max(re.findall(r"\w+", pattern), key=len, default="")


@given(st.from_regex(r"[a-c|()?*+.\[\]\\d{2,}]{1,12}", fullmatch=True), st.data())
def test_a_required_literal_is_in_whatever_matches(pattern: str, data: st.DataObject) -> None:
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, FutureWarning):
        return
    literal = required_literal(pattern, False)
    if not literal:
        return
    found = compiled.search(data.draw(st.from_regex(compiled)))
    assert found is not None
    assert literal in found[0]


def test_a_literal_that_is_only_likely_is_caught() -> None:
    for pattern, matching in [("(alpha|beta)", "beta"), ("needles?", "needle"), ("x(alpha)*", "x")]:
        assert re.search(pattern, matching)
        assert wrong_literal(pattern) not in matching
        assert required_literal(pattern, False) in matching


@needs_ripgrep
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("ignore_case", [False, True])
def test_lines_are_those_that_ripgrep_itself_would_print(tree: Path, pattern: str, ignore_case: bool) -> None:
    options = ["--no-config", "-n", "--no-heading", "--sort", "path", "--no-require-git", "--crlf", "--color", "never"]
    command = [find_ripgrep(), *options, *["-i"] * ignore_case, "-e", pattern, "."]
    theirs = subprocess.run(command, cwd=tree, capture_output=True, check=False).stdout.decode()
    wanted = sorted(line.removeprefix("./").rstrip("\r") for line in theirs.split("\n") if line)
    folder = os.open(tree, os.O_RDONLY)
    try:
        found = search(request(folder, pattern, ignore_case=ignore_case))["rows"]
    finally:
        os.close(folder)
    assert sorted(found) == [line for line in wanted if not line.startswith("binary file")]


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "b.py").write_text("import os\n\ndef needle():\n    return os\n")
    (tmp_path / "src" / "a.ts").write_text("const needle = 1\n")
    (tmp_path / "src.txt").write_text("needle needle\nNeedle\n")
    return ToolContext(cwd=tmp_path)


def test_files_lines_and_counts_come_sorted_by_path(context: ToolContext) -> None:
    assert rows(grep(context, "needle")) == ["src/a.ts", "src/b.py", "src.txt"]
    assert rows(grep(context, "needle", output_mode="count", **{"-i": True})) == [
        "src/a.ts:1",
        "src/b.py:1",
        "src.txt:2",
    ]
    assert rows(grep(context, "needle", output_mode="content", path="src")) == [
        "src/a.ts:1:const needle = 1",
        "src/b.py:3:def needle():",
    ]


def test_context_lines_are_marked_and_groups_set_apart(context: ToolContext) -> None:
    found = rows(grep(context, "needle", output_mode="content", path="src/b.py", **{"-B": 1, "-A": 1}))
    assert found == ["src/b.py-2-", "src/b.py:3:def needle():", "src/b.py-4-    return os"]
    assert "--" in rows(grep(context, "needle", output_mode="content", path="src", **{"-C": 1}))
    assert rows(grep(context, "os", output_mode="content", path="src/b.py", **{"-n": False}))[0] == "src/b.py:import os"


def test_files_are_chosen_by_glob_type_and_limit(context: ToolContext) -> None:
    assert rows(grep(context, "needle", glob="*.{py,ts}")) == ["src/a.ts", "src/b.py"]
    assert rows(grep(context, "needle", glob="!*.py")) == ["src/a.ts", "src.txt"]
    assert rows(grep(context, "needle", glob="src/*.py")) == ["src/b.py"]
    assert rows(grep(context, "needle", type="py")) == ["src/b.py"]
    assert rows(grep(context, "needle", head_limit=1)) == [
        "src/a.ts",
        "[only the first 1 are shown: narrow it down, or raise head_limit]",
    ]


def test_a_match_may_stretch_over_lines_only_when_asked(context: ToolContext) -> None:
    assert "No matches" in rows(grep(context, r"needle\(\):.*return"))[0]
    found = rows(grep(context, r"needle\(\):.*return", multiline=True, output_mode="content"))
    assert found == ["src/b.py:3:def needle():", "src/b.py:4:    return os"]


def test_hidden_and_ignored_files_are_searched_only_where_they_are_named(context: ToolContext) -> None:
    (context.cwd / ".gitignore").write_text("build/\n*.log\n")
    for path in ("build/out.py", "x.log", ".github/ci.yml"):
        (context.cwd / path).parent.mkdir(exist_ok=True)
        (context.cwd / path).write_text("needle\n")
    assert rows(grep(context, "needle")) == ["src/a.ts", "src/b.py", "src.txt"]
    assert rows(grep(context, "needle", path="build")) == ["build/out.py"]
    assert rows(grep(context, "needle", path="x.log")) == ["x.log"]
    assert rows(grep(context, "needle", path=".github")) == [".github/ci.yml"]


@pytest.mark.requirement("L1.4")
def test_a_stored_result_is_searched_by_its_handle(context: ToolContext) -> None:
    stored = "".join(f"row {number}\n" for number in range(1, 2_001)).encode()
    known = "toolu_0123abc"
    context.read_back = lambda handle: stored if handle == known else None
    assert Grep().access({"pattern": "x", "path": known}, context).kind == "none"
    found = rows(grep(context, "row 199[89]", path=known, output_mode="content", **{"-A": 1}))
    assert found == [f"{known}:1998:row 1998", f"{known}:1999:row 1999", f"{known}-2000-row 2000"]


def test_a_search_outside_needs_a_grant_and_links_are_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "ws"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret.txt").write_text("needle\n")
    (inside / "door").symlink_to(outside)
    (inside / "link.txt").symlink_to(outside / "secret.txt")
    context = ToolContext(cwd=inside)
    assert "No matches" in rows(grep(context, "needle"))[0]
    for path in ("../outside", "door", "link.txt"):
        assert grep(context, "needle", path=path).is_error
        target = Grep().access({"pattern": "x", "path": path}, context).target
        assert target.startswith(str(outside))
        assert rows(grep(with_grant(context, target), "needle", path=path))[0].endswith("secret.txt")


@pytest.mark.parametrize(("pattern", "says"), [("foo(", "backslash"), ("[a", "backslash"), ("*x", "backslash")])
def test_what_is_no_pattern_is_an_error_that_says_what_to_do(context: ToolContext, pattern: str, says: str) -> None:
    output = grep(context, pattern)
    assert output.is_error
    assert says in str(output.content)


def test_ways_of_other_engines_are_understood(context: ToolContext) -> None:
    assert rows(grep(context, "[[:alpha:]]eedle", glob="*.ts")) == ["src/a.ts"]
    assert rows(grep(context, r"(?<word>const)\s+needle")) == ["src/a.ts"]


RUNAWAY = "(a+)+$"


@pytest.mark.slow
def test_a_pattern_that_runs_away_is_stopped(context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    (context.cwd / "trap.txt").write_text("a" * 60 + "b\n")
    monkeypatch.setattr(grep_module, "SECONDS", 1.0)
    output = grep(context, RUNAWAY, path="trap.txt")
    assert output.is_error
    assert "narrow" in str(output.content)


def test_a_pattern_that_runs_away_blocks_nobody(context: ToolContext) -> None:
    (context.cwd / "trap.txt").write_text("a" * 60 + "b\n")
    outputs: list[Output] = []

    async def steps() -> None:
        async with anyio.create_task_group() as group:

            async def search() -> None:
                outputs.append(await Grep().run({"pattern": RUNAWAY, "path": "trap.txt"}, context))

            group.start_soon(search)
            for _ in range(20):
                await anyio.sleep(0.02)
            group.cancel_scope.cancel()

    anyio.run(steps)
    assert outputs == [], "the loop went on while the search did"


def test_long_lines_and_huge_files_are_bounded_and_said(context: ToolContext) -> None:
    (context.cwd / "min.js").write_text("x" * 5_000 + "target" + "y" * 5_000)
    found = rows(grep(context, "target", output_mode="content"))
    assert len(found[0]) < 700
    assert "more characters" in found[0]
    with (context.cwd / "huge.log").open("wb") as file:
        file.truncate(65_000_000)
    assert "use Bash: huge.log" in rows(grep(context, "target"))[-1]
