"""Loops, substitutions, subshells and braces are judged as the simple commands that bash makes of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reverie.tools.shell.grammar import Line, parse
from reverie.tools.shell.plain_form import plain_form

FORMS = {
    'for f in a.txt b.txt; do echo "== $f"; cat "$f"; done': 'echo "== _"; cat a.txt ; echo "== _"; cat b.txt',
    "for f in *.txt; do wc -l ${f}; done | sort": "wc -l *.txt | sort",
    "(cd d && ls) && ls": "cd d && ls && ls",
    "comm -12 <(sort a.txt) <(sort b.txt)": "sort a.txt ; sort b.txt ; comm -12 _ _",
    'ls && echo "files: $(ls | wc -l)" | cat': 'ls && ls | wc -l ; echo "files: _" | cat',
    'n=$(wc -l < a.txt); echo "has $n lines"': 'wc -l < a.txt; echo "has _ lines"',
    "cat {a,b}.txt": "cat a.txt b.txt",
    "ls; echo $? $((3 * 7))": "ls; echo 0 0",
    "if [[ -e a.txt ]]; then cat a.txt; fi": "if [ -e a.txt ]; then cat a.txt; fi",
    "timeout 10 grep a a.txt": "grep a a.txt",
    "ls | xargs -I{} wc -c {}": "ls | xargs -I {} wc -c {}",
}


@pytest.mark.parametrize("line", FORMS)
def test_a_line_is_judged_by_the_commands_that_bash_makes_of_it(line: str) -> None:
    assert plain_form(line) == FORMS[line]
    assert isinstance(parse(line), Line)


@pytest.mark.parametrize("line", FORMS)
def test_bash_runs_no_command_that_the_plain_form_does_not_have(line: str, tmp_path: Path) -> None:
    """Bash itself says which commands it ran (``set -x``); the words that it computed are not compared."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("a\n")
    (tmp_path / "d").mkdir()
    traced = subprocess.run(["bash", "-xc", line], cwd=tmp_path, capture_output=True, text=True, check=False).stderr
    ran = {words[1] for row in traced.splitlines() if row.startswith("+") and len(words := row.split()) > 1}
    judged = parse(line)
    assert isinstance(judged, Line)
    names = {command.words[0].text for command in judged.commands} | {"timeout", "for", "[["}
    assert {name for name in ran if "=" not in name} <= names


@pytest.mark.parametrize(
    "line",
    [
        "for f in a; do cat x; cd ..; done",
        "for f in $(ls); do cat $f; done",
        'for f in a; do cat "/etc/$f"; done',
        'cat "$(echo /etc/passwd)"',
        "cat $(echo /etc/passwd)",
        "n=$(ls); cat $n",
        "echo a # '\n(rm x) # '",
        "cat <<'E'\n(x)\nE",
        "echo $'(x)'",
        "tee >(cat)",
        "for f in a; do cat ${f%b}; done",
        "echo `(ls)`",
    ],
)
def test_a_construct_that_is_not_fully_understood_stays_unclear(line: str) -> None:
    assert not isinstance(parse(line), Line)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("for f in ~/.ssh/id_rsa; do cat $f; done", ("cat", "~/.ssh/id_rsa")),
        ('echo "$(rm x)"', ("rm", "x")),
        ("(rm x)", ("rm", "x")),
        ("cat <(rm x)", ("rm", "x")),
        ("n=$(rm x); echo a", ("rm", "x")),
        ("{rm,x}", ("rm", "x")),
        ("timeout 5 rm x", ("rm", "x")),
        ("for f in x; do rm $f; done", ("rm", "x")),
        ("for f in -delete; do find . $f; done", ("find", ".", "-delete")),
    ],
)
def test_the_commands_inside_are_judged_too(line: str, command: tuple[str, ...]) -> None:
    judged = parse(line)
    assert isinstance(judged, Line)
    assert command in [one.argv for one in judged.commands]
