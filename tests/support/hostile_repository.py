"""A repository whose configuration names programs, and a clone with a bare repository inside."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["CANARY", "bare_repository", "git", "hostile_repository"]

CANARY = "canary-of-the-home"
"""The content of a file in the home that the programs print."""


def git(folder: Path, *arguments: str) -> str:
    """Run the installed git as somebody."""
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def hostile_repository(folder: Path, ran: Path, secret: Path) -> Path:
    """Make a repository with a changed file; each program that it names leaves a file in ``ran``.

    The programs also print ``secret``, where git would show their output.
    """
    folder.mkdir(parents=True)
    ran.mkdir(exist_ok=True)
    for name in ("a.txt", "b.bin", "c.dat", "d.ext"):
        (folder / name).write_text("first\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / ".gitattributes").write_text("*.txt filter=f\n*.bin diff=conv\n*.dat filter=p\n*.ext diff=ext\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "attributes")
    for name in ("a.txt", "b.bin", "c.dat", "d.ext"):
        (folder / name).write_text("second\n")
    hooks = folder / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {ran}/hook\n")
        (hooks / name).chmod(0o755)
    shown = f"cat {secret}; cat"
    for key, after in {
        "core.fsmonitor": "false", "core.alternateRefsCommand": "true", "core.pager": "cat", "core.sshCommand": "false",
        "filter.f.clean": shown, "filter.f.smudge": shown, "filter.p.process": "cat", "diff.conv.textconv": shown,
        "diff.ext.command": shown, "diff.external": shown, "gpg.program": "false", "credential.helper": "true",
        "pager.log": "cat", "interactive.diffFilter": "cat", "hook.mine.command": "true",
    }.items():  # fmt: skip
        git(folder, "config", key, f"touch {ran}/{key}; {after} #")
    for key, value in {
        "core.hooksPath": str(hooks),
        "filter.f.required": "true",
        "hook.mine.event": "post-checkout",
    }.items():
        git(folder, "config", key, value)
    return folder


def bare_repository(folder: Path, ran: Path) -> Path:
    """Put the files of a bare repository into a folder, as a clone can contain them."""
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
        (folder / name / ".keep").touch()
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    program = f"touch {ran}/bare; false"
    settings = f'repositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = "{program}"\n'
    (folder / "config").write_text(f"[core]\n\t{settings}")
    return folder
