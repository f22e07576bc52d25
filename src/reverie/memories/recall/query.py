"""The words that a question looks up in an index of dialogues, with misspelled words corrected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from .terms import affordable, terms, tokens

__all__ = ["Query", "Vocabulary", "differ_by_one"]

_MIN_CHARS: Final = 5


class Vocabulary(Protocol):
    """The words of an index of dialogues, and the names of its speakers."""

    def frequencies(self, wanted: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return, by word, how many sessions and how many messages contain it; absent words are left out."""
        ...

    def starting(self, letters: str) -> Sequence[str]:
        """Return some words of the index that start with these letters."""
        ...

    def speakers(self) -> Collection[str]:
        """Return the stems of the names of all speakers."""
        ...


class Query:
    """A question in terms of an index: its words with frequencies, slips corrected, and the speakers it names."""

    def __init__(self, text: str, source: Vocabulary, *, max_postings: int) -> None:
        names = source.speakers()
        self.names = [word for word in dict.fromkeys(tokens(text)) if word in names]
        words = [word for word in terms(text) if word not in names]
        known = source.frequencies(words)
        for word in [word for word in words if word not in known]:
            others = _slips(word, source)
            known |= source.frequencies(others)
            words += [other for other in others if other in known and other not in words]
        self.frequencies = known
        self.words = affordable({word: known[word][1] for word in words if word in known}, max_postings)


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
