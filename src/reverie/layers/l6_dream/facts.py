"""Facts for a dream from outside the memory files."""

from __future__ import annotations

from collections.abc import Mapping

from ...values import field, record

__all__ = ["DreamFacts"]


@record
class DreamFacts:
    """Facts from outside the files, gathered before a dream; each may be left out."""

    modified: Mapping[str, float] = field(default_factory=lambda: dict[str, float]())
    """The files' own times in seconds, for those whose front matter has none."""
    known_paths: frozenset[str] = frozenset()
    """Files beneath the directory that are no memories of this scope and are there: logs, team memories, the index."""
    missing_paths: frozenset[str] = frozenset()
    """Files of the project that memories link to and that are not there."""
    drafts: Mapping[str, bytes] = field(default_factory=lambda: dict[str, bytes]())
    """New memories, by the file they would go into, drafted from daily logs."""
    gone_sessions: frozenset[str] = frozenset()
    """Sessions that memories name as their source and that are no longer there."""
    unsupported: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    """Memories that their source does not bear out, and why."""
