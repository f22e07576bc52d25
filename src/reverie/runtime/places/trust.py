"""The directories that the user trusts; settings, hooks and skills of a repository are used only there.

Trust is stored in ``trust.toml`` in the Reverie directory, never in a repository. It is tied to the directory's inode
and birth time: another directory at the same path is not trusted, even if it got the same inode number. A repository
inside a trusted one needs trust of its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from .directory_file import DirectoryEntry, DirectoryFile, entry_for
from .projects import canonical_root

_COMMENT: Final = "Directories whose settings, hooks, servers and skills are believed. Written by 'reverie trust'."
_EMPTY: Final = "servers"


class TrustList:
    """The directories that one user trusts, stored in ``trust.toml`` of the Reverie directory ``home``."""

    def __init__(self, home: Path) -> None:
        self._file = DirectoryFile(home, "trust", "trusted", _COMMENT)

    @classmethod
    def open(cls, home: Path) -> TrustList:
        """Return the trust list of a Reverie directory; its file is read anew by every method."""
        return cls(home)

    def is_trusted(self, directory: Path) -> bool:
        """Return whether the user trusts a directory's repository; outside git, the directory or one above it.

        The user's home and the directories above it do not make those beneath them trusted.
        """
        root = canonical_root(directory)
        entries = {entry.path: entry for entry in self.list()}
        if str(root) in entries:
            return entries[str(root)].is_same_directory()
        if (root / ".git").exists():
            return False
        # A plain directory is covered by a trusted one above it; a home or a whole disk would cover too much.
        above = [entries[str(each)] for each in root.parents if str(each) in entries and _covers(each)]
        return any(entry.is_same_directory() for entry in above)

    def settings_of(self, root: Path) -> str:
        """Return the digest of the rules and hooks that the user trusts in a repository; empty if none."""
        return next((e.settings for e in self.list() if e.path == str(root) and e.is_same_directory()), "")

    def trust(self, directory: Path, *, settings: str = "") -> DirectoryEntry:
        """Add a directory's repository, or the directory itself outside git, to the file; return the new entry.

        ``settings`` is the digest of the rules and hooks that it shares.
        """
        entry = entry_for(canonical_root(directory), "trusted", settings=settings)
        self._file.change(lambda entries: [*(each for each in entries if each.path != entry.path), entry])
        return entry

    def forget(self, directory: Path) -> bool:
        """Remove a directory, or its repository, from the file; return whether it was listed."""
        names = {str(canonical_root(directory)), os.path.abspath(directory)}
        return self._file.change(lambda entries: [each for each in entries if each.path not in names])

    def list(self) -> list[DirectoryEntry]:
        """Return all trusted directories, oldest first; raise if other users could have written the file."""
        return self._file.entries()


def empty_directory(home: Path) -> Path:
    """Return a directory for programs of the user that must not run in one that is not trusted; make it if needed.

    Programs such as npx and ``python -m`` take files of the directory in which they run.
    """
    folder = home / _EMPTY
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _covers(directory: Path) -> bool:
    return directory not in (Path.home(), *Path.home().parents)
