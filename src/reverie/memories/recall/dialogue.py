"""Finding messages in dialogues, with no model: a message is found by its words, its neighbours and its session.

What answers a question is often not what has its words: the question a reply answers stands before it, and a
session has one subject for a while. So a message takes over part of what its neighbours are worth, and part of what its
session is worth as one text. A month in the question favours sessions of that month and the next; a speaker's name
favours what that speaker said; words that the best messages share find more sessions of the same subject.
The constants were chosen by leaving out one conversation at a time (``benchmarks/recall.py``).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...values import record, replace
from .query import Dialogues, Query, SessionFacts, Spread, Weights, affordable
from .terms import FUNCTION_WORDS, Moment, idf, saturated, tokens

__all__ = ["Dialogues", "Ranked", "Scored", "SessionFacts", "Spread", "Weights", "packed", "rank", "size_code"]

_SHIFT: Final = 16
_LOW: Final = (1 << _SHIFT) - 1
_LENGTHS: Final = tuple(2 ** (code / 8) - 1 for code in range(256))


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
    query = Query(text, source, weights)
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
                max_postings=weights.kept_postings,
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

    def shared_words(self, query: Query) -> dict[str, float]:
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
        fitting = set(affordable([word for _, word in telling], near, weights.max_postings))
        return {
            word: weights.feedback * value / most for value, word in telling if word in fitting and word not in asked
        }

    def ranked(self, query: Query, limit: int) -> Ranked:
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
