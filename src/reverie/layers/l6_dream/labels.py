"""Names that say nothing of what a memory holds: "Memory 12", "note-3", "deploy-day-17". Pure.

A number in a name is mostly a fact, as in "Experiment 42". It is none where all the rest of the name is a word for a
memory itself, nor at the end of a longer name, all of whose words stand in the memory, where the number does not.
"""

from __future__ import annotations

import re
from typing import Final

from .lemmas import base_of

__all__ = ["without_label"]

_LABELS: Final = frozenset(
    map(
        base_of,
        re.findall(
            r"\w+",
            """
    memory mem note fact item entry record doc document file sample example dup duplicate copy original orig variant
    version pair test case user feedback project reference ref topic statement fixture planted generated near exact
    new old again another other alt alternative rephrased reworded paraphrase contradiction conflict miss first second
    left right one two the about misc general untitled draft
            """,
        ),
    )
)
_PIECE: Final = re.compile(r"[^\W\d_]+|\d+")
_INDEX: Final = re.compile(
    r"(?:[\s_-]+(?:\(?#?\d+\)?[a-z]?|\(?(?:copy|dup|duplicate|again|bis)\)?|[ab]))+\s*\Z", re.IGNORECASE
)
_HASH: Final = re.compile(r"[\s_-]+(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,40}\s*\Z", re.IGNORECASE)
_FEW: Final = 2


def without_label(name: str, said: str) -> str:
    """Return a name without what only numbers it; ``said`` is the rest of the memory."""
    pieces = _PIECE.findall(name)
    if all(piece.isdigit() or len(piece) == 1 or base_of(piece.lower()) in _LABELS for piece in pieces):
        return ""
    for pattern in (_HASH, _INDEX):
        found = pattern.search(name)
        if found is None:
            continue
        rest = [base_of(piece.lower()) for piece in _PIECE.findall(name[: found.start()])]
        there = {base_of(piece.lower()) for piece in _PIECE.findall(said)}
        numbers = re.findall(r"\d+", found.group())
        if len(rest) >= _FEW and there.issuperset(rest) and there.isdisjoint(numbers):
            return name[: found.start()]
    return name
