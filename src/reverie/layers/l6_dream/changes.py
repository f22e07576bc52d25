"""The proposal of a dream, as data: a list of changes to files, and questions for a person."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Literal, TypeAlias

from ...values import field, record

__all__ = ["Act", "DreamProposal", "FileChange", "Question", "Topic"]

Act: TypeAlias = Literal["added", "changed", "merged", "removed"]
Topic: TypeAlias = Literal["contradiction", "expired", "similar", "unreadable", "vague"]


@record
class FileChange:
    """One memory file, before and after; ``merged`` is gone and its facts stand in ``into`` now."""

    file: str
    before: bytes | None
    after: bytes | None
    act: Act
    why: str
    into: str = ""


@record
class Question:
    """Something a dream found and does not decide: it is put to review."""

    topic: Topic
    files: tuple[str, ...]
    text: str


@record
class DreamProposal:
    """All that one dream proposes; the index follows from the files and is never proposed."""

    changes: tuple[FileChange, ...] = ()
    questions: tuple[Question, ...] = ()
    by: str = "local"
    """``local`` or ``model``."""
    written_on: Mapping[str, date] = field(default_factory=lambda: dict[str, date]())
    """The day of each file, by which its relative dates were made absolute."""
