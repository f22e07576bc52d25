"""git runs no program that a repository names, and uses no repository that is not where it seems to be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hostile_repository import CANARY, bare_repository, git, hostile_repository
from reverie.errors import InputError
from reverie.tools.git import PROGRAM, run_git
from reverie.tools.shell.sandbox import available

COMMANDS = ("status --short", "diff HEAD~1", "log -p", "blame b.bin", "ls-files -mo", "reflog -p")
CHECKOUT = "worktree add --quiet -b other ../tree HEAD"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("hostile")
    (base / "id_rsa").write_text(f"{CANARY}\n")
    return hostile_repository(base / "work", base / "ran", base / "id_rsa")


def programs(hostile: Path) -> set[str]:
    """Return the programs that ran since the last call."""
    folder = hostile.parent / "ran"
    found = set(os.listdir(folder))
    for name in found:
        (folder / name).unlink()
    return found


def without_checkout(hostile: Path) -> None:
    quiet = {"core.fsmonitor": "false", "core.hooksPath": "/dev/null"}
    options = [part for key, value in quiet.items() for part in ("-c", f"{key}={value}")]
    for words in (["worktree", "remove", "--force", "../tree"], ["branch", "-qD", "other"]):
        subprocess.run(["git", *options, *words], cwd=hostile, capture_output=True)
    programs(hostile)


# One half of the protection at a time: git with everything switched off, or git that can execute nothing.
HALVES = {
    "settings": "git_program.restrict_programs = lambda programs: False",
    "kernel": "git_program.GIT_SETTINGS, git_program.WITHOUT_DRIVERS = {}, {}\n"
    "git_program.overrides = lambda top, found: {}",
}
DRIVER = """import sys
sys.path.insert(0, sys.argv[1])
import git_program
{change}
sys.exit(git_program.main(sys.argv[2:]))
"""


@pytest.mark.requirement("S2")
@pytest.mark.parametrize("half", HALVES)
def test_no_program_of_a_repository_runs(hostile: Path, half: str) -> None:
    if half == "kernel" and not available().landlock_version:
        pytest.skip("this kernel has no Landlock")
    driver = [sys.executable, "-I", "-S", "-c", DRIVER.format(change=HALVES[half]), str(PROGRAM.parent)]
    for command in (*COMMANDS, CHECKOUT):
        done = subprocess.run([*driver, *command.split()], cwd=hostile, capture_output=True, text=True)
        assert programs(hostile) == set(), command
        assert CANARY not in done.stdout + done.stderr
        assert half == "kernel" or (done.returncode, done.stderr) == (0, "")
    without_checkout(hostile)


def test_the_installed_git_runs_them(hostile: Path) -> None:
    shown = ""
    for command in (*COMMANDS, CHECKOUT):
        done = subprocess.run(["git", *command.split()], cwd=hostile, capture_output=True, text=True)
        shown += done.stdout
    ran = programs(hostile)
    without_checkout(hostile)
    assert {"core.fsmonitor", "hook", "filter.f.clean", "filter.f.smudge", "filter.p.process"} <= ran
    assert {"diff.conv.textconv", "diff.external"} <= ran
    assert CANARY in shown


OLDER = """#!/bin/sh
case "$*" in *--show-scope*) exit 129;; esac
unset GIT_CONFIG_COUNT
exec {git} "$@"
"""


@pytest.mark.requirement("S2")
def test_an_older_git_runs_none_either(hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows neither scopes nor settings in the environment, and as a script it is not confined to itself."""
    older = tmp_path / "git"
    older.write_text(OLDER.format(git=shutil.which("git")))
    older.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for command in ("status --short", "diff", "blame b.bin"):
        assert run_git(hostile, *command.split()).returncode == 0
    assert programs(hostile) == set()


def test_differences_are_shown_as_they_are_stored(hostile: Path) -> None:
    shown = run_git(hostile, "diff").stdout
    for name in ("a.txt", "b.bin", "c.dat", "d.ext"):
        assert f"--- a/{name}" in shown
    assert shown.count("+second") == 4


# Four guards hold a bare repository, each alone: what takes one away.
BARE_GUARDS = {
    "the program refuses it": "git_program.top_of = lambda directory: ''",
    "git refuses it": "git_program.GIT_SETTINGS = git_program.GIT_SETTINGS | {'safe.bareRepository': 'all'}",
    "its programs are switched off": "git_program.GIT_SETTINGS = "
    "{key: one for key, one in git_program.GIT_SETTINGS.items() if key == 'safe.bareRepository'}",
    "git can execute nothing": "git_program.restrict_programs = lambda programs: False",
}


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    (tmp_path / "ran").mkdir()
    (tmp_path / "clone").mkdir()
    git(tmp_path / "clone", "init", "-q")
    return bare_repository(tmp_path / "clone" / "docs", tmp_path / "ran")


def ran_in_bare(bare: Path, kept: str) -> list[str]:
    """Run git in a bare repository with one guard, and return the programs that ran."""
    change = "\n".join(line for guard, line in BARE_GUARDS.items() if guard != kept)
    driver = [sys.executable, "-I", "-S", "-c", DRIVER.format(change=change), str(PROGRAM.parent)]
    subprocess.run([*driver, "status"], cwd=bare, capture_output=True)
    return os.listdir(bare.parents[1] / "ran")


@pytest.mark.requirement("S2")
@pytest.mark.parametrize("guard", BARE_GUARDS)
def test_each_guard_alone_keeps_the_programs_of_a_bare_repository_from_running(bare: Path, guard: str) -> None:
    if guard == "git can execute nothing" and not available().landlock_version:
        pytest.skip("this kernel has no Landlock")
    assert ran_in_bare(bare, guard) == []
    assert ran_in_bare(bare, "none of them") != []


@pytest.mark.requirement("S2")
def test_a_bare_repository_inside_a_clone_is_not_used(bare: Path) -> None:
    with pytest.raises(InputError, match="bare repository"):
        run_git(bare, "status")
    with pytest.raises(InputError, match="bare repository"):
        run_git(bare.parent, "-C", "docs", "ls-files")
    assert run_git(bare.parent, "status", "--short").stdout == "?? docs/\n"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "note.txt").write_text(f"{CANARY}\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", CANARY)
    return folder


@pytest.mark.parametrize("way", [".git file", ".git link", "commondir", "core.worktree", "worktree of another"])
def test_a_repository_that_is_elsewhere_is_not_used(tmp_path: Path, private: Path, way: str) -> None:
    here = tmp_path / "here"
    here.mkdir()
    match way:
        case ".git file":
            (here / ".git").write_text(f"gitdir: {private}/.git\n")
        case ".git link":
            (here / ".git").symlink_to(private / ".git")
        case "commondir":
            git(here, "init", "-q")
            (here / ".git" / "commondir").write_text(f"{private}/.git\n")
        case "core.worktree":
            git(here, "init", "-q")
            git(here, "config", "core.worktree", str(private))
        case _:
            git(private, "worktree", "add", "-q", str(tmp_path / "tree"))
            (here / ".git").write_text((tmp_path / "tree" / ".git").read_text())
    with pytest.raises(InputError, match="git was not run"):
        run_git(here, "log", "-p")


def test_worktrees_and_submodules_work_as_ever(tmp_path: Path, private: Path) -> None:
    git(private, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert run_git(tmp_path / "tree", "log", "--format=%s").stdout == f"{CANARY}\n"
    whole = tmp_path / "whole"
    whole.mkdir()
    git(whole, "init", "-q")
    git(whole, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(private), "part")
    assert run_git(whole / "part", "log", "--format=%s").stdout == f"{CANARY}\n"
    (whole / "part" / "note.txt").write_text("changed\n")
    assert "Am part\n" in run_git(whole, "status", "--short").stdout, "git may start git"
    git(whole / "part", "config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    git(whole / "part", "config", "filter.f.clean", f"touch {tmp_path}/ran; cat")
    (whole / ".git" / "modules" / "part" / "info" / "attributes").write_text("* filter=f\n")
    (whole / "part" / "note.txt").write_text(f"{CANARY[::-1]}\n")
    run_git(whole, "status", "--short")
    assert not (tmp_path / "ran").exists()
    for words in (["status"], ["diff", "--ignore-submodules=none", "--", "part"]):
        driver = DRIVER.format(change=HALVES["settings"])
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", driver, str(PROGRAM.parent), *words], cwd=whole, capture_output=True
        )
        assert done.returncode == 0, done.stderr
        assert not (tmp_path / "ran").exists(), words
    subprocess.run(["git", "status"], cwd=whole, capture_output=True)
    assert (tmp_path / "ran").exists(), "the installed git runs them"


@pytest.mark.parametrize("option", ["-c", "--git-dir=x", "--exec-path=x", "--config-env=a=B", "--work-tree=x", "-p"])
def test_options_that_name_programs_or_repositories_are_refused(private: Path, option: str) -> None:
    with pytest.raises(InputError, match="not on the list"):
        run_git(private, option, "core.fsmonitor=x", "status")


def test_files_outside_that_a_repository_names_are_not_shown(private: Path, tmp_path: Path) -> None:
    (tmp_path / "pypirc").write_text("[pypi]\n\tpassword = secret-of-the-home\n")
    (tmp_path / "list").write_text("secret-of-the-home\n")
    git(private, "config", "include.path", str(tmp_path / "pypirc"))
    git(private, "config", "blame.ignoreRevsFile", str(tmp_path / "list"))
    for command in ("config --list", "blame note.txt"):
        done = subprocess.run(
            [sys.executable, str(PROGRAM), *command.split()], cwd=private, capture_output=True, text=True
        )
        plain = subprocess.run(["git", *command.split()], cwd=private, capture_output=True, text=True)
        assert "secret-of-the-home" in plain.stdout + plain.stderr
        assert "secret-of-the-home" not in done.stdout + done.stderr
