"""Git worktrees: a separate checkout for one agent, so that its changes do not touch other files.

A worktree is under the user's Reverie directory. It is removed if nothing was changed; otherwise its changes stay on a
branch of their own. A lock on a file next to it shows whether its process lives; unchanged worktrees of dead processes
are removed at the next start.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....errors import InputError
from ....tools.git import run_git
from ...places.projects import canonical_root

FOLDER: Final = "worktrees"
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}")


class Worktree:
    """One git worktree of an agent, from its creation to its removal; it holds a lock while it is in use."""

    def __init__(self, repository: Path, path: Path, branch: str, base: str, lock: int, *, cwd: Path) -> None:
        self.repository = repository
        self.path = path
        self.branch = branch
        self.base = base
        self.cwd = cwd
        """The directory in the worktree that corresponds to the parent's working directory."""
        self._lock = lock

    @classmethod
    def add(cls, directory: Path, *, home: Path, name: str) -> Worktree:
        """Check out the last commit of a directory's repository on a new branch, under ``home``; this may block.

        Raise ``InputError`` if the directory has no repository or commit, or git fails.
        """
        if not _NAME.fullmatch(name):
            raise InputError(f"{name[:80]!r} cannot name a worktree: use letters, digits, '.', '_' and '-'")
        root = _git_out(directory, "rev-parse", "--show-toplevel")
        base = _git_out(directory, "rev-parse", "--verify", "HEAD^{commit}") if root is not None else None
        if root is None or base is None:
            problem = "is in no git repository" if root is None else "has no commit yet"
            raise InputError(f"{directory} {problem}: a worktree cannot be made; start the agent without one")
        folder = home / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path, branch = folder / name, f"reverie/{name}"
        lock = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            os.write(lock, f"{root}\n{branch}\n{base}\n".encode("utf-8", "surrogateescape"))
            made = run_git(directory, "worktree", "add", "--quiet", "-b", branch, str(path), base)
            if made.returncode != 0:
                raise InputError(f"git cannot make a worktree: {made.stderr.strip()[:300]}")
        except BaseException:
            os.close(lock)
            (folder / f"{name}.lock").unlink(missing_ok=True)
            raise
        inside = os.path.relpath(directory.resolve(), Path(root).resolve())
        cwd = path / inside if not inside.startswith("..") else path
        cwd = cwd if cwd.is_dir() else path
        return cls(canonical_root(directory), path, branch, base, lock, cwd=cwd)

    def finish(self) -> tuple[str, str]:
        """Remove the worktree if nothing was changed and return two empty texts; otherwise its path and branch."""
        try:
            if _is_clean(self.path, self.base):
                _remove(self.repository, self.path, self.branch)
                self.path.with_name(f"{self.path.name}.lock").unlink(missing_ok=True)
                return "", ""
            return str(self.path), self.branch
        finally:
            os.close(self._lock)


def prune(home: Path) -> list[str]:
    """Remove worktrees of dead processes, unless they hold changes, and return their names; this may block."""
    gone: list[str] = []
    try:
        names = [name for name in os.listdir(home / FOLDER) if name.endswith(".lock")]
    except OSError:
        return gone
    for name in names:
        path = home / FOLDER / name.removesuffix(".lock")
        try:
            lock = os.open(home / FOLDER / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            root, branch, base = os.read(lock, 65_536).decode("utf-8", "surrogateescape").split("\n")[:3]
            if not path.exists() or _is_clean(path, base):
                _remove(Path(root), path, branch)
                os.unlink(home / FOLDER / name)
                gone.append(path.name)
        except (OSError, ValueError):
            continue  # a process uses it, or the lock file is incomplete: keep it
        finally:
            os.close(lock)
    return gone


def _is_clean(path: Path, base: str) -> bool:
    try:
        status = run_git(path, "status", "--porcelain", "--untracked-files=all", "--ignored=no")
        return status.returncode == 0 and not status.stdout.strip() and _git_out(path, "rev-parse", "HEAD") == base
    except InputError:
        return False


def _remove(repository: Path, path: Path, branch: str) -> None:
    with suppress(InputError):  # the repository may be gone
        if run_git(repository, "worktree", "remove", "--force", str(path)).returncode != 0:
            shutil.rmtree(path, ignore_errors=True)
            run_git(repository, "worktree", "prune")
        run_git(repository, "branch", "--quiet", "-D", branch)
    shutil.rmtree(path, ignore_errors=True)


def _git_out(directory: Path, *arguments: str) -> str | None:
    done = run_git(directory, *arguments)
    return done.stdout.strip() if done.returncode == 0 else None
