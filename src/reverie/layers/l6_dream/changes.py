"""The proposal of a dream, as data: a list of changes to files, and questions for a person."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Literal, TypeAlias

from ...values import field, record

__all__ = ["Act", "DreamProposal", "FileChange", "Question", "Topic"]

Act: TypeAlias = Literal["added", "changed", "merged", "removed"]
Topic: TypeAlias = Literal["contradiction", "ended", "expired", "similar", "unreadable", "vague"]


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
class Question:
    """A fault or similarity in memory files that a dream leaves to a person to decide."""

    topic: Topic
    files: tuple[str, ...]
    text: str


@record
class DreamProposal:
    """All file changes and questions that one dream proposes; the index is derived and never proposed."""

    changes: tuple[FileChange, ...] = ()
    questions: tuple[Question, ...] = ()
    by: str = "local"
    """The author of the proposal: ``local`` (the local dreamer) or ``model``."""
    written_on: Mapping[str, date] = field(default_factory=lambda: dict[str, date]())
    """The date of each file, from which its relative dates were made absolute."""
