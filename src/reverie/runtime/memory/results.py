"""The results of the methods of ``Memory``."""

from __future__ import annotations

from pathlib import Path

from ...memories.store.records import Scope
from ...memories.store.trust import Trust
from ...values import field, record


@record
class SavedMemory:
    """The result of saving or updating a memory."""

    file: str
    name: str
    path: Path
    id: str = ""
    """The id of the change in the journal, for ``undo``; empty if nothing changed."""
    scope: Scope = "private"
    trust: Trust = "agent"
    warnings: list[str] = field(default_factory=lambda: [])
    dry_run: bool = False
    conflict: str = ""
    """The file with the other version, if another writer changed a team memory first and both were kept."""

    @property
    def changed(self) -> bool:
        """Whether a file was written; False in a dry run."""
        return bool(self.id)


@record
class ForgottenMemories:
    """The memories that were removed, or would be in a dry run, and the copies and links that remain."""

    files: list[str]
    id: str = ""
    surfaced: list[str] = field(default_factory=lambda: [])
    """Sessions whose logs contain a copy, because they were shown the memory."""
    links: list[str] = field(default_factory=lambda: [])
    """Memories that still link to a removed one."""
    restored: list[str] = field(default_factory=lambda: [])
    """Files that were restored to an earlier version."""


@record
class PendingMemory:
    """An unconfirmed memory that waits for the user's approval, with its change as a diff."""

    file: str
    name: str
    source: tuple[str, ...]
    diff: str
    version: str = ""
    """The version that the diff shows, for ``Memory.confirm``."""


@record
class LintProblem:
    """A problem with a memory or with the index."""

    file: str
    problem: str
