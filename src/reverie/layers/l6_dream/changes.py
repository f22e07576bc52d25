"""A dream as data: facts from outside the files, proposed changes to files, and questions for a person."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Literal, TypeAlias

from ...values import field, record

Act: TypeAlias = Literal["added", "changed", "merged", "removed"]


@record
class FileChange:
    """A proposed change of one memory file; a ``merged`` file is removed, and file ``into`` holds its facts."""

    file: str
    before: bytes | None
    after: bytes | None
    act: Act
    why: str
    into: str = ""


@record
class SkippedChange:
    """A proposed change that was not made, with the reason for that."""

    file: str
    act: Act
    why: str
    by: str = "local"


@record
class Question:
    """A fault or similarity in memory files that a dream leaves to a person to decide."""

    topic: str
    """One of contradiction, ended, expired, similar, unreadable, vague."""
    files: tuple[str, ...]
    text: str
    versions: tuple[str, ...] = ()
    """In a report: the hash of each file when the question was asked; a change of a file settles the question."""


@record
class DreamProposal:
    """All file changes and questions that one dream proposes; the index is derived and never proposed."""

    changes: tuple[FileChange, ...] = ()
    questions: tuple[Question, ...] = ()
    by: str = "local"
    """The author of the proposal: ``local`` (the local dreamer) or ``model``."""
    written_on: Mapping[str, date] = field(default_factory=lambda: dict[str, date]())
    """The date of each file, from which its relative dates were made absolute."""


@record
class DreamFacts:
    """Facts from outside the memory files, collected before a dream; each is optional."""

    modified: Mapping[str, float] = field(default_factory=lambda: dict[str, float]())
    """Modification times in seconds, for files whose front matter has none."""
    known_paths: frozenset[str] = frozenset()
    """Existing files beneath the directory that are not memories of this scope: logs, team memories, the index."""
    missing_paths: frozenset[str] = frozenset()
    """Project files that memories link to and that do not exist."""
    drafts: Mapping[str, bytes] = field(default_factory=lambda: dict[str, bytes]())
    """New memories drafted from daily logs, by their file."""
    restored: frozenset[str] = frozenset()
    """Files that a person restored by undoing a dream; they stay as they are."""
    gone_sessions: frozenset[str] = frozenset()
    """Sessions that memories name as their source and that no longer exist."""
    alike: frozenset[tuple[str, str]] = frozenset()
    """Pairs of files whose memories are each other's nearest by meaning, each pair in order."""
    unsupported: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    """Memories that their source does not support, with the reason."""
