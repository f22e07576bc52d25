"""Which project a directory belongs to, and the keys its sessions have in the store."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from ..errors import InputError

__all__ = ["canonical_root", "inbox_key", "log_key", "project_slug", "session_key"]

_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9._-]+")
_SESSION: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}\Z")


def canonical_root(directory: Path) -> Path:
    """Return the git root a directory belongs to, the main one for a worktree; else the directory itself."""
    directory = directory.resolve()
    for candidate in (directory, *directory.parents):
        marker = candidate / ".git"
        try:
            if marker.is_dir():
                return candidate
            if marker.is_file():
                return _main_worktree(marker) or candidate
        except OSError:
            continue
    return directory


def _main_worktree(marker: Path) -> Path | None:
    """Follow a worktree's ``.git`` file to the repository it was made from, if that repository knows of it too.

    Anybody can write a ``.git`` file into a folder that others download; only git writes the other half.
    """
    try:
        text = marker.read_text(errors="replace")[:4096].strip()
    except OSError:
        return None
    if not text.startswith("gitdir:"):
        return None
    target = (marker.parent / text.removeprefix("gitdir:").strip()).resolve()
    if target.parent.name != "worktrees" or target.parent.parent.name != ".git":
        return None
    try:
        known = Path((target / "gitdir").read_text(errors="replace")[:4096].strip())
    except (OSError, ValueError):
        return None
    if (target / known).resolve() != marker.resolve():
        return None
    return target.parent.parent.parent


def project_slug(directory: Path) -> str:
    """Return the readable, collision-free name of a directory's project."""
    root = canonical_root(directory)
    readable = _UNSAFE.sub("-", root.name).strip("-.") or "root"
    return f"{readable[:48]}-{hashlib.sha256(str(root).encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def session_key(slug: str, session: str) -> str:
    """Return the folder that holds what belongs to a session."""
    if not _SESSION.match(session) or session.endswith(".jsonl"):
        raise InputError(
            f"{session!r} cannot name a session: use letters, digits, '.', '_' and '-', at most 128, starting with a "
            "letter or digit"
        )
    return f"projects/{slug}/{session}"


def log_key(slug: str, session: str) -> str:
    """Return the key of a session's log."""
    return f"{session_key(slug, session)}.jsonl"


def inbox_key(slug: str, session: str) -> str:
    """Return the folder in which other processes leave commands for a session."""
    return f"{session_key(slug, session)}/inbox"
