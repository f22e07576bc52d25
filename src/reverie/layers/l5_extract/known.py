"""Memories that are there already, so that the same thing is not kept twice and what changed is brought up to date.

Two texts that differ in one word may be two rules ("never touch a", "never touch b"): losing one is worse than keeping
both. So a text takes the place of another only where it says more, says the opposite, or differs in nothing but a
number, a date or an address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ...memories.recall.terms import terms
from ...memories.stems import stem
from ...memories.store.records import MemoryRecord
from ...memories.store.trust import TRUSTS, Trust
from ...values import record

__all__ = ["Known"]

_LEAST_SHARED: Final = 3
_URL: Final = re.compile(r"https?://[^\s<>\"')\]]+", re.IGNORECASE)
_DENIED: Final = re.compile(
    r"\b(?:not|never|no|don'?t|doesn'?t|won'?t|stop|avoid|without|no longer)\b|n't\b", re.IGNORECASE
)
_DENYING: Final = frozenset(map(stem, ("not", "never", "no", "stop", "avoid", "without", "longer", "always", "please")))
_DAYS: Final = frozenset(
    map(
        stem,
        (
            *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
            *("january", "february", "march", "april", "may", "june", "july"),
            *("august", "september", "october", "november", "december"),
        ),
    )
)


@record
class _Text:
    """What a text is about: its words, and beside them the values in it and whether it denies."""

    words: frozenset[str]
    values: frozenset[str]
    denies: bool

    def is_said_by(self, other: _Text) -> bool:
        """Say whether the other text says all of this one."""
        same = self.words == other.words
        within = self.words <= other.words and len(self.words) >= _LEAST_SHARED
        return (same or within) and self.values <= other.values and self.denies == other.denies

    def replaces(self, other: _Text) -> bool:
        """Say whether this is the same thing with more, the opposite, or another value, and not another thing."""
        if len(other.words) < 2 and self.words != other.words:
            return False
        return other.words <= self.words and 2 * len(other.words) >= len(self.words)


def _read(text: str) -> _Text:
    """Return what a text is about; words of yes and no do not count, since they are read by themselves."""
    said = text.split("**Why")[0]
    urls = frozenset(url.rstrip(".,;:").casefold() for url in _URL.findall(said))
    found = frozenset(terms(_URL.sub(" ", said))) - _DENYING
    values = frozenset(one for one in found if one.isdigit() or one in _DAYS)
    return _Text(found - values, values | urls, len(_DENIED.findall(said)) % 2 == 1)


class Known:
    """Texts by what they are about."""

    def __init__(self, existing: Iterable[MemoryRecord] = ()) -> None:
        self._rows: list[tuple[str, str, _Text, Trust]] = []
        for memory in existing:
            if not memory.problem:
                for text in filter(None, (memory.body, memory.description)):
                    self.add(memory.type, text, file=memory.file, trust=memory.trust)

    def add(self, type_name: str, text: str, *, file: str, trust: Trust = "user") -> None:
        """Count a text among those that are there; one that is not in a file yet cannot be brought up to date."""
        self._rows.append((file, type_name, _read(text), trust))

    def placed(self, type_name: str, text: str, trust: Trust) -> str | None:
        """Return the file a text brings up to date, nothing for a new one, None where it is said already."""
        new, found = _read(text), ""
        for file, kind, old, vouched in self._rows:
            if new.is_said_by(old):
                return None
            # A text of less trust stands beside a better one, never in its place.
            better = TRUSTS.index(vouched) < TRUSTS.index(trust)
            if file and kind == type_name and not better and new.replaces(old):
                found = file
        return found
