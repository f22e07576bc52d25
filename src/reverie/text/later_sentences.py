"""Find a later sentence about the same thing, by the rare words that two sentences share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log
from typing import Final

from .stems import stems
from .words import words

_TELLING: Final = 3  # sentences are about the same thing if they share as much as a word that only so many have
_COMMON: Final = 10  # a word in more than a tenth of the sentences is not rare
_CJK_RUN: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")


class LaterSentences:
    """Finds the later sentence, not a question, that shares the most with a sentence: rare words count for more."""

    def __init__(self, asks: Sequence[bool], terms: Sequence[Sequence[str]]) -> None:
        """Compare sentences, oldest first, by whether each is a question and by its terms."""
        self._asks, self._terms = asks, terms
        places: dict[str, list[int]] = {}
        for at, own in enumerate(terms):
            for term in own:
                places.setdefault(term, []).append(at)
        most = max(3, len(terms) // _COMMON)
        self._places = {term: found for term, found in places.items() if len(found) <= most}
        self._weights = {term: log(len(terms) / len(found)) for term, found in self._places.items()}

    def than(self, number: int) -> int | None:
        """Return the number of that sentence; None if none shares enough."""
        shared: dict[int, float] = {}
        for term in self._terms[number]:
            for at in self._places.get(term, ()):
                if at > number and not self._asks[at]:
                    shared[at] = shared.get(at, 0.0) + self._weights[term]
        best = max(((weight, at) for at, weight in shared.items()), default=None)
        return best[1] if best is not None and best[0] >= log(len(self._terms) / _TELLING) else None


def terms_of(text: str) -> tuple[str, ...]:
    """Return the word stems of a text once each, and pairs of characters where a script has no spaces."""
    runs = _CJK_RUN.findall(text)
    pairs = (run[at : at + 2] for run in runs for at in range(len(run) - 1))
    return tuple(dict.fromkeys((*stems(words(_CJK_RUN.sub(" ", text))), *pairs)))
