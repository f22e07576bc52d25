"""Lines that bash computes: loops, conditions, variables and substitutions run unasked, and no value becomes more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest

from reverie.runtime.guard.permissions import PermissionScope, decide
from reverie.settings import Mode, PermissionRules
from reverie.tools import Access
from reverie.tools.shell import computed, sandbox
from reverie.tools.shell.computed import judged_line
from reverie.tools.shell.git_program import loader_of
from shell_world import CANARY, DENY, GIT, ShellWorld

Case: TypeAlias = dict[str, str]
FOLDER = Path(__file__).parents[1] / "tools" / "shell_commands"
CASES: list[Case] = json.loads((FOLDER / "hostile_computed.json").read_text())
SETUP = (FOLDER / "hostile_computed.sh").read_text()
RAN = "PAYLOAD-RAN"
# Each of these ran a program of the repository, or showed a file outside, when loops were rewritten as simple commands.
REWRITTEN = [
    "echo then n=$(bash payload.sh); ls",
    'ls then echo "$(bash payload.sh)"',
    "head 2>&1 then cat <(bash payload.sh)",
    "for f in ls; do f=$(echo bash payload.sh); $f; done",
    "for f in '. -exec bash payload.sh ;'; do find $f; done",
    """for f in ''; do awk -F $f '{print}' 'BEGIN{system("bash payload.sh")}'; done""",
    "for f in dash/*; do cd dash; find ${f##*/} -maxdepth 0; done",
    'for f in -exec; do echo "$(find . $f bash payload.sh {} +)"; done',
    'for f in echo find; do $f "$(echo .)" "$(echo -exec)" bash payload.sh {} +; done',
    """printf "$(echo -v)" 'a[$(bash payload.sh >&2)]' x""",
    """n=$(echo -v); printf "$n" 'a[$(bash payload.sh >&2)]' x""",
    """for f in -; do printf "${f}v" 'a[$(bash payload.sh >&2)]' x; done""",
    """echo "$(ls #)"; (ls\nls); echo " ; bash payload.sh ; echo '"'\\'""",
    'for f in -; do echo <(find . "${f}exec" bash payload.sh {} +); done',
    "for f in x1; do f=$(echo /etc/passwd); head -1 $f; done",
    'for f in /etc/passwd; do echo "$(head -1 $f)"; done',
    "for f in push; do git $f; done",
    "git {push,origin}",
    "seq 3 | xargs -n1 -P 1$((99)) cat",
    "cat link$((1+1)) li{nk,x}",
]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShellWorld:
    return ShellWorld(tmp_path, monkeypatch)


def effects(world: ShellWorld, lines: list[str], mode: Mode) -> list[str]:
    """Return the lines of which an agent with nobody to ask got more than a read inside, and all changed files."""
    ran = world.call(*(("Bash", {"command": world.filled(line)}) for line in lines), mode=mode)
    found = [
        line
        for line, result, allowed in zip(lines, ran.results, ran.allowed, strict=True)
        if allowed and any(mark in result for mark in (CANARY, RAN, "root:x:"))
    ]
    return [*found, *ran.changed]


@pytest.mark.slow
@pytest.mark.requirement("S1", "S2", "S3")
@pytest.mark.parametrize("mode", ["default", "plan", "accept-edits"])
def test_no_computed_value_reads_outside_runs_a_program_or_changes_anything(
    world: ShellWorld, mode: Mode, torture: bool
) -> None:
    assert len(CASES) >= 230
    world.furnish(SETUP, repository=True)
    chosen = CASES if torture or mode == "default" else CASES[::4]
    assert effects(world, [*REWRITTEN, *(case["command"] for case in chosen)], mode) == []


@pytest.mark.slow
def test_plain_bash_does_all_of_it(world: ShellWorld, torture: bool) -> None:
    """The lines are attacks: each one reads outside, runs the program or changes something where nothing holds it."""
    harmless: list[str] = []
    for case in CASES[:: 1 if torture else 12]:
        world.furnish(SETUP, repository=True)
        before = world.state()
        done = subprocess.run(
            ["bash", "-c", world.filled(case["command"])],
            cwd=world.work,
            env={**os.environ, **GIT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        output = (done.stdout + done.stderr).decode(errors="replace")
        if CANARY not in output and RAN not in output and world.state() == before:
            harmless.append(case["command"])
    assert harmless == []


INJECTED = [
    "find . $(cat inject.txt)",
    'mapfile -t a < words.txt; find . "${a[@]}"',
    'p=$(cat prog.awk); awk "$p" README.md',
    'sed -n "$(cat prog.sed)" README.md',
]
EVALUATED = [
    "x=$(cat subscript.txt); echo $((x + 1))",
    "x='a[$(. ./payload.sh >&2)]'; [[ $x -eq 1 ]]",
    "x='a[$(source payload.sh >&2)]'; for ((i = x; i < 1; i++)); do echo \"$i\"; done",
    # Bash sets $_ to the last word of the last command; errors in an output are not a number.
    ": 'a[$(. ./payload.sh >&2)]'; echo $(($_))",
    "for _ in 1; do : 'a[$(. ./payload.sh >&2)]'; echo $((_)); done",
    "x=1; _x='a[$(. ./payload.sh >&2)]'; echo $(($_x))",
    "n=$(grep -c x 'a[$(. ./payload.sh >&2)]' 2>&1); echo $((0 ? $n : 1))",
    "echo $((0 ? $(grep -c x 'a[$(. ./payload.sh >&2)]' 2>&1) : 1))",
]
# Code in a subscript, and the reason why it starts no program of the repository where nothing judged the line.
STARTED = {
    "cd ${loader%/*}; /proc/self/cwd/${loader##*/} $OLDPWD/tool PAYLOAD-%s RAN": "required file not found",
    "cd ${loader%/*}; /proc/self/cwd/./${loader##*/} $OLDPWD/tool PAYLOAD-%s RAN": "required file not found",
    "/dev/../proc/self/root$(command -v ls)": "its path means another file in each process",
    "LD_PRELOAD=$PWD/tool ls": "the line sets LD_PRELOAD for it",
    "HOME=$PWD git status": "the line sets HOME for it",
    "BASH_ENV=payload.sh xargs ls": "the line sets BASH_ENV for it",
}


@pytest.mark.slow
@pytest.mark.requirement("S3")
def test_each_layer_holds_where_another_one_is_missing(world: ShellWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.furnish(SETUP, repository=True)
    assert all(judged_line(line).allowed for line in INJECTED), "the words are fine, the values are not"
    assert effects(world, INJECTED, "default") == []
    assert not any(judged_line(line).allowed for line in EVALUATED)
    # Without the judge of words, bash evaluates the values: no program starts, and no file is run as code.
    judged_line.cache_clear()
    monkeypatch.setattr(computed, "script_problem", lambda script: "")
    assert all(judged_line(line).allowed for line in EVALUATED)
    assert effects(world, EVALUATED, "default") == []
    # Without the judge of programs too, the program of the repository runs (it cannot write in the sandbox).
    plain = sandbox.confined_command
    monkeypatch.setattr(sandbox, "confined_command", lambda argv, watched=(), **given: plain(argv, **given))
    assert effects(world, [*INJECTED, *EVALUATED], "default") == [*INJECTED, *EVALUATED]
    judged_line.cache_clear()


def test_code_in_a_value_starts_no_program_by_a_path_or_a_variable(
    world: ShellWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.furnish("cp $(command -v printf) tool", repository=True)
    (loader,) = loader_of(shutil.which("printf") or "") or ("",)
    monkeypatch.setattr(computed, "script_problem", lambda script: "")
    judged_line.cache_clear()
    lines = [f"loader={loader}; x='a[$({code} >&2)]'; [[ $x -eq 1 ]]" for code in STARTED]
    ran = world.run(*lines)
    judged_line.cache_clear()
    assert all(ran.allowed)
    assert [(line, text) for line, text in zip(lines, ran.results, strict=True) if RAN in text] == []
    said = dict(zip(STARTED, ran.results, strict=True))
    assert {code: text for code, text in said.items() if STARTED[code] not in text} == {}


EVERYDAY = [
    'for f in src/*.py; do echo "== $f"; head -2 "$f"; done',
    'n=$(git rev-list --count HEAD); echo "commits: $n"; [ "$n" -gt 1 ] && echo many',
    'total=0; for f in src/*.py; do n=$(wc -l < "$f"); total=$((total + n)); done; echo "total $total"',
    "diff <(sort README.md) <(sort docs/guide.md) | head -3",
    'git ls-files | while read -r f; do [ -f "$f" ] && wc -l "$f"; done | sort -rn | head -3',
    "if [[ -f package.json ]]; then jq -r .name package.json; else echo none; fi",
    "awk 'NR<=2 {printf \"%d: %s\\n\", NR, $0}' README.md",
    "find src -name '*.py' -exec sed -n 1,2p {} \\;",
    "git ls-files src | xargs -I{} git log -1 --format='%s {}' -- {}",
    "timeout 20 grep -rn def src",
    "timeout 0.1 sleep 60; echo $?; gzip -c README.md | zgrep -n small",
    'case "$(uname -s)" in Linux) echo linux;; *) echo other;; esac',
    "cat <<'EOF' | wc -l\none\ntwo\nEOF",
    'LC_ALL=C sort data.csv; while IFS=, read -r a b; do echo "$b:$a"; done < data.csv',
    'i=0; while ((i < 3)); do i=$((i + 1)); done; echo "$i"; (cd src && ls) 2>/dev/null',
]


@pytest.mark.slow
@pytest.mark.requirement("S3")
def test_lines_that_bash_computes_run_unasked_and_say_the_same_as_in_plain_bash(world: ShellWorld) -> None:
    world.furnish("", repository=True)
    ran = world.run(*EVERYDAY)
    assert [line for line, allowed in zip(EVERYDAY, ran.allowed, strict=True) if not allowed] == []
    assert ran.changed == ()
    for line, result in zip(EVERYDAY, ran.results, strict=True):
        plain = subprocess.run(["bash", "-c", line], cwd=world.work, capture_output=True, text=True, check=False)
        assert result == plain.stdout, line
        assert result


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="this Python is the system's")
def test_git_runs_where_our_own_python_is_part_of_the_project(world: ShellWorld) -> None:
    ran = world.call(("Bash", {"command": "for one in 1; do git --version; done"}), cwd=Path(sys.prefix))
    assert ran.result.startswith("git version")


def test_where_programs_cannot_be_judged_such_a_line_asks(world: ShellWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.furnish()

    def outcome(line: str) -> str:
        scope = PermissionScope(world.work, home=world.home)
        return decide(PermissionRules(deny=DENY), "default", "Bash", Access("run", line), scope).outcome

    assert outcome(EVERYDAY[0]) == "allow"
    found = sandbox.available()
    without = type(found)(found.works, found.landlock_version, found.namespaces, found.seccomp, False, found.detail)
    monkeypatch.setattr("reverie.runtime.guard.permissions.available", lambda: without)
    assert outcome(EVERYDAY[0]) == "ask"
    assert outcome("ls src") == "allow"


def test_a_program_that_does_not_start_is_named_in_the_result(world: ShellWorld) -> None:
    world.furnish(SETUP, repository=True)
    assert "'bash payload.sh': not started without asking" in world.run(INJECTED[0]).result


@pytest.mark.requirement("S3")
def test_a_line_that_uses_a_variable_which_the_sandbox_lacks_asks() -> None:
    asks = ['printf %s "$ANTHROPIC_API_KEY"', 'echo "${DATABASE_URL:-none}"', 'for f in $FILES; do wc -l "$f"; done']
    runs = [
        'x=a; echo "$x"',
        'echo "$HOME $PWD $RANDOM"',
        'for f in *.py; do echo "${f%.py} ${#f}"; done',
        'ls | while read -r n; do echo "$n"; done',
    ]
    assert [judged_line(line).allowed for line in asks] == [False] * 3
    assert [judged_line(line).allowed for line in runs] == [True] * 4
