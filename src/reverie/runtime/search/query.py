"""The words that a question looks up in an index of dialogues, with misspelled words corrected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from ...memories.recall.terms import terms

_MIN_CHARS: Final = 5


class Vocabulary(Protocol):
    """The words of an index of dialogues."""

    def frequencies(self, wanted: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return, by word, how many sessions and how many pieces contain it; absent words are left out."""
        ...

    def starting(self, letters: str) -> Sequence[str]:
        """Return some words of the index that start with these letters."""
        ...


def known_words(text: str, source: Vocabulary) -> dict[str, tuple[int, int]]:
    """Return a question's words in an index with their frequencies; an absent word is replaced by similar ones."""
    words = terms(text)
    known = source.frequencies(words)
    slips = [other for word in words if word not in known for other in _slips(word, source)]
    return known | source.frequencies(slips)


def _slips(word: str, source: Vocabulary) -> list[str]:
    """Return the words of the index that differ in one letter from a word of five letters or more."""
    if len(word) < _MIN_CHARS or not word.isalpha():
        return []
    return [other for other in source.starting(word[:3]) if differ_by_one(word, other)]


def differ_by_one(word: str, other: str) -> bool:
    """Say whether inserting, deleting, replacing or swapping one letter turns one word into the other."""
    if word == other or abs(len(word) - len(other)) > 1:
        return False
    at = next(
        (at for at, (one, two) in enumerate(zip(word, other, strict=False)) if one != two), min(len(word), len(other))
    )
    rest, left = word[at:], other[at:]
    swapped = rest[:2] == left[1::-1] and rest[2:] == left[2:] and len(rest) > 1
    return rest[1:] == left[1:] or rest[1:] == left or rest == left[1:] or swapped
