"""Find messages in dialogues without a model: BM25 over a message, its neighbours and its session.

An answer often lacks the words of the question: they occur in the message before it, or elsewhere in the session. So a
message gets a share of its neighbours' scores and of the score of its session as one text. A speaker's name in the
question favours that speaker's messages.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from ...values import record
from .query import Query, Vocabulary
from .terms import idf, saturated

__all__ = ["Dialogues", "SessionFacts", "SessionRanking", "SessionScore", "Weights", "packed", "rank", "size_code"]

_SHIFT: Final = 16
_LOW: Final = (1 << _SHIFT) - 1
_LENGTHS: Final = tuple(2 ** (code / 8) - 1 for code in range(256))


@record
class SessionFacts:
    """The key of a session, and its numbers of words and messages, which ranking needs."""

    key: str
    words: int
    messages: int


class Dialogues(Vocabulary, Protocol):
    """An index of the words in sessions; a posting is one integer for a word in a message, see ``packed``."""

    messages: int
    sessions: int
    words: int

    def postings(self, term: str, within: Sequence[int] | None = None) -> list[tuple[int, array[int]]]:
        """Return pairs of session and the word's postings there, in all sessions or only in ``within``."""
        ...

    def facts(self, sessions: Iterable[int]) -> dict[int, SessionFacts]:
        """Return the key and the sizes of these sessions, by session number."""
        ...

    def spoken_by(self, session: int, name: str) -> frozenset[int]:
        """Return the message numbers of a speaker in a session; ``name`` is a stem."""
        ...


@record
class Weights:
    """The constants by which messages and sessions are ranked."""

    before: float = 0.5
    """The share of the previous message's score that a message gets."""
    after: float = 0.25
    """The share of the next message's score that a message gets."""
    session: float = 0.5
    """The share of the score of its session, as one text, that a message gets."""
    speaker: float = 0.5
    """The bonus, as a share of the score, for a message whose speaker the question names."""
    max_postings: int = 2_500
    """Words are looked up rarest first until this many postings were read."""


@record
class SessionScore:
    """A message that matches a question: its session, its number there, and its score."""

    session: int
    number: int
    score: float


@record
class SessionRanking:
    """The messages and sessions found, best first, and the words that were looked up."""

    messages: tuple[SessionScore, ...] = ()
    sessions: tuple[tuple[int, float], ...] = ()
    words: tuple[str, ...] = ()


def size_code(words: int) -> int:
    """Return a code from 0 to 255 for a length in words, accurate to about a tenth."""
    return min(255, bisect_left(_LENGTHS, words))


def packed(number: int, count: int, code: int) -> int:
    """Return a posting as one integer: message number, word count (at most 255), code of the message's length."""
    return number << _SHIFT | min(count, 255) << 8 | code


def rank(
    text: str,
    source: Dialogues,
    *,
    limit: int = 10,
    weights: Weights | None = None,
    within: Sequence[int] | None = None,
) -> SessionRanking:
    """Return at most ``limit`` messages, and as many sessions, that best match a question.

    ``within`` are the sessions to search; None means all.
    """
    weights = weights or Weights()
    query = Query(text, source, max_postings=weights.max_postings)
    board = _Board(source, weights)
    for word in query.words:
        board.add(word, query.frequencies[word], within)
    return board.ranked(query, limit)


class _Board:
    """The scores of messages and sessions, summed word by word."""

    def __init__(self, source: Dialogues, weights: Weights) -> None:
        self._source = source
        self._weights = weights
        self._own: dict[int, dict[int, float]] = {}
        self._whole: dict[int, float] = {}
        self._facts: dict[int, SessionFacts] = {}
        self._worth = _Worths(source.words / (source.messages or 1))
        self._average_session = source.words / (source.sessions or 1)

    def add(self, word: str, frequency: tuple[int, int], within: Sequence[int] | None) -> None:
        """Add the score of a word to every message and session that has it."""
        source, worth = self._source, self._worth
        sessions, messages = frequency
        tells, tells_session = idf(source.messages, messages), idf(source.sessions, sessions)
        found = source.postings(word, within)
        self._facts |= source.facts(session for session, _ in found if session not in self._facts)
        for session, postings in found:
            own = self._own.setdefault(session, {})
            count = 0
            for posting in postings:
                low = posting & _LOW
                count += low >> 8
                number = posting >> _SHIFT
                own[number] = own.get(number, 0.0) + tells * worth[low]
            value = saturated(count, self._facts[session].words, self._average_session)
            self._whole[session] = self._whole.get(session, 0.0) + tells_session * value

    def ranked(self, query: Query, limit: int) -> SessionRanking:
        """Return at most ``limit`` messages and sessions with the highest scores."""
        sessions: list[tuple[float, str, int]] = []
        messages: list[tuple[float, str, int, int]] = []
        for session in self._own:
            key = self._facts[session].key
            scores = self._scores(session, query.names)
            messages += [(-value, key, number, session) for number, value in scores.items()]
            sessions.append((-self._whole[session] - max(scores.values()), key, session))
        return SessionRanking(
            tuple(SessionScore(one, number, -value) for value, _, number, one in heapq.nsmallest(limit, messages)),
            tuple((one, -value) for value, _, one in heapq.nsmallest(limit, sessions)),
            tuple(query.words),
        )

    def _scores(self, session: int, names: Iterable[str]) -> dict[int, float]:
        """Return the scores of a session's messages by number, with shares of neighbours, session and speaker."""
        weights = self._weights
        base = weights.session * self._whole[session]
        found: dict[int, float] = {}
        for number, value in self._own[session].items():
            for at, share in ((number, 1.0), (number + 1, weights.before), (number - 1, weights.after)):
                if 0 <= at < self._facts[session].messages:
                    found[at] = found.get(at, base) + share * value
        for name in names:
            for number in self._source.spoken_by(session, name) & found.keys():
                found[number] *= 1 + weights.speaker
        return found


class _Worths(dict[int, float]):
    """A cache of a word's score in a message, by the posting's count and length code."""

    def __init__(self, average: float) -> None:
        super().__init__()
        self._average = average

    def __missing__(self, low: int) -> float:
        value = saturated(low >> 8, _LENGTHS[low & 255], self._average)
        self[low] = value
        return value
