"""Facts for a dream from outside the memory files."""

from __future__ import annotations

from collections.abc import Mapping

from ...values import field, record

__all__ = ["DreamFacts"]


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
    unsupported: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    """Memories that their source does not support, with the reason."""
