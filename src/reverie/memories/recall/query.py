"""What ranking asks an index of dialogues, the constants of the ranking, and what a question looks for in an index."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Protocol

from ...values import field, record
from ..lexical_kin import kin_of
from ..stems import stem
from .terms import Moment, moment_in, terms, tokens

__all__ = ["Dialogues", "Query", "SessionFacts", "Spread", "Weights", "affordable", "differ_by_one"]

_MIN_AMISS_CHARS: Final = 5


@record
class SessionFacts:
    """What ranking needs to know of a session."""

    key: str
    words: int
    messages: int
    first: str = ""
    last: str = ""


class Dialogues(Protocol):
    """An index of sessions; a posting is a message's number, a word's count in it and its length, see ``packed``."""

    messages: int
    sessions: int
    words: int

    def frequencies(self, wanted: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return for each word that occurs how many sessions and how many messages have it."""
        ...

    def starting(self, letters: str) -> Sequence[str]:
        """Return the words that begin with these letters, so many at most."""
        ...

    def postings(self, term: str, within: Sequence[int] | None = None) -> list[tuple[int, array[int]]]:
        """Return a word's postings by session, of all sessions or of these."""
        ...

    def facts(self, sessions: Iterable[int]) -> dict[int, SessionFacts]:
        """Return what is known of these sessions."""
        ...

    def speakers(self) -> Collection[str]:
        """Return the names of speakers, each as its stem."""
        ...

    def spoken_by(self, session: int, name: str) -> frozenset[int]:
        """Return the numbers of the messages of a session that a speaker said."""
        ...

    def texts(self, places: Sequence[tuple[int, int]]) -> list[str]:
        """Return the texts of messages by session and number; empty where one is too long or gone."""
        ...


@record
class Spread:
    """How much of its neighbours' worth a message takes over, by how far they stand before or after it."""

    before: tuple[float, ...] = (0.5, 0.1)
    after: tuple[float, ...] = (0.2, 0.05)


@record
class Weights:
    """The constants of the ranking."""

    k1: float = 1.2
    b: float = 0.5
    session_k1: float = 1.2
    session_b: float = 0.5
    session: float = 0.6
    """What a session's worth counts in each of its messages."""
    session_floor: float = 0.2
    """What a word that every session has still counts in a session."""
    spread: Spread = field(default_factory=Spread)
    speaker: float = 0.3
    month: float = 1.0
    next_month: float = 0.5
    kin: float = 0.15
    """What a word of one kin with a word of the question counts beside that."""
    kin_in_message: float = 1.0
    feedback: float = 0.2
    """What the words that the best messages share count beside those of the question."""
    feedback_in_message: float = 0.5
    feedback_messages: int = 30
    feedback_words: int = 40
    feedback_pool: int = 80
    """How many of the words they share most are weighed."""
    decay: float = 0.5
    """What each further message of a session counts for the session."""
    max_postings: int = 2_500
    """Words are taken rarest first until this many postings have been looked at."""
    max_sessions: int = 40
    """With more sessions than these only the best are looked at for more than the words of the question."""
    kept_sessions: int = 12
    kept_messages: int = 32
    """Messages of a session that give worth to their neighbours."""
    kept_feedback_messages: int = 5
    kept_feedback_words: int = 8
    kept_postings: int = 1_000
    """What ``max_postings`` is then."""


class Query:
    """What a question asks for, in terms of an index."""

    def __init__(self, text: str, source: Dialogues, weights: Weights) -> None:
        names = source.speakers()
        found = list(dict.fromkeys(tokens(text)))
        self.names = [word for word in found if word in names]
        words = [word for word in terms(text) if word not in names]
        self.moment: Moment | None = moment_in(words)
        joined = [left + right for left, right in pairwise(found) if len(left) + len(right) > 5]
        known = source.frequencies([*words, *joined])
        words += [word for word in joined if word in known and word not in words]
        for word in [word for word in words if word not in known]:
            others = _other_spellings(word, source)
            known |= source.frequencies(others)
            words += [other for other in others if other in known and other not in words]
        related = kin_of(words) if weights.kin else []
        known |= source.frequencies(related)
        self.frequencies = known
        budget = weights.max_postings if source.sessions <= weights.max_sessions else weights.kept_postings
        self.words = affordable([word for word in words if word in known], known, budget)
        rest = budget - sum(known[word][1] for word in self.words)
        kin = [word for word in related if word in known and word not in names]
        self.kin = affordable(kin, known, rest) if kin and rest > 0 else []


def _other_spellings(word: str, source: Dialogues) -> list[str]:
    """Return words of the index that a word nobody wrote may stand for: two in one, or one letter amiss."""
    halves = [halves for halves in _halves(word) if len(source.frequencies(halves)) == 2]
    if halves:
        return list(halves[0])
    if len(word) < _MIN_AMISS_CHARS or not word.isalpha():
        return []
    return [other for other in source.starting(word[:3]) if differ_by_one(word, other)]


def differ_by_one(word: str, other: str) -> bool:
    """Say whether one letter more, less, other or swapped with the next makes one word of the other."""
    if word == other or abs(len(word) - len(other)) > 1:
        return False
    at = next(
        (at for at, (one, two) in enumerate(zip(word, other, strict=False)) if one != two), min(len(word), len(other))
    )
    rest, left = word[at:], other[at:]
    swapped = rest[:2] == left[1::-1] and rest[2:] == left[2:] and len(rest) > 1
    return rest[1:] == left[1:] or rest[1:] == left or rest == left[1:] or swapped


def _halves(word: str) -> list[tuple[str, str]]:
    """Return the ways to read a long word as two."""
    if not 7 <= len(word) <= 24 or not word.isalpha():
        return []
    return [(stem(word[:at]), word[at:]) for at in range(3, len(word) - 2)]


def affordable(words: list[str], known: Mapping[str, tuple[int, int]], budget: int) -> list[str]:
    """Return the rarest words whose postings fit the budget, at least one."""
    kept: list[str] = []
    for word in sorted(words, key=lambda one: (known[one][1], one)):
        budget -= known[word][1]
        if kept and budget < 0:
            break
        kept.append(word)
    return kept
