"""A shell line that can do more than read is never judged read-only."""

from __future__ import annotations

import random
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reverie.tools.shell.computed import JudgedLine, judged_line, parse
from reverie.tools.shell.grammar import Command
from reverie.tools.shell.read_only.commands import COMMANDS

FOLDER = Path(__file__).with_name("shell_commands")
INVISIBLE = str.maketrans({"␊": "\n", "␍": "\r", "␀": "\0", "␉": "\t"})
MUTATIONS = 3_000
Mutation = Callable[[random.Random, str], str]


def commands(name: str) -> list[str]:
    """Return the commands of a file, one a line, with ports and process ids filled in."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    kept = [line.removeprefix("never ") for line in lines if line and not line.startswith("# ")]
    filled = [re.sub(r"@(?:tcp|udp|pid)@", "4242", line) for line in kept]
    return [line.translate(INVISIBLE) for line in filled]


def is_read_only(line: str) -> JudgedLine:
    """Return the verdict on a line by its text alone; one whose programs are judged when they start is not allowed."""
    judged = judged_line(line)
    is_watched = judged.is_computed and "xargs" not in line
    return JudgedLine(judged.allowed and not is_watched, judged.reason, judged.line)


HARMFUL = commands("harmful.txt")
BENIGN = commands("benign.txt")


def by_first_word(line: str) -> bool:
    """The known-bad judge: look at the first word of each piece and nothing else."""
    words = [piece.split()[:1] for piece in re.split(r"&&|\|\||[|;]", line)]
    return all(word and word[0] in COMMANDS for word in words)


@pytest.mark.requirement("S3")
def test_nothing_that_does_more_than_read_is_allowed() -> None:
    assert len(set(HARMFUL)) == len(HARMFUL) >= 250
    assert [line for line in HARMFUL if is_read_only(line).allowed] == []


@pytest.mark.requirement("S3")
def test_what_people_write_to_look_around_is_allowed() -> None:
    assert len(set(BENIGN)) == len(BENIGN) >= 120
    allowed = [line for line in BENIGN if is_read_only(line).allowed]
    assert len(allowed) >= 0.9 * len(BENIGN), sorted(set(BENIGN) - set(allowed))


def test_only_the_options_that_start_processes_are_limited_to_16() -> None:
    for line in ("tree -P '*.py'", "od -j 512 a.txt", "join -j 20 a.txt b.txt"):
        assert is_read_only(line).allowed, line
    for at_once in (
        "xargs -P {} cat",
        "xargs --max-procs={} cat",
        "rg -j{} x",
        "rg --threads {} x",
        "git grep --threads={} x",
    ):
        assert is_read_only(at_once.format(16)).allowed, at_once
        assert "at once" in is_read_only(at_once.format(17)).reason, at_once


def test_a_judge_that_looks_at_the_first_word_is_caught() -> None:
    fooled = [line for line in HARMFUL if by_first_word(line)]
    assert len(fooled) > 100


def test_a_refusal_says_why() -> None:
    assert "rm is not known to be read-only" in is_read_only("rm x").reason
    assert "--output" in is_read_only("git diff --output=x").reason
    assert is_read_only("ls").reason


# Each mutation leaves what the line does as it is: what was harmful stays harmful.


def is_simple(line: str) -> bool:
    """Say whether blanks separate words and nothing is quoted, expanded or a keyword."""
    keywords = ("if ", "while ", "for ", "case ", "select ", "function ", "coproc ", "time ", "! ", "f()", "ls()")
    return re.fullmatch(r"[A-Za-z0-9_./:=@%+,;&| -]+", line) is not None and not line.startswith(keywords)


def after_something(draw: random.Random, line: str) -> str:
    return draw.choice(["ls; ", "git status && ", "pwd;", "echo 'ü'; ", "false || ", "cat a.txt | "]) + line


def before_something(draw: random.Random, line: str) -> str:
    return line + draw.choice(["; ls", " && pwd", " | cat", " || true", " 2>/dev/null", " 2>&1", ";", "  "])


def in_a_shell(draw: random.Random, line: str) -> str:
    return draw.choice(["bash -c ", "sh -c ", "eval ", "env bash -c ", "command eval ", "builtin eval "]) + shlex.quote(
        line
    )


def in_a_group(draw: random.Random, line: str) -> str:
    before, after = draw.choice(
        [("( ", " )"), ("{ ", "\n}"), ("if true; then ", "\nfi"), ("! ", ""), ("$(", ")"), ("ls `", "`")]
    )
    return before + line + after


def with_an_assignment(draw: random.Random, line: str) -> str:
    return (
        draw.choice(["X=1 ", "LC_ALL=C ", "PATH=/usr/bin:/bin ", "IFS=' ' ", "A= "]) + line
        if is_simple(line)
        else f"X=1;{line}"
    )


def with_other_blanks(draw: random.Random, line: str) -> str:
    if not is_simple(line):
        return f"  {line}  "
    return line.replace(" ", draw.choice(["  ", "\t", " \\\n", "   ", " \t "]), draw.choice([1, -1]))


def with_a_splice(draw: random.Random, line: str) -> str:
    if not is_simple(line):
        return f"true;{line}"
    words = re.split(r"([ ;&|]+)", line)
    places = [at for at, word in enumerate(words) if re.fullmatch(r"[-A-Za-z0-9./]{2,}", word)]
    if not places:
        return line
    at = draw.choice(places)
    word = words[at]
    cut = draw.randrange(len(word))
    letter = word[cut]
    spliced = draw.choice([f"'{letter}'", f'"{letter}"', f"\\{letter}", f"''{letter}", f'""{letter}', f"$'{letter}'"])
    words[at] = word[:cut] + spliced + word[cut + 1 :]
    return "".join(words)


def on_another_line(draw: random.Random, line: str) -> str:
    return (
        draw.choice(["ls", "# nothing here", "", "git status", "echo 'a'", "cat a.txt |"])
        + draw.choice(["\n", "\n\n", " \n "])
        + line
    )


MUTATORS: list[Mutation] = [
    after_something,
    before_something,
    in_a_shell,
    in_a_group,
    with_an_assignment,
    with_other_blanks,
    with_a_splice,
    with_a_splice,
    on_another_line,
]


def mutated(draw: random.Random, line: str) -> str:
    for mutate in draw.choices(MUTATORS, k=draw.choice([1, 1, 2, 3])):
        line = mutate(draw, line)
    return line


@pytest.mark.requirement("S3")
def test_no_disguise_of_a_harmful_line_is_allowed(seed: int, torture: bool) -> None:
    draw = random.Random(seed)
    lines = [mutated(draw, draw.choice(HARMFUL)) for _ in range(MUTATIONS * (20 if torture else 1))]
    assert len(set(lines)) > 0.9 * len(lines) or torture
    assert [line for line in lines if is_read_only(line).allowed] == []


def test_disguises_fool_a_judge_that_looks_at_the_first_word(seed: int) -> None:
    draw = random.Random(seed)
    assert sum(by_first_word(mutated(draw, draw.choice(HARMFUL))) for _ in range(MUTATIONS)) > 300


# What we take for the words of a line must be what bash takes for them.

SOUP = "ab1 -  ''\"\"\\\\$*?[]#!~=;&<>(){},./@:%+^"
SHELL = r"""
set -f
exec 9>&1 >/dev/null 2>&1 </dev/null
command_not_found_handle() { printf '%s\0' "$@" >&9; }
for line in "$@"; do eval "$line"; printf '\1\0' >&9; done
"""


BASH_LINES = 1_000  # bash forks for each word that is no program


def read_by_bash(lines: list[str], folder: Path) -> list[list[str]]:
    """Return for each line the words of its commands, all in one list, as bash runs them."""
    environment = {"PATH": "/nowhere", "HOME": "~"}
    answer = subprocess.run(
        ["/bin/bash", "--norc", "-c", SHELL, "soup", *lines],
        capture_output=True,
        cwd=folder,
        env=environment,
        timeout=60,
    )
    found: list[list[str]] = [[]]
    for word in answer.stdout.decode().split("\0")[:-1]:
        if word == "\1":
            found.append([])
        else:
            found[-1].append(word)
    return found[:-1]


def soup(draw: random.Random) -> str:
    pieces = [
        "aa",
        "'a b'",
        '"a b"',
        '"a\\"b"',
        "\\(",
        "a\\ b",
        "--x=",
        "2>/dev/null",
        "&&",
        ";",
        "x@{0}",
        '"a$"',
        "-n5",
    ]
    made = [
        draw.choice(pieces) if draw.random() < 0.4 else "".join(draw.choices(SOUP, k=draw.randrange(1, 5)))
        for _ in range(6)
    ]
    return "aa " + draw.choice([" ", "", " "]).join(made)


def would_be_missed(command: Command) -> bool:
    """Say whether bash looks for a program of that name, and so tells us its words: no builtin, job, path or input."""
    return not re.match(r"[.:\[!%]|.*/", command.argv[0]) and not command.reads


@pytest.mark.requirement("S3")
@pytest.mark.slow
def test_what_is_understood_is_understood_as_bash_does(seed: int, torture: bool, tmp_path: Path) -> None:
    draw = random.Random(seed)
    understood: dict[str, list[str]] = {}
    for _ in range(200_000 if torture else 20_000):
        line = soup(draw)
        found = parse(line)
        if found is not None and all(map(would_be_missed, found.commands)):
            understood[line] = [word for command in found.commands for word in command.argv]
    assert len(understood) > 300
    kept = list(understood)[:20_000]
    for start in range(0, len(kept), BASH_LINES):
        some = kept[start : start + BASH_LINES]
        assert dict(zip(some, read_by_bash(some, tmp_path), strict=True)) == {line: understood[line] for line in some}
    assert list(tmp_path.iterdir()) == []


def test_bash_and_a_reader_that_splits_at_blanks_differ(tmp_path: Path) -> None:
    line = "aa 'a b'"
    assert read_by_bash([line], tmp_path) == [["aa", "a b"]] != [line.split()]


@pytest.mark.parametrize(
    "line",
    [
        "uniq -c a.txt",
        "uniq --skip-fields 1 a.txt",
        "sort -t , -k2,2 -- a.txt",
        "head -n5 a.txt",
        "head -n 5 a.txt",
        "head --lines=5 a.txt",
        "head -5 a.txt",
        "grep -rnA2 -e foo -- a.txt",
        "ls -la -- -x",
        "cat -- -n",
        "git log -n5 --format='%h %s' HEAD~3.. -- a.txt",
        "git log --pretty=format:%h",
        "git branch --list 'x*'",
        "git branch --merged main",
        "git tag -n5 v1",
        "git remote get-url origin",
        "git stash show -p stash@{0}",
        "git config --list --show-origin",
        "sed -n -e 1p -e '3,5p' a.txt",
        "sed -E 's/(a|b)/[\\1]/g; s,x,y,' a.txt",
        "tail -n +5 a.txt 2>&1 | wc -l >/dev/null",
        "jq --arg a 1 '.x == $a' a.json",
    ],
)
def test_options_are_read_in_every_form(line: str) -> None:
    assert is_read_only(line).allowed, is_read_only(line).reason


def test_a_pattern_cannot_smuggle_in_an_option(tmp_path: Path) -> None:
    (tmp_path / "-oowned").touch()
    (tmp_path / "a.txt").write_text("b\na\n")
    assert not is_read_only("sort *").allowed
    assert is_read_only("sort ./*").allowed
    assert is_read_only("cat *").allowed
    subprocess.run(["bash", "-c", "sort *"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "owned").exists()
