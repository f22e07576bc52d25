"""A line that nobody approved reads nothing outside, nothing denied, and changes nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import TypeAlias

import pytest

from reverie.runtime.guard.permissions import Approval, ApprovalAnswer, PermissionScope, decide
from reverie.settings import Mode, PermissionRules
from reverie.tools import Access
from reverie.tools.shell.computed import judged_line
from reverie.tools.shell.confine import KEPT
from shell_world import CANARY, DENY, Ran, ShellWorld

Case: TypeAlias = dict[str, str]
FOLDER = Path(__file__).parents[1] / "tools" / "shell_commands"
# The setup copies a denied file under another name, which no rule denies.
COPIES = {"h271"}


def cases_of(name: str) -> list[Case]:
    return json.loads((FOLDER / name).read_text())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShellWorld:
    return ShellWorld(tmp_path, monkeypatch)


TRACKED = "git init -q .; git add -f .env README.md; git commit -qm one"
# (setup, line): the findings of the review, and kin of them.
LEAKS = [
    ("", "cat < .env"),
    ("", "cat .en?"),
    ("", "cat .en[v]"),
    ("", "head *.env"),
    ("", "cat .e*"),
    ("", "cat ./.[e]nv"),
    ("", "grep -r CANARY ."),
    ("", "grep -R . ./"),
    ("mkdir d; cp .env d/.env", "grep -h . d/.env d/.en*"),
    (TRACKED, "git show HEAD:.env"),
    (TRACKED, "git cat-file -p HEAD:.env"),
    (TRACKED, "git show HEAD"),
    (TRACKED, "git log -p -- '.e*'"),
    (TRACKED, "git grep CANARY HEAD"),
    (TRACKED + "; git rm -q --cached .env; git commit -qm two", "git log -p"),
    ("ln -s ~/.ssh/id_rsa key", "cat key"),
    ("ln -s ~/.ssh/id_rsa key", "cat < key"),
    ("ln -s ~/.ssh docs/keys", "grep -R CANARY docs"),
    ("ln -s $OUT docs/o", "cd docs/o && cat secret.txt"),
    ("ln -s $OUT docs/o", "cat docs/*/secret.txt"),
    ("ln ~/.ssh/id_rsa hard", "cat hard"),
    ("ln ~/.ssh/id_rsa hard", "grep -r key ."),
    ("ln .env other.txt", "cat other.txt"),
    ("", "cd && grep -rhs CANARY"),
    ("", "cd; ls -laR"),
    ("", "cd && cat notes.txt"),
    ("", "rg -0e. ~/.ssh/id_rsa"),
    ("", "grep -rof/etc/passwd $OUT/secret.txt"),
    ("", "cat .*/out/secret.txt"),
    ("", "cat .[.]/out/secret.txt"),
    ("", "echo ~/.ssh/* $OUT/*"),
    ("", "jq -n '$ ENV'"),
]


def leaks(world: ShellWorld, ran: Ran, cases: list[Case]) -> list[str]:
    """Return the lines of which the canary came back, plain or as the case says; a refusal may repeat the line."""
    found: list[str] = []
    for case, result, allowed in zip(cases, ran.results, ran.allowed, strict=True):
        text = case.get("leak_text", CANARY)
        if text in result and (allowed or text not in world.filled(case["command"])):
            found.append(f"{case['command']!r} after {case.get('setup', '')!r}: {result[:200]}")
    return found


def by_setup(cases: list[Case]) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.get("setup", ""), []).append(case)
    return found


@pytest.mark.slow
@pytest.mark.requirement("S1", "S3")
def test_nothing_outside_and_nothing_denied_comes_back(world: ShellWorld) -> None:
    found: list[str] = []
    for setup, cases in by_setup([{"setup": setup, "command": line} for setup, line in LEAKS]).items():
        world.furnish(setup)
        ran = world.run(*(case["command"] for case in cases))
        found += [*leaks(world, ran, cases), *ran.changed]
    assert found == []


NESTED = "git init -q sub; cp .env sub; git -C sub add -f .env; git -C sub commit -qm one; rm sub/.env"
SCRIPT = 'mkdir bin; echo \'console.log("CANARY_" + "7f3a")\' > bin/npm'
# Values that become git's words or directory, or a file that only the process sees under its name.
COMPUTED_LEAKS = [
    (TRACKED, "x=' -p'; git log HEAD$x"),
    (TRACKED, "x=p; git log -$x"),
    (TRACKED + "; echo show HEAD:.env > words", "xargs git < words"),
    (TRACKED + "; echo git show HEAD:.env > words", "xargs timeout 5 < words"),
    (TRACKED + "; echo git show HEAD:.env > words", "xargs nice < words"),
    (TRACKED + "; echo show > words", "xargs -I{} git {} HEAD < words"),
    (TRACKED + "; echo git > words", "xargs -I{} {} show HEAD:.env < words"),
    (TRACKED + "; echo git show HEAD:.env > words", "find . -maxdepth 0 -exec xargs timeout 5 \\; < words"),
    (TRACKED + "; echo git show HEAD:.env > words", "timeout 5 xargs nice < words"),
    (TRACKED + "; git update-ref refs/tags/x HEAD:.env", "git for-each-ref --format='%(raw)'"),
    (TRACKED + "; git update-ref refs/tags/x HEAD:.env", "git tag --list --format='%(raw)'"),
    (TRACKED + "; echo B=CANARY_7f3a >> .env; git add -f .env", "git status -v"),
    (NESTED, "d=sub; cd $d; git log -p"),
    (NESTED, 'for d in */; do git -C "$d" log -p; done'),
    (SCRIPT, "p=/pro; find . -maxdepth 0 -exec node ${p}c/self/fd/0/npm --version \\; < bin"),
]


@pytest.mark.slow
@pytest.mark.requirement("S1", "S3")
@pytest.mark.parametrize(("setup", "line"), COMPUTED_LEAKS)
def test_no_computed_word_shows_a_denied_file_of_a_repository_or_runs_a_script(
    world: ShellWorld, setup: str, line: str
) -> None:
    world.furnish(setup)
    ran = world.run(line)
    assert leaks(world, ran, [{"setup": setup, "command": line}]) == []
    assert ran.changed == ()


@pytest.mark.parametrize("name", [*KEPT, "PYTHONSAFEPATH", "BASH_ENV"])
def test_a_line_that_sets_a_variable_of_the_sandbox_asks(name: str) -> None:
    assert not judged_line(f"{name}=x; ls").allowed
    assert judged_line(f"my_{name}=x; ls").allowed


DENIED = [
    ("word", "cat .env"),
    ("word after cd", "cd src && cat ../.env"),
    ("redirection", "cat < .env"),
    ("glob", "cat .en? .en[v]; head *.env"),
    ("git", "git show HEAD:.env"),
    ("git", "git cat-file -p HEAD:.env"),
    ("link", "cat key"),
    ("word of a line that is not understood", 'x=1; cat "$x" .env'),
    ("glob of a line that is not understood", 'x=1; cat "$x" .en?'),
    ("link in a line that is not understood", 'x=1; cat "$x" < key'),
]


@pytest.mark.requirement("S1")
def test_a_command_that_names_a_denied_file_in_any_way_is_denied_where_no_sandbox_holds_it(world: ShellWorld) -> None:
    world.furnish(f"{TRACKED}; ln -s ~/.ssh/id_rsa key")
    calls = [("Bash", {"command": line}) for _, line in DENIED]
    ran = world.call(*calls, mode="bypass")
    assert [case for case, allowed in zip(DENIED, ran.allowed, strict=True) if allowed] == []
    assert CANARY in world.call(*calls[:1], mode="bypass", deny=()).result


HELD = f"{TRACKED}; git rm -q --cached .env; git commit -qm two; ln -s ../.env docs/key; ln .env hard"
REACHING: list[tuple[str, dict[str, str]]] = [
    *(
        ("Bash", {"command": line})
        for line in (
            *("cat .env", "cat .e*", "cat .???", "cat < .env", "cat docs/key", "cat hard", "cat src/../.env"),
            *("git show HEAD~1:.env", "git show HEAD~1", "git show HEAD", "git log -p", "git diff HEAD~1 HEAD"),
            *(
                "git grep TOKEN HEAD~1",
                "git archive HEAD~1 | tar -xO",
                "git cat-file -p HEAD~1:.env",
                "git format-patch --root --stdout HEAD",
            ),
            *(
                "grep -r TOKEN .",
                "grep -rn TOKEN docs .",
                "find . -type f -exec cat {} +",
                "find . -name '.e*' | xargs cat",
            ),
            *(
                "cat * .*",
                "f=.env; cat $f",
                "cat $(echo .env)",
                "bash -c 'cat .e*'",
                "dd if=.env",
                "cd src; cat ../.env",
            ),
            *("grep -r key ~", "cat ~/.ssh/*", "cp .env x; cat x"),
            *("tar -cf- --exclude=.git . | tar -xO", "mkdir ../c; cp -r . ../c; cat ../c/.e*; rm -r ../c"),
            "python3 -c 'print(open(chr(46) + \"env\").read())'",
            "perl -pe1 ~/.s*/id*",
            "cat /proc/$PPID/root$PWD/.e*",
            "umount .e*; perl -pe1 .e*",
        )
    ),
    *(("Read", {"file_path": name}) for name in (".env", "docs/key", "hard")),
    *(("Grep", {"pattern": "TOKEN", "output_mode": "content", "path": name}) for name in (".", ".env", "docs/key")),
]


@pytest.mark.slow
@pytest.mark.requirement("S1")
@pytest.mark.parametrize("mode", ["default", "accept-edits", "plan", "bypass"])
def test_no_form_of_a_read_shows_a_denied_file_in_any_mode(world: ShellWorld, mode: Mode) -> None:
    world.furnish(HELD)
    ran = world.call(*REACHING, mode=mode)
    assert [call for call, result in zip(REACHING, ran.results, strict=True) if CANARY in result] == []


@pytest.mark.slow
@pytest.mark.requirement("S1")
def test_a_command_in_bypass_does_all_its_work_without_the_denied_files(world: ShellWorld) -> None:
    world.furnish(f"{TRACKED}; mkdir keys; echo {CANARY} > keys/a; ln -s ../.env docs/key")
    deny = (*DENY, "Read(keys/**)")
    lines = [
        "mkdir made; mv README.md made/r; echo new > made/n; python3 -c 'print(open(\"made/r\").read())'; cat made/n; "
        "id -u",
        "python3 -c \"open('.en' + 'v')\"",
        "python3 -c \"import os; os.remove('.en' + 'v')\"; tar -cO docs/*.md k*s",
        "git commit -qam z",
    ]
    calls = [("Bash", {"command": line}) for line in lines]
    worked, opened, changed, committed = world.call(*calls, mode="bypass", deny=deny).results
    assert "# Sample" in worked
    assert f"new\n{os.getuid()}\n" in worked
    assert "Permission denied" in opened
    assert "a rule denies" in opened
    assert CANARY not in changed
    assert "can only add regular files" in committed, "git must not record the cover of a tracked file"
    assert CANARY in (world.work / ".env").read_text(), "a denied file cannot be removed or replaced either"
    by_rule = world.call(calls[1], mode="bypass", deny=deny, allow=("Bash(python3:*)",))
    assert "denied" not in by_rule.result


@pytest.mark.slow
def test_without_the_rule_every_form_shows_the_file(world: ShellWorld) -> None:
    world.furnish(HELD)
    ran = world.call(*REACHING, mode="bypass", deny=())
    assert [call for call, result in zip(REACHING, ran.results, strict=True) if CANARY not in result] == []


@pytest.mark.slow
def test_bypass_with_a_denied_file_still_reads_everywhere_else(
    world: ShellWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.furnish("ln ../out/secret.txt linked; touch $OUT/file{1..99}")
    lines = ("cat ~/notes.txt", "cat linked", "cat ../out/secret.txt", "echo $((1+1)) > made; cat made")
    *outside, made = world.call(*(("Bash", {"command": line}) for line in lines), mode="bypass").results
    assert [result for result in outside if CANARY not in result] == []
    assert made.startswith("2")
    monkeypatch.setattr("reverie.tools.shell.read_places.MAX_ENTRIES", 60)
    names, search = world.call(
        *(("Bash", {"command": line}) for line in ("ls ../out", "grep -r outside ../out")), mode="bypass"
    ).results
    assert "file99" in names, "too many files to find the denied ones: only names can be read"
    assert "outside" not in search


@pytest.mark.slow
@pytest.mark.requirement("S1", "S3")
def test_no_line_of_the_hostile_set_leaks_or_changes_anything(world: ShellWorld, torture: bool) -> None:
    groups = list(by_setup([case for case in cases_of("hostile.json") if case["id"] not in COPIES]).items())
    assert sum(len(cases) for _, cases in groups) >= 800
    # One line for each world in the long form; in the short one, lines of some worlds after another.
    chosen = [(setup, [case]) for setup, cases in groups for case in cases] if torture else groups[:1] + groups[1::12]
    for setup, cases in chosen:
        world.furnish(setup)
        ran = world.run(*(case["command"] for case in cases))
        assert leaks(world, ran, cases) == []
        assert ran.changed == (), cases


@pytest.mark.slow
@pytest.mark.requirement("S1", "S2", "S3")
@pytest.mark.parametrize(("name", "count"), [("hostile_repository.json", 590), ("hostile_more.json", 360)])
def test_no_line_in_a_hostile_repository_leaks_changes_runs_or_connects(
    world: ShellWorld, torture: bool, name: str, count: int
) -> None:
    """The lines were written by people who had not seen the rules."""
    cases = cases_of(name)
    assert len(cases) >= count
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = str(server.getsockname()[1])
        lines = [{**case, "command": case["command"].replace("$PORT", port)} for case in cases]
        together = [line for line in lines if "setup" not in line][::25]
        for some in [[line] for line in lines] if torture else [together]:
            world.furnish(f"{(FOLDER / 'hostile_repository.sh').read_text()}\n{some[0].get('setup', '')}")
            ran = world.run(*(case["command"] for case in some))
            assert leaks(world, ran, some) == []
            assert ran.changed == (), some
        with pytest.raises(BlockingIOError):
            server.accept()


FOLLOWED = [
    "grep -R . links",
    "grep -nR '' .",
    "rg -L . links",
    "find . -type l -exec cat {} +",
    "find -L links -type f -exec head -3 {} ;",
    "diff -r links src",
]


def test_a_command_that_opens_links_which_no_word_names_reads_no_file_of_the_system(world: ShellWorld) -> None:
    make = f"mkdir links; ln -s /etc/passwd links/app.py; echo {CANARY} > ~/.gitconfig; ln -s ~/.gitconfig links/lib"
    world.furnish(make)
    ran = world.run(*FOLLOWED)
    shown = zip(FOLLOWED, ran.results, strict=True)
    assert [line for line, text in shown if CANARY in text or "root:x:" in text] == []


@pytest.mark.parametrize("line", ["cat link", "git status", "make"])
def test_plain_bash_in_the_hostile_repository_leaks_or_runs_its_program(world: ShellWorld, line: str) -> None:
    world.furnish((FOLDER / "hostile_repository.sh").read_text())
    done = subprocess.run(["bash", "-c", line], cwd=world.work, capture_output=True, text=True, check=False)
    assert CANARY in done.stdout or (world.out / "MARK_EVIL").exists()


@pytest.mark.slow
@pytest.mark.requirement("S3")
@pytest.mark.parametrize("name", ["everyday.json", "everyday_more.json"])
def test_lines_of_every_day_run_without_asking(world: ShellWorld, name: str, torture: bool) -> None:
    lines = [case["command"] for case in cases_of(name)]
    assert len(lines) >= 100
    world.furnish("echo '# more' >> README.md", repository=True)
    scope = PermissionScope(world.work, home=world.home)
    verdicts = {
        line: decide(PermissionRules(deny=DENY), "default", "Bash", Access("run", line), scope).outcome
        for line in lines
    }
    asked = [line for line, outcome in verdicts.items() if outcome != "allow"]
    assert len(asked) <= 0.05 * len(lines), asked
    chosen = lines[:: 1 if torture else 24]
    ran = world.run(*chosen)
    assert ran.allowed == tuple(verdicts[line] == "allow" for line in chosen)
    assert [result for result in ran.results if "Permission denied" in result] == []
    assert ran.changed == ()


@pytest.mark.requirement("S1")
def test_no_tool_reads_what_is_denied_or_outside(world: ShellWorld) -> None:
    links = "ln -s ~/.ssh/id_rsa key; ln ~/.ssh/id_rsa hard; ln -s .env alias; ln -s . loop"
    world.furnish(f"{links}; echo 'a key in the open' > open.txt")
    shown = {"pattern": "CANARY", "output_mode": "content"}
    ran = world.call(
        *(("Read", {"file_path": path}) for path in (".env", "key", "hard", "~/.ssh/id_rsa", "alias", "loop/alias")),
        *(("Grep", {**shown, **more}) for more in ({}, {"glob": ".e*"}, {"path": ".env"}, {"path": "key"})),
        *(("Grep", {**shown, "path": path, "glob": "*"}) for path in ("alias", "loop", "loop/.env")),
        ("Grep", {"pattern": "key", "output_mode": "content"}),
        ("Glob", {"pattern": "*", "path": "~/.ssh"}),
    )
    assert [result for result in ran.results if CANARY in result or "id_rsa\n" in result] == []


def test_grep_and_glob_leave_out_denied_files_and_say_so_of_hard_links(world: ShellWorld) -> None:
    world.furnish("ln ~/.ssh/id_rsa hard; echo 'a key in the open' > open.txt")
    found = world.call(("Grep", {"pattern": "key", "output_mode": "content"})).result
    assert "open.txt:1:a key in the open" in found
    assert "(hard links); name one in path: hard]" in found
    assert ".env" not in world.call(("Glob", {"pattern": ".*"})).result
    assert ".env" in world.call(("Glob", {"pattern": ".*"}), deny=()).result


@pytest.mark.requirement("S1")
def test_hidden_files_of_a_home_that_is_the_working_directory_are_outside(world: ShellWorld) -> None:
    world.furnish()
    calls = [
        ("Read", {"file_path": ".ssh/id_rsa"}),
        ("Grep", {"pattern": "key", "path": ".ssh", "output_mode": "content"}),
        ("Bash", {"command": "cat ~/.ssh/id_rsa"}),
        ("Bash", {"command": "cat .s*/id_rsa"}),
        ("Bash", {"command": "grep -rh key ."}),
        ("Bash", {"command": "cat notes.txt"}),
    ]
    *private, notes = world.call(*calls, deny=(), cwd=world.home).results
    assert [result for result in private if "key CANARY" in result] == []
    assert "home CANARY" in notes


@pytest.mark.slow
def test_a_rule_that_allows_a_command_lets_it_read_elsewhere_but_nothing_denied(world: ShellWorld) -> None:
    world.furnish()
    lines = (
        *("cat ~/notes.txt", "grep -r outside . ../out", "cd ../out && cat secret.txt"),
        *("cat ~/.ssh/id_rsa", "cat .e?v", "grep -r CANARY .", "grep -rE 'TOKEN|key|pw' . ~/notes.txt"),
        *("grep -rE 'TOKEN|key|pw' ..", "cd .. && grep -rE 'TOKEN|key|pw'"),
    )
    calls = [("Bash", {"command": line}) for line in lines]
    ran = world.call(*calls, allow=("Bash(cat:*)", "Bash(grep:*)", "Bash(cd:*)"))
    assert all(CANARY in result for result in ran.results[:3])
    assert CANARY not in str(ran.results[3:])
    assert "no file that a rule denies" in ran.results[5]
    exact = "grep -rE TOKEN . ~/notes.txt"
    assert CANARY in world.call(("Bash", {"command": exact}), allow=(f"Bash({exact})",)).result, "a person saw it whole"


@pytest.mark.slow
def test_without_the_sandbox_s_wall_a_search_finds_what_no_word_names(
    world: ShellWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reverie.tools.shell import read_places

    monkeypatch.setattr(read_places, "read_places", lambda scope, names=None: ())
    world.furnish("ln -s ~/.ssh docs/keys")
    assert all(CANARY in result for result in world.run("grep -r CANARY .", "grep -R CANARY docs").results)


def test_always_for_one_command_does_not_run_a_program_that_another_names(world: ShellWorld) -> None:
    world.furnish(repository=True)
    asked: list[str] = []

    async def approve(approval: Approval) -> ApprovalAnswer:
        asked.append(approval.access.target)
        return ApprovalAnswer("deny" if "PWNED" in approval.access.target else "always")

    lines = ("git fetch origin", "git fetch origin", "git fetch --upload-pack='touch PWNED' .")
    ran = world.call(*(("Bash", {"command": line}) for line in lines), approve=approve)
    assert asked == [lines[0], lines[2]]
    assert not any(path.endswith("PWNED") for path in ran.changed)


@pytest.mark.slow
def test_git_reads_its_repository_from_a_folder_a_worktree_and_a_submodule(world: ShellWorld) -> None:
    world.furnish(
        "git worktree add -q ../home/tree; git init -q ../out/lib; cd ../out/lib; echo a > a; git add a;"
        "git commit -qm a; cd $WORK; git -c protocol.file.allow=always submodule add -q $OUT/lib sub;"
        "echo more >> README.md;"
        "printf '[include]\\npath = extra\\n' > ~/.gitconfig; printf '[user]\\nname = me\\n' > ~/extra",
        repository=True,
    )
    line = {"command": "git status --short && git diff --stat && git log --oneline -1 && git config user.name"}
    for folder, said in (("work/src", "README.md | 1 +"), ("home/tree", "three"), ("work/sub", " a\n")):
        found = world.call(("Bash", line), cwd=world.folder / folder).result
        assert said in found
        assert found.endswith("me\n")
