"""Finding messages in dialogues, with no model: a message is found by its words, its neighbours and its session.

What answers a question is often not what has its words: the question a reply answers stands before it, and a
session has one subject for a while. So a message takes over part of what its neighbours are worth, and part of what its
session is worth as one text. A month in the question favours sessions of that month and the next; a speaker's name
favours what that speaker said; words that the best messages share find more sessions of the same subject.
The constants were chosen by leaving out one conversation at a time (``benchmarks/recall.py``).
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Protocol

from ..values import field, record, replace
from .lexical import FUNCTION_WORDS, Moment, idf, moment_in, saturated, terms, tokens
from .lexical_kin import kin_of
from .stems import stem

__all__ = ["Dialogues", "Ranked", "Scored", "SessionFacts", "Spread", "Weights", "differ_by_one", "packed", "rank", "size_code"]

_SHIFT: Final = 16
_MIN_AMISS_CHARS: Final = 5
_LOW: Final = (1 << _SHIFT) - 1
_LENGTHS: Final = tuple(2 ** (code / 8) - 1 for code in range(256))


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
    feedback_messages: int = 20
    feedback_words: int = 40
    feedback_pool: int = 80
    """How many of the words they share most are weighed."""
    decay: float = 0.7
    """What each further message of a session counts for the session."""
    max_postings: int = 2_500
    """Words are taken rarest first until this many postings have been looked at."""
    max_sessions: int = 40
    """With more sessions than these only the best are looked at for more than the words of the question."""
    kept_sessions: int = 12
    kept_messages: int = 32
    """Messages of a session that give worth to their neighbours."""
    kept_feedback_messages: int = 8
    kept_feedback_words: int = 12


@record
class Scored:
    """A message found."""

    session: int
    number: int
    score: float


@record
class Ranked:
    """What was found, best first, and the words it was found by."""

    messages: tuple[Scored, ...] = ()
    sessions: tuple[tuple[int, float], ...] = ()
    words: tuple[str, ...] = ()


def size_code(words: int) -> int:
    """Return a length as one byte, to about a tenth."""
    return min(255, bisect_left(_LENGTHS, words))


def packed(number: int, count: int, code: int) -> int:
    """Return a posting: the message's number, how often it has the word, its length's code."""
    return number << _SHIFT | min(count, 255) << 8 | code


class _Query:
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
        self.words = _affordable([word for word in words if word in known], known, weights.max_postings)
        rest = weights.max_postings - sum(known[word][1] for word in self.words)
        kin = [word for word in related if word in known and word not in names]
        self.kin = _affordable(kin, known, rest) if kin and rest > 0 else []


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
    at = next((at for at, (one, two) in enumerate(zip(word, other, strict=False)) if one != two), min(len(word), len(other)))
    rest, left = word[at:], other[at:]
    swapped = rest[:2] == left[1::-1] and rest[2:] == left[2:] and len(rest) > 1
    return rest[1:] == left[1:] or rest[1:] == left or rest == left[1:] or swapped


def _halves(word: str) -> list[tuple[str, str]]:
    """Return the ways to read a long word as two."""
    if not 7 <= len(word) <= 24 or not word.isalpha():
        return []
    return [(stem(word[:at]), word[at:]) for at in range(3, len(word) - 2)]


def _affordable(words: list[str], known: Mapping[str, tuple[int, int]], budget: int) -> list[str]:
    """Return the rarest words whose postings fit the budget, at least one."""
    kept: list[str] = []
    for word in sorted(words, key=lambda one: (known[one][1], one)):
        budget -= known[word][1]
        if kept and budget < 0:
            break
        kept.append(word)
    return kept


def rank(
    text: str,
    source: Dialogues,
    *,
    limit: int = 10,
    weights: Weights | None = None,
    within: Sequence[int] | None = None,
) -> Ranked:
    """Return the messages and sessions that a question is most likely about, of all sessions or of these."""
    weights = weights or Weights()
    query = _Query(text, source, weights)
    if not (query.words or query.kin):
        return Ranked()
    board = _Board(source, weights)
    board.add({word: 1.0 for word in query.words}, query.frequencies, within)
    board.add(dict.fromkeys(query.kin, weights.kin), query.frequencies, within, in_message=weights.kin_in_message)
    if weights.feedback:
        if source.sessions > weights.max_sessions:
            board.weights = replace(
                weights,
                feedback_messages=weights.kept_feedback_messages,
                feedback_words=weights.kept_feedback_words,
            )
            within = board.keep_best(max(weights.kept_sessions, limit))
        board.add(board.shared_words(query), board.frequencies, within, in_message=weights.feedback_in_message)
    return board.ranked(query, limit)


class _Board:
    """Where the worth of messages and sessions is added up."""

    def __init__(self, source: Dialogues, weights: Weights) -> None:
        self.source = source
        self.weights = weights
        self.own: dict[int, dict[int, float]] = {}
        self.whole: dict[int, float] = {}
        self.facts: dict[int, SessionFacts] = {}
        self.frequencies: dict[str, tuple[int, int]] = {}
        average = source.words / (source.messages or 1)
        self._worth = _Worths(average, weights)
        self._average_session = source.words / (source.sessions or 1)

    def add(
        self,
        words: Mapping[str, float],
        frequencies: Mapping[str, tuple[int, int]],
        within: Sequence[int] | None,
        *,
        in_message: float = 1.0,
    ) -> None:
        """Add what these words are worth wherever they occur."""
        source, weights, worth = self.source, self.weights, self._worth
        for word, weight in words.items():
            sessions, messages = frequencies[word]
            tells = idf(source.messages, messages) * weight * in_message
            tells_session = (idf(source.sessions, sessions) + weights.session_floor) * weight
            found = source.postings(word, within)
            self._learn(session for session, _ in found)
            for session, postings in found:
                own = self.own.setdefault(session, {})
                count = 0
                for posting in postings:
                    low = posting & _LOW
                    count += low >> 8
                    number = posting >> _SHIFT
                    own[number] = own.get(number, 0.0) + tells * worth[low]
                value = saturated(
                    count,
                    self.facts[session].words,
                    self._average_session,
                    k1=weights.session_k1,
                    b=weights.session_b,
                )
                self.whole[session] = self.whole.get(session, 0.0) + tells_session * value

    def _learn(self, sessions: Iterable[int]) -> None:
        missing = [session for session in sessions if session not in self.facts]
        if missing:
            self.facts |= self.source.facts(missing)

    def keep_best(self, most: int) -> list[int]:
        """Forget all but the best sessions, by what is known so far, and return these."""
        share, facts = self.weights.session, self.facts

        def worth(session: int) -> tuple[float, str]:
            return -(share * self.whole[session] + max(self.own[session].values())), facts[session].key

        best = heapq.nsmallest(most, self.own, key=worth)
        self.own = {session: self.own[session] for session in best}
        return best

    def scores(self, session: int) -> dict[int, float]:
        """Return what the messages of a session are worth with their neighbours and their session."""
        own, weights = self.own[session], self.weights
        if len(own) > weights.kept_messages:
            own = dict(heapq.nlargest(weights.kept_messages, own.items(), key=lambda item: (item[1], -item[0])))
        base = weights.session * self.whole[session]
        found: dict[int, float] = {}
        for number, value in own.items():
            found[number] = found.get(number, base) + value
            for step, share in enumerate(weights.spread.before, 1):
                found[number + step] = found.get(number + step, base) + share * value
            for step, share in enumerate(weights.spread.after, 1):
                if number >= step:
                    found[number - step] = found.get(number - step, base) + share * value
        last = self.facts[session].messages
        return {number: value for number, value in found.items() if number < last}

    def shared_words(self, query: _Query) -> dict[str, float]:
        """Return the words that the best messages share, each with its weight beside those of the question."""
        weights = self.weights
        best = heapq.nsmallest(
            weights.feedback_messages,
            (
                (-value, self.facts[one].key, number, one)
                for one in self.own
                for number, value in self.scores(one).items()
            ),
        )
        total = sum(-value for value, *_ in best)
        texts = self.source.texts([(session, number) for _, _, number, session in best])
        shares: dict[str, float] = {}
        for (value, *_), text in zip(best, texts, strict=True):
            for word in set(tokens(text)):
                shares[word] = shares.get(word, 0.0) - value / total
        names, asked = self.source.speakers(), set(query.words)
        common = heapq.nsmallest(
            weights.feedback_pool,
            ((-share, word) for word, share in shares.items() if word not in FUNCTION_WORDS and word not in names),
        )
        self.frequencies = self.source.frequencies(word for _, word in common)
        messages = self.source.messages
        telling = heapq.nsmallest(
            weights.feedback_words,
            (
                (share * idf(messages, self.frequencies[word][1]), word)
                for share, word in common
                if self.frequencies.get(word, (0, 0))[1] > 1
            ),
        )
        if not telling:
            return {}
        most = telling[0][0]
        share = min(1.0, len(self.own) / (self.source.sessions or 1))
        near = {word: (logs, round(having * share)) for word, (logs, having) in self.frequencies.items()}
        fitting = set(_affordable([word for _, word in telling], near, weights.max_postings))
        return {
            word: weights.feedback * value / most for value, word in telling if word in fitting and word not in asked
        }

    def ranked(self, query: _Query, limit: int) -> Ranked:
        """Return the best messages and the best sessions."""
        weights = self.weights
        sessions: list[tuple[float, str, int]] = []
        messages: list[tuple[float, str, int, int]] = []
        for session in self.own:
            facts = self.facts[session]
            factor = 1 + weights.month * self._nearness(query.moment, facts)
            said = frozenset[int]().union(*(self.source.spoken_by(session, name) for name in query.names))
            scores = self.scores(session)
            for number, value in scores.items():
                scores[number] = value * factor * (1 + weights.speaker if number in said else 1)
            messages += [(-value, facts.key, number, session) for number, value in scores.items()]
            best = heapq.nlargest(5, scores.values())
            worth = self.whole[session] * factor + sum(value * weights.decay**at for at, value in enumerate(best))
            sessions.append((-worth, facts.key, session))
        return Ranked(
            tuple(Scored(one, number, -value) for value, _, number, one in heapq.nsmallest(limit, messages)),
            tuple((one, -value) for value, _, one in heapq.nsmallest(limit, sessions)),
            tuple(query.words),
        )

    def _nearness(self, moment: Moment | None, facts: SessionFacts) -> float:
        """Return 1 where a session falls into the month asked for, less where it falls into the next, else 0."""
        if moment is None:
            return 0.0
        best = 0.0
        for time in (facts.first, facts.last):
            if len(time) >= 7 and time[:4].isdigit() and time[5:7].isdigit():
                months = moment.months_until(int(time[:4]), int(time[5:7]))
                best = max(best, 1.0 if months == 0 else self.weights.next_month if months == 1 else 0.0)
        return best


class _Worths(dict[int, float]):
    """What a word is worth in a message, by the lower part of its posting; worked out once each."""

    def __init__(self, average: float, weights: Weights) -> None:
        super().__init__()
        self._average = average
        self._weights = weights

    def __missing__(self, low: int) -> float:
        value = saturated(low >> 8, _LENGTHS[low & 255], self._average, k1=self._weights.k1, b=self._weights.b)
        self[low] = value
        return value
