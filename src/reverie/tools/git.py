"""The only way to call git: no program that a repository names runs, and git reaches no network.

``shell/git_program.py`` does the work. A repository's configuration can name programs for a command as harmless as
``git status``: file system monitors, hooks, filters, conversions for diffs, pagers, signature checkers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from ..errors import InputError

__all__ = ["git_identity", "run_git"]

PROGRAM: Final = Path(__file__).with_name("shell") / "git_program.py"


def run_git(directory: Path, *arguments: str, timeout_seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a git command in a directory and return its exit code and output; this may block.

    Raise ``InputError`` if git is missing, takes too long, or would not be run safely in this repository.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(PROGRAM), *arguments],
            cwd=directory,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout_seconds,
            check=False,
        )
    except OSError as error:
        raise InputError(f"git cannot be run in {directory}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"git took longer than {timeout_seconds:g} s in {directory}") from None
    if done.returncode and done.stderr.startswith(("git was not run", "git cannot be run")):
        raise InputError(done.stderr.strip())
    return done


def git_identity() -> str:
    """Return name and address of the user by their own git settings, never a repository's; empty without them."""
    found: list[str] = []
    for key, form in (("user.name", "{}"), ("user.email", "<{}>")):
        try:
            done = run_git(Path("/"), "config", "--global", "--get", key)
        except InputError:
            return ""
        found += [form.format(value)] if (value := " ".join(done.stdout.split())) else []
    return " ".join(found)
