"""The directories that the user trusts; settings, hooks and skills of a repository are used only there.

Trust is stored in ``trust.toml`` in the Reverie directory, never in a repository. It is tied to the directory's inode:
another directory at the same path is not trusted. A repository inside a trusted one needs trust of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tomllib
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from ...errors import InputError, StorageError
from ...keys import OWN_PREFIX
from ...paths import explained, open_file, read_all, replace_file
from ...values import record
from .projects import canonical_root

__all__ = ["TrustLevel", "TrustList", "TrustedDirectory", "root_of"]

TrustLevel: TypeAlias = Literal["trusted", "untrusted"]

FILE: Final = "trust.toml"
_LOCK: Final = f"{OWN_PREFIX}trust-lock"
_MAX_MARKER_BYTES: Final = 4_096


@record
class TrustedDirectory:
    """A directory that the user trusts, with its device and inode when it was trusted (``since``)."""

    path: str
    device: int
    inode: int
    since: str

    def is_same_directory(self) -> bool:
        """Return whether the path is still the directory that was trusted, by device and inode."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and (found.st_dev, found.st_ino) == (self.device, self.inode)


class TrustList:
    """The directories that one user trusts, stored in ``trust.toml`` of the Reverie directory ``home``."""

    def __init__(self, home: Path) -> None:
        self._home = home

    @classmethod
    def open(cls, home: Path) -> TrustList:
        """Return the trust list of a Reverie directory; its file is read anew by every method."""
        return cls(home)

    def of(self, directory: Path) -> TrustLevel:
        """Return ``trusted`` or ``untrusted``, as ``is_trusted`` decides."""
        return "trusted" if self.is_trusted(directory) else "untrusted"

    def is_trusted(self, directory: Path) -> bool:
        """Return whether the user trusts a directory's repository; outside git, the directory or one above it.

        The user's home and the directories above it do not make those beneath them trusted.
        """
        root = root_of(directory)
        entries = {entry.path: entry for entry in self.list()}
        if str(root) in entries:
            return entries[str(root)].is_same_directory()
        if (root / ".git").exists():
            return False
        # A plain directory is covered by a trusted one above it; a home or a whole disk would cover too much.
        above = [entries[str(each)] for each in root.parents if str(each) in entries and _covers(each)]
        return any(entry.is_same_directory() for entry in above)

    def trust(self, directory: Path) -> TrustedDirectory:
        """Add a directory's repository, or the directory itself outside git, to the file; return the new entry."""
        root = root_of(directory)
        try:
            str(root).encode()
            found = os.stat(root)
        except UnicodeEncodeError as error:
            raise InputError(f"{os.fsencode(root)!r} cannot be trusted: its name is not UTF-8; rename it") from error
        except OSError as error:
            raise InputError(f"{root} cannot be trusted: {error.strerror}") from error
        if not stat.S_ISDIR(found.st_mode):
            raise InputError(f"{root} cannot be trusted: it is not a directory; name one")
        entry = TrustedDirectory(str(root), found.st_dev, found.st_ino, datetime.now(UTC).isoformat(timespec="seconds"))
        with self._lock():
            self._write([*(each for each in self.list() if each.path != entry.path), entry])
        return entry

    def forget(self, directory: Path) -> bool:
        """Remove a directory, or its repository, from the file; return whether it was listed."""
        names = {str(root_of(directory)), os.path.abspath(directory)}
        with self._lock():
            before = self.list()
            left = [each for each in before if each.path not in names]
            if len(left) != len(before):
                self._write(left)
        return len(left) != len(before)

    def list(self) -> list[TrustedDirectory]:
        """Return all trusted directories, oldest first; raise if other users could have written the file."""
        path = str(self._home / FILE)
        try:
            with explained("read", path):
                descriptor = open_file(str(self._home), FILE, os.O_RDONLY)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return []
            raise
        found = os.fstat(descriptor)
        content = read_all(descriptor)
        if found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o022:
            raise StorageError(f"{path} could have been written by others; look at it, then chmod 600 it", path=path)
        return list(_entries_of(content, path))

    def _write(self, entries: Iterable[TrustedDirectory]) -> None:
        tables = [
            f"[[trusted]]\npath = {_quoted(each.path)}\ndevice = {each.device}\ninode = {each.inode}\n"
            f"since = {_quoted(each.since)}\n"
            for each in entries
        ]
        head = "# Directories whose settings, hooks, servers and skills are believed. Written by 'reverie trust'.\n"
        replace_file(str(self._home), FILE, "\n".join([head, *tables]).encode())

    @contextmanager
    def _lock(self) -> Generator[None]:
        """Lock the trust list against other processes for the ``with`` block."""
        path = str(self._home / _LOCK)
        with explained("lock", path):
            lock = open_file(str(self._home), _LOCK, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)


def root_of(directory: Path) -> Path:
    """Return the real path of a directory's repository, or of the directory itself outside git.

    A worktree belongs to its main repository only if that repository lists it: a ``.git`` file is easily forged.
    """
    real = directory.resolve()
    root = canonical_root(real)
    if root == real or root in real.parents:
        return root
    own = next(each for each in (real, *real.parents) if (each / ".git").is_file())
    return root if _is_known_worktree(own / ".git") else own


def _is_known_worktree(marker: Path) -> bool:
    try:
        target = (
            marker.parent
            / marker.read_text(errors="replace")[:_MAX_MARKER_BYTES].strip().removeprefix("gitdir:").strip()
        )
        back = (target / "gitdir").read_text(errors="replace")[:_MAX_MARKER_BYTES].strip()
        return (target / back).resolve() == marker.resolve()
    except OSError:
        return False


def _covers(directory: Path) -> bool:
    return directory not in (Path.home(), *Path.home().parents)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _entries_of(content: bytes, path: str) -> Iterable[TrustedDirectory]:
    try:
        tables = cast("list[dict[str, Any]]", tomllib.loads(content.decode()).get("trusted", []))
        for table in tables:
            yield TrustedDirectory(
                str(table["path"]), int(table["device"]), int(table["inode"]), str(table.get("since", ""))
            )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StorageError(
            f"{path} is damaged ({error}); repair it, or remove it to trust nothing", path=path
        ) from error
