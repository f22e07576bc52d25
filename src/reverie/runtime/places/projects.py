"""Find the project of a directory, and the storage keys of its sessions."""

from __future__ import annotations

import os

from ...arguments import check_text, check_type
from ...digests import hex_of
from ...errors import InputError
from ...lazy import pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Final

_UNSAFE: Final = pattern(r"[^a-zA-Z0-9._-]+")
_SESSION: Final = pattern(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}\Z")


def canonical_root(directory: Path) -> Path:
    """Return the git root of a directory (for a worktree the main repository), or its real path outside git."""
    return type(directory)(root_of(str(directory)))


def directory_of(cwd: Path | str) -> Path:
    """Return a caller's ``cwd`` as a path; raise ``InputError`` if it is none."""
    from pathlib import Path  # slow to load, and hooks need only text

    check_type("cwd", cwd, (str, os.PathLike), "the path of a directory")
    return Path(cwd)


def existing_directory(cwd: Path | str) -> Path:
    """Return a caller's ``cwd`` as an absolute path; raise ``InputError`` if it is no directory that exists."""
    path = directory_of(cwd).resolve()
    if not os.path.isdir(path):
        raise InputError(f"cwd {str(path)!r} is not a directory: pass one that exists")
    return path


def root_of(directory: str) -> str:
    """Return the real path of the project's root, as ``canonical_root`` does, for paths given as text."""
    candidate = directory = os.path.realpath(directory)
    while True:
        marker = os.path.join(candidate, ".git")
        if os.path.isdir(marker):
            return candidate
        if os.path.isfile(marker):
            return _main_worktree(marker) or candidate
        above = os.path.dirname(candidate)
        if above == candidate:
            return directory
        candidate = above


def _main_worktree(marker: str) -> str | None:
    """Return the main repository of a worktree by its ``.git`` file; None unless the repository lists it too.

    Anyone can put a ``.git`` file into a folder that others download; only git writes the entry in the repository.
    """
    text = _beginning(marker)
    if text is None or not text.startswith("gitdir:"):
        return None
    target = os.path.realpath(os.path.join(os.path.dirname(marker), text.removeprefix("gitdir:").strip()))
    worktrees, repository = os.path.dirname(target), os.path.dirname(os.path.dirname(target))
    if os.path.basename(worktrees) != "worktrees" or os.path.basename(repository) != ".git":
        return None
    known = _beginning(os.path.join(target, "gitdir"))
    if known is None or os.path.realpath(os.path.join(target, known)) != os.path.realpath(marker):
        return None
    return os.path.dirname(repository)


def _beginning(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            text = stream.read(4_096).strip()
    except (OSError, ValueError):
        return None
    return None if "\0" in text else text


def project_slug(directory: Path | str) -> str:
    """Return a name for a directory's project: the folder name of its root and a hash of the root's path."""
    root = root_of(str(directory))
    readable = _UNSAFE.sub("-", os.path.basename(root)).strip("-.") or "root"
    return f"{readable[:48]}-{hex_of(root.encode('utf-8', 'surrogateescape'))[:8]}"


def session_key(slug: str, session: str) -> str:
    """Return the storage key of a session's folder; raise ``InputError`` for an invalid session name."""
    check_text("the session's name", session)
    if not _SESSION.match(session) or session.endswith(".jsonl"):
        raise InputError(
            f"{session[:64]!r} cannot name a session: use letters, digits, '.', '_' and '-', at most 128, "
            "starting with a letter or digit"
        )
    return f"projects/{slug}/{session}"


def log_key(slug: str, session: str) -> str:
    """Return the storage key of a session's log; raise ``InputError`` for an invalid session name."""
    return f"{session_key(slug, session)}.jsonl"


def session_of(key: str) -> str:
    """Return the name of the session whose log has this storage key."""
    return key.rpartition("/")[2].removesuffix(".jsonl")


def inbox_key(slug: str, session: str) -> str:
    """Return the storage key of the folder where other processes put commands for a session."""
    return f"{session_key(slug, session)}/inbox"
