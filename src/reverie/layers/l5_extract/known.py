"""Memories that are there already, so that the same thing is not kept twice and what changed is brought up to date."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...memories.lexical import terms
from ...memories.records import MemoryRecord
from ...memories.trust import TRUSTS, Trust

__all__ = ["Known"]

_SAME: Final = 0.85
"""Overlap above which two texts say the same."""
_NEAR: Final = 0.6
"""Overlap above which the newer text brings the older up to date."""
_LEAST_SHARED: Final = 3


class Known:
    """Texts by the words they are about."""

    def __init__(self, existing: Iterable[MemoryRecord] = ()) -> None:
        self._rows: list[tuple[str, str, frozenset[str], Trust]] = []
        for memory in existing:
            if not memory.problem:
                self._rows.append((memory.file, memory.type, _words(memory.body or memory.description), memory.trust))
                if memory.body and memory.description:
                    self._rows.append((memory.file, memory.type, _words(memory.description), memory.trust))

    def add(self, type_name: str, text: str, *, file: str, trust: Trust = "user") -> None:
        """Count a text among those that are there."""
        self._rows.append((file, type_name, _words(text), trust))

    def placed(self, type_name: str, text: str, trust: Trust) -> str | None:
        """Return the file a text brings up to date, nothing for a new one, None where it is said already."""
        words = _words(text)
        best, where, better = 0.0, "", False
        for file, kind, there, theirs in self._rows:
            shared = len(words & there)
            if not shared:
                continue
            overlap = shared / len(words | there)
            # What is contained in an older text is said there, in whatever type.
            if overlap >= _SAME or (words <= there and len(words) >= _LEAST_SHARED):
                return None
            if kind == type_name and shared >= _LEAST_SHARED and overlap > best:
                best, where, better = overlap, file, TRUSTS.index(theirs) < TRUSTS.index(trust)
        # A text of less trust stands beside a better one, never in its place.
        return where if best >= _NEAR and not better else ""


def _words(text: str) -> frozenset[str]:
    return frozenset(terms(text.split("**Why")[0]))
