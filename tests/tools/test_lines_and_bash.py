"""A line that runs unasked starts no other programs, with no other words, than the parsers read in it."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from reverie.tools.shell.computed import judged_line, parse
from reverie.tools.shell.computed.parser import parse_script

FOLDER = Path(__file__).with_name("shell_commands")
SETS = ("everyday", "everyday_more", "hostile", "hostile_computed", "hostile_more", "hostile_repository")
# Parts of the language that the parsers know, nearly know or refuse; ``evil`` is a command that no line may run.
TEXT = r"""
x=1 x=$(cat a) y+=a a=(1 2) a+=(b) "$x" $x ${x} ${#x} ${x%.py} ${x##*/} ${x//a/b} ${x:-y} ${a[@]} "${a[@]}" ${a[0]}
$(cat a) "$(cat a)" $((x+1)) <(cat a) $? $# $$ $@ $* $! $- $_ $0 ${!x} ${x@P} ${x^^} ${x:1:2} ${x:-$(evil)} $[1] $"a"
'a b' "a b" "a'b" 'a"b' a\ b \; \# #b a#b 'a'"b" "$x"y $'a\tb' $'\'' "\$x" '\' "\\" a\\ \$x "a\"b" ~ ~/a ~root ~+ a=~
{a,b} {1..3} {a,{b,c}} {} {,} x{} * ?.py [a-c]* [!a] [[:alpha:]] !(a) @(a|b) -n -exec -- - ! [ ] [[ ]] { } ( ) (( ))
; ;; ;& & && || | |& > < >> << <<< <<- <> >| &> 2>&1 >/dev/null 2>/dev/null <a 2>&- {fd}>a 1>&2 <<EOF <<'EOF' <<-EOF
if then elif else fi for in do done while until case esac time function select coproc evil evil;evil evil& <(evil)
$(evil) `evil` ls cat wc grep sort echo printf test read cd : set shopt mapfile break exit command type xargs find awk
sed git ` ' " \ $ ${ $( $(( )) é EOF x=1
"""
PIECES = TEXT.split()
LONGER = (
    "\n", "\t", " ", "\\\n", " \\\n", "\nEOF\n", "# c\n", " # evil\n", "[ -f a ]", "[[ $x == a* ]]",
    "[[ a =~ (b|c)+$ ]]", "case $x in a) cat b;; esac", "for i in a b; do cat $i; done", "if cat a; then cat b; fi",
    "(cat a; cat b)", 'while read -r l; do cat "$l"; done < a', "cat <<EOF\na $x\nEOF\n", "! cat a", "a=(b)#b; evil",
    "cat <<'EOF'\n$(evil)\nEOF\n", "{ cat a; cat b; }", "time cat a", "LC_ALL=C sort a", "((i++))", "a=(b)",
    "for ((i=0;i<2;i++)); do cat $i; done", '"$(cat "a b")"', "$(cat <<EOF\nx\nEOF\n)", "[[ -v a[$(evil)] ]]",
)  # fmt: skip
# Each program that bash would start is noted with its words, and prints text that must not become code. Commands whose
# output counts as a number print one.
NOTE = r"""
command_not_found_handle() {
  local words=("${@//$'\n'/$'\2'}" $'\1')
  printf '%s\0' "${words[@]}" >&9
  case "$1 $* " in
    wc*|seq*|nproc*|*" -c"*|*count*|*+%s*|*%[ac]t*) builtin echo 3 ;;
    *) builtin printf '%s\n' 'a[$(evil)]' '-exec ; * $(evil)' -v 'x=a[`evil`]' 'b c' ;;
  esac
}
"""


def known_lines() -> list[str]:
    plain = [line for name in ("benign", "harmful") for line in (FOLDER / f"{name}.txt").read_text().splitlines()]
    kept = [
        line.replace("␊", "\n").replace("␉", "\t") for line in plain if line and not line.startswith(("#", "never "))
    ]
    return kept + [case["command"] for name in SETS for case in json.loads((FOLDER / f"{name}.json").read_text())]


def changed_line(draw: random.Random, lines: list[str]) -> str:
    """Return a known line, or two, with pieces put in, left out or repeated."""
    text = draw.choice(lines)
    if draw.random() < 0.25:
        text += draw.choice([" ; ", " | ", "\n", " && "]) + draw.choice(lines)
    for _ in range(draw.choice([1, 1, 2, 3])):
        blanks = [found.start() for found in re.finditer(r"[ ;|\n]", text)]
        at = draw.choice(blanks) if blanks and draw.random() < 0.4 else draw.randrange(len(text) + 1)
        end = draw.randrange(at, min(len(text), at + 20) + 1)
        piece = draw.choice(PIECES if draw.random() < 0.7 else LONGER)
        put = draw.choice(["", "", " "]) + piece + draw.choice(["", "", " "])
        text = draw.choice(
            [text[:at] + put + text[at:], text[:at] + put + text[at:], text[:at] + text[end:], text + text[at:end]]
        )
    return text[:900]


def soup(draw: random.Random) -> str:
    pieces = [draw.choice(PIECES if draw.random() < 0.7 else LONGER) for _ in range(draw.randrange(1, 12))]
    return "".join(piece + draw.choice([" ", " ", " ", "", ";", "\n"]) for piece in pieces)


def words_of(line: str) -> list[list[str | None]]:
    """Return the words of each command by our parsers; None stands for those that bash computes."""
    simple = parse(line)
    if simple is not None:
        return [[None if word.is_pattern else word.text for word in command.words] for command in simple.commands]
    script = parse_script(line)
    return [
        [word.text if word.is_literal and not word.is_pattern else None for word in command.words]
        for command in script.commands
        if command.words
    ]


def started_by_bash(line: str, folder: Path) -> list[str]:
    """Return the words of each program that bash would start for a line; no program is there."""
    (folder.parent / "note.sh").write_text(NOTE)
    log = folder.parent / "log"
    log.write_bytes(b"")
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    started = subprocess.Popen(
        ["/bin/bash", "-c", line],
        cwd=folder,
        env={"PATH": "/nowhere", "HOME": "~", "BASH_ENV": str(folder.parent / "note.sh")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: os.dup2(descriptor, 9),
        pass_fds=(9,),
    )
    os.close(descriptor)
    with suppress(subprocess.TimeoutExpired):  # an endless loop has said all that it will
        started.wait(3)
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    return [words for words in log.read_bytes().decode(errors="replace").split("\1\0") if words]


def surprises(line: str, words: list[list[str | None]], folder: Path) -> list[list[str]]:
    """Return the programs, with their words, that bash starts for a line and that are not among these words."""
    forms = [
        re.compile(
            "".join("(?:[^\0]*\0)*" if word is None else re.escape(word.replace("\n", "\2")) + "\0" for word in each)
        )
        for each in words
    ]
    started = started_by_bash(line, folder)
    return [one.split("\0")[:-1] for one in started if not any(form.fullmatch(one) for form in forms)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    for name in ("a", "b", "a.py", "README.md", "data.csv", "-exec"):
        (place / name).write_text("one a[$(evil)]\ntwo\n")
    return place


@pytest.mark.slow
@pytest.mark.requirement("S3")
def test_a_line_that_runs_unasked_starts_no_other_words_than_those_that_were_judged(
    folder: Path, seed: int, torture: bool
) -> None:
    draw, lines = random.Random(seed), known_lines()
    before, judged, found = sorted(folder.iterdir()), 0, dict[str, list[list[str]]]()
    for _ in range(300_000 if torture else 1_500):
        line = changed_line(draw, lines) if draw.random() < 0.75 else soup(draw)
        if not judged_line(line).allowed:
            continue
        judged += 1
        if more := surprises(line, words_of(line), folder):
            found[line] = more
        assert sorted(folder.iterdir()) == before, line
    assert judged > 30
    assert found == {}


def test_words_that_the_parsers_missed_are_found(folder: Path) -> None:
    assert surprises("cat a; (evil b)", [["cat", "a"]], folder) == [["evil", "b"]]
    assert surprises("cat a<(ls)", [["cat", "a", None], ["ls"]], folder) == [["cat", "a/dev/fd/63"]]
    assert surprises("x=$(cat a); echo $((x))", [["cat", "a"]], folder)[:1] == [["evil"]]
    assert surprises("cat *.py 'a b' $HOME", [["cat", None, "a b", None]], folder) == []


@pytest.mark.requirement("S3")
@pytest.mark.parametrize(
    "line",
    ["cat a<(ls)", "cat <(ls)<(ls)", "x=a<(ls)", "a=(b)#c; evil", "a=(b)c", "command cat -v", "command -- cat -v a"],
)
def test_a_line_that_bash_reads_otherwise_asks(line: str) -> None:
    assert not judged_line(line).allowed
