"""The only way to call git: no program that a repository names runs, and only ``run_remote_git`` reaches a network.

``shell/git_program.py`` does the work. A repository's configuration can name programs for a command as harmless as
``git status``: file system monitors, hooks, filters, conversions for diffs, pagers, signature checkers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Final

from ..errors import InputError

PROGRAM: Final = Path(__file__).with_name("shell") / "git_program.py"
_PROTOCOLS: Final = "file:git:http:https:ssh"
_GLOBAL: Final = "GIT_CONFIG_GLOBAL"
_USERS_OWN: Final = frozenset(
    {"GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_PROXY_COMMAND", "GIT_SSL_CAINFO", _GLOBAL, "GIT_CONFIG_SYSTEM"}
)


def run_git(
    directory: Path, *arguments: str, identity: str = "", timeout_seconds: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run a git command and return its exit code and output; raise ``InputError`` if it fails to run safely.

    An ``identity`` ("name <address>") is the author and committer of a commit; else git takes it from its settings.
    """
    name, _, address = identity.rpartition(" <")
    who = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", name), ("EMAIL", address.rstrip(">")))
        if name
    }
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(PROGRAM), *arguments],
            cwd=directory,
            env={**os.environ, **who, "LC_ALL": "C"},
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
    return _identity(*(os.environ.get(name, "") for name in (_GLOBAL, "HOME", "XDG_CONFIG_HOME")))


@lru_cache(maxsize=2)
def _identity(file: str, home: str, settings: str) -> str:
    place = ("--includes", "--file", file) if file else ("--includes", "--global")
    try:
        done = run_git(Path("/"), "config", *place, "--get-regexp", r"^user\.(name|email)$")
    except InputError:
        return ""
    said = {
        key: " ".join(value.split()) for line in done.stdout.splitlines() for key, _, value in [line.partition(" ")]
    }
    name, address = said.get("user.name", ""), said.get("user.email", "")
    return " ".join(filter(None, (name, f"<{address}>" if address else "")))


def run_remote_git(
    objects: Path, scratch: Path, *arguments: str, timeout_seconds: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Run ``ls-remote``, ``fetch`` or ``push`` with the user's own git settings and none of a repository's.

    Git runs in ``scratch``, an empty repository of ours that is made if needed; it shares only the folder ``objects``
    of the user's repository. So the user's credentials, proxies and keys work, and no setting, hook or address of the
    repository is read. Raise ``InputError`` if git is missing or takes too long.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _USERS_OWN}
    ours = {"GIT_DIR": str(scratch), "GIT_ALLOW_PROTOCOL": _PROTOCOLS, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    quiet = ("-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false")

    def called(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *quiet, *words],
            cwd=scratch,
            env={**kept, **ours, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout_seconds,
            check=False,
        )

    try:
        scratch.mkdir(parents=True, exist_ok=True)
        if not (scratch / "HEAD").exists():
            called("init", "--quiet", "--bare", "--template=", str(scratch))
        return called(*arguments, GIT_OBJECT_DIRECTORY=str(objects))
    except OSError as error:
        raise InputError(f"git cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"git took longer than {timeout_seconds:g} s; try again when the network is faster") from None
