"""Find messages in dialogues without a model: BM25 over pieces of a message, its neighbours and its session.

The score of a message is that of its best piece, so a long answer does not win by its length; a message that no person
wrote gets half. An answer often lacks the words of the question: they occur in a message near it, or elsewhere in the
session. So a message also gets a share of its neighbours' scores, and the score of its session as one text. The
score of a session is that of its text and of its best message.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from ...memories.recall.terms import affordable, idf, saturated, terms
from ...values import field, record

_MIN_CHARS: Final = 5
_SHIFT: Final = 16
_PIECE_BITS: Final = 16
_LOW: Final = (1 << _SHIFT) - 1
_MAX_PIECE: Final = (1 << _PIECE_BITS) - 1
LIKENESS_FLOOR: Final = 0.3
"""Vectors of unrelated texts have a likeness up to about this, so only more says something."""
_LENGTHS: Final = tuple(2 ** (code / 8) - 1 for code in range(256))


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


@record
class SessionFacts:
    """The key of a session, its number of words, and one byte per message: 1 if a person wrote it."""

    key: str
    words: int
    people: bytes


class Dialogues(Vocabulary, Protocol):
    """An index of the words in sessions; a posting is one integer for a word in a piece, see ``packed``."""

    pieces: int
    sessions: int
    words: int

    def postings(self, term: str, within: Sequence[int] | None = None) -> list[tuple[int, array[int]]]:
        """Return pairs of session and the word's postings there, in all sessions or only in ``within``."""
        ...

    def facts(self, sessions: Iterable[int]) -> dict[int, SessionFacts]:
        """Return the facts about these sessions, by session number."""
        ...


Counts: TypeAlias = Callable[[Sequence[str]], tuple[int, Mapping[str, int]]]
"""Return the number of all sessions, and for each of some words the number of those that have it."""


@record
class Weights:
    """The constants by which messages and sessions are ranked."""

    near: float = 0.5
    """The share of its score that a message gives to the next; each step further, and the way back, costs as much."""
    agent: float = 0.5
    """The factor for a message that no person wrote: agents' answers, tool calls and results."""
    max_postings: int = 4_000
    """Words are looked up rarest first until this many postings were read."""


@record
class SessionScore:
    """A message that matches a question: its session, its number there, and its score."""

    session: int
    number: int
    score: float


@record
class SessionRanking:
    """The messages and sessions found, best first, and the question's words in the index with their rarity."""

    messages: tuple[SessionScore, ...] = ()
    sessions: tuple[tuple[int, float], ...] = ()
    words: Mapping[str, float] = field(default_factory=dict[str, float])


def size_code(words: int) -> int:
    """Return a code from 0 to 255 for a length in words, accurate to about a tenth."""
    return min(255, bisect_left(_LENGTHS, words))


def packed(number: int, piece: int, count: int, code: int) -> int:
    """Return a posting as one integer: message number, piece, word count, code of the piece's length.

    A count above 255 counts as 255, and the pieces after 65,535 (32 MB of text) as one.
    """
    return (number << _PIECE_BITS | min(piece, _MAX_PIECE)) << _SHIFT | min(count, 255) << 8 | code


def rank(
    text: str,
    source: Dialogues,
    *,
    limit: int = 10,
    weights: Weights | None = None,
    within: Sequence[int] | None = None,
    likenesses: Mapping[tuple[int, int], float] | None = None,
    counts: Counts | None = None,
) -> SessionRanking:
    """Return at most ``limit`` messages, and as many sessions, that best match a question.

    ``within`` are the sessions to search; None means all. ``likenesses`` are the cosines of the vectors of question and
    messages, by session and number of a message. ``counts`` says how rare words are where the source has only some of
    the sessions.
    """
    weights = weights or Weights()
    known = known_words(text, source)
    words = affordable({word: pieces for word, (_, pieces) in known.items()}, weights.max_postings)
    board = _Board(source, weights)
    board.words = {word: idf(source.pieces, pieces) for word, (_, pieces) in known.items()}
    total, having = counts(words) if counts is not None and words else (0, dict[str, int]())
    for word in words:
        board.add(word, known[word], within, total, having.get(word, 0))
    if not likenesses:
        return board.ranked(limit)
    return _fused(board.ranked(source.pieces), likenesses, limit)


def _fused(found: SessionRanking, likenesses: Mapping[tuple[int, int], float], limit: int) -> SessionRanking:
    """Return a ranking in which the best match by words has 1 and likeness above the floor is added."""
    top = found.messages[0].score if found.messages else 1.0
    scores = {(hit.session, hit.number): hit.score / top for hit in found.messages}
    for place, value in likenesses.items():
        if value > LIKENESS_FLOOR:
            scores[place] = scores.get(place, 0.0) + value - LIKENESS_FLOOR
    best = heapq.nsmallest(limit, scores, key=lambda place: (-scores[place], place))
    hits = tuple(SessionScore(session, number, scores[session, number]) for session, number in best)
    return SessionRanking(hits, found.sessions[:limit], found.words)


class _Board:
    """The scores of messages and sessions, summed word by word."""

    def __init__(self, source: Dialogues, weights: Weights) -> None:
        self._source = source
        self._agent = weights.agent
        near = weights.near
        self._shares = ((1, near), (2, near**2), (-1, near**2), (-2, near**3))
        self._pieces: dict[int, dict[int, float]] = {}
        self._whole: dict[int, float] = {}
        self._facts: dict[int, SessionFacts] = {}
        self._worth = _Worths(source.words / (source.pieces or 1))
        self._average_session = source.words / (source.sessions or 1)
        self.words: dict[str, float] = {}

    def add(self, word: str, frequency: tuple[int, int], within: Sequence[int] | None, total: int, having: int) -> None:
        """Add the score of a word to every piece and session that has it.

        ``having`` of ``total`` sessions have the word, if the source has only some; its pieces are in proportion.
        """
        source, worth = self._source, self._worth
        sessions, pieces = frequency
        total, having = max(total, source.sessions), max(having, sessions)
        all_pieces, having_pieces = source.pieces * total / source.sessions, pieces * having / sessions
        tells, tells_session = idf(all_pieces, having_pieces), idf(total, having)
        found = source.postings(word, within)
        self._facts |= source.facts(session for session, _ in found if session not in self._facts)
        for session, postings in found:
            scores = self._pieces.setdefault(session, {})
            count = 0
            for posting in postings:
                low = posting & _LOW
                count += low >> 8
                piece = posting >> _SHIFT
                scores[piece] = scores.get(piece, 0.0) + tells * worth[low]
            value = saturated(count, self._facts[session].words, self._average_session)
            self._whole[session] = self._whole.get(session, 0.0) + tells_session * value

    def ranked(self, limit: int) -> SessionRanking:
        """Return at most ``limit`` messages and sessions with the highest scores."""
        own = {session: self._own(session) for session in self._pieces}
        best = {session: max(scores.values()) for session, scores in own.items()}
        more = 1 + sum(share for _, share in self._shares)
        most = {session: self._whole[session] + more * value for session, value in best.items()}
        messages, sessions = _Best(limit), _Best(limit)
        for session in sorted(own, key=lambda one: -most[one]):
            facts, whole = self._facts[session], self._whole[session]
            if whole + best[session] >= sessions.least:
                sessions.add(whole + best[session], (facts.key, 0, session))
            if most[session] < messages.least:
                continue  # none of its messages can be among the best
            for number, value in self._scores(own[session], facts.people, whole).items():
                if value >= messages.least:
                    messages.add(value, (facts.key, number, session))
        return SessionRanking(
            tuple(SessionScore(session, number, value) for value, (_, number, session) in messages.ordered()),
            tuple((session, value) for value, (_, _, session) in sessions.ordered()),
            self.words,
        )

    def _own(self, session: int) -> dict[int, float]:
        """Return the own scores of a session's messages by number: the best piece, less if no person wrote it."""
        people, agent = self._facts[session].people, self._agent
        own: dict[int, float] = {}
        for piece, value in self._pieces[session].items():
            number = piece >> _PIECE_BITS
            if not people[number]:
                value *= agent
            if value > own.get(number, 0.0):
                own[number] = value
        return own

    def _scores(self, own: Mapping[int, float], people: bytes, base: float) -> dict[int, float]:
        """Return the scores of a session's messages by number, with their shares of neighbours and session."""
        found = {number: base + value for number, value in own.items()}
        for number, value in own.items():
            for step, share in self._shares:
                at = number + step
                if 0 <= at < len(people):
                    given = share * value if people[at] else self._agent * share * value
                    found[at] = found.get(at, base) + given
        return found


class _Best:
    """The places with the highest scores, at most ``limit``; of equal scores those that sort first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._highest: list[float] = []
        self._found: list[tuple[float, tuple[str, int, int]]] = []
        self.least = -1.0
        """A place with a lower score is not among the best."""

    def add(self, score: float, place: tuple[str, int, int]) -> None:
        """Add a place, whose score is not below ``least``."""
        self._found.append((-score, place))
        heapq.heappush(self._highest, score)
        if len(self._highest) > self._limit:
            heapq.heappop(self._highest)
        if len(self._highest) == self._limit and self._highest:
            self.least = self._highest[0]

    def ordered(self) -> list[tuple[float, tuple[str, int, int]]]:
        """Return the best places with their scores, best first."""
        return [(-score, place) for score, place in heapq.nsmallest(self._limit, self._found)]


class _Worths(dict[int, float]):
    """A cache of a word's score in a piece, by the posting's count and length code."""

    def __init__(self, average: float) -> None:
        super().__init__()
        self._average = average

    def __missing__(self, low: int) -> float:
        value = saturated(low >> 8, _LENGTHS[low & 255], self._average)
        self[low] = value
        return value
