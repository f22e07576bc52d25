"""What the memory store answers."""

from __future__ import annotations

from pathlib import Path

from ...memories.store.records import Scope
from ...memories.store.trust import Trust
from ...values import field, record

__all__ = ["Forgotten", "Lint", "Pending", "Saved"]


@record
class Saved:
    """What saving or updating a memory did."""

    file: str
    name: str
    path: Path
    id: str = ""
    """The change in the journal, which ``undo`` takes; empty where nothing changed."""
    scope: Scope = "private"
    trust: Trust = "agent"
    warnings: list[str] = field(default_factory=lambda: [])
    dry_run: bool = False
    conflict: str = ""
    """The file of the other version, where someone else changed a shared memory first and both were kept."""

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return bool(self.id)


@record
class Forgotten:
    """What forgetting took away, and what it could not reach."""

    files: list[str]
    id: str = ""
    surfaced: list[str] = field(default_factory=lambda: [])
    """Sessions in whose logs a copy stands, because it was shown there."""
    links: list[str] = field(default_factory=lambda: [])
    """Memories that still point to what is gone."""
    restored: list[str] = field(default_factory=lambda: [])
    """Files that went back to what they were before."""


@record
class Pending:
    """An unconfirmed memory that waits for the user: what it would change, as a diff."""

    file: str
    name: str
    source: tuple[str, ...]
    diff: str


@record
class Lint:
    """Something wrong with a memory or with the index."""

    file: str
    problem: str
