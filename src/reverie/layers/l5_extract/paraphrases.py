"""Judge by vectors how certain two sentences of a person express the same standing wish.

The cosine of the two counts as far as it exceeds those of each to its nearest others. The reference sentences add a
probability: kinds of wishes, each in some wordings, and talk about tasks. A sentence is of each kind with a probability
by its cosines to the wordings, so two sentences that share few words are of one kind if both are near to its wordings.
A sentence counts together with its message, which says what "that" is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest
from math import exp, log, sqrt
from operator import add, mul
from typing import Final, TypeAlias

from ...values import record
from .prompts import ReferenceSentences

Vector: TypeAlias = Sequence[float]
Embed: TypeAlias = Callable[[Sequence[str]], Sequence[Vector]]
"""Returns a vector of length one for each text; an empty one if it has none."""

_SHARPNESS: Final = 20.0
"""The certainty that a cosine of one is worth, in nats."""
_RIVALS: Final = 3
"""The nearest others that a likeness is compared with."""
_OPENING: Final = 2.0
"""The certainty that is lost if a sentence opens a session: there a person states a task."""
_LEAST_CERTAINTY: Final = -2.8


@record
class Sentence:
    """A sentence that a person typed: its message, and whether that opened the session."""

    text: str
    message: str
    session: str
    opens: bool


@record
class _Profile:
    """A sentence's vector, its likeness to the nearest tasks, and its probability for each kind of wish."""

    vector: Vector
    tasks: tuple[float, ...]
    kinds: dict[int, float]

    @property
    def wish(self) -> float:
        """The probability that it is a wish of any kind."""
        return sum(self.kinds.values())


class Paraphrases:
    """The sentences of earlier sessions by their vectors."""

    def __init__(self, embed: Embed, references: ReferenceSentences) -> None:
        self._embed, self._references = embed, references
        self._vectors: dict[str, Vector] = {}
        self._profiles: dict[tuple[str, str], _Profile] = {}
        self._past: list[Sentence] = []

    def add(self, sentences: Iterable[Sentence]) -> None:
        """Add sentences of an earlier session."""
        self._past.extend(sentences)

    def same_wishes(self, new: Sequence[Sentence]) -> Iterator[tuple[float, int, int]]:
        """Yield the certainty of each pair of a new and an earlier sentence that express the same wish, with places."""
        if not new or not self._past:
            return
        self._embed_missing([*new, *self._past])
        vectors = [self._vector(one) for one in self._past]
        for at, one in enumerate(new):
            if not (vector := self._vector(one)):
                continue
            cosines = [_cosine(vector, other) for other in vectors]
            profile = self._profile(one)
            near = self._nearest(one, profile, zip(self._past, cosines, strict=True))
            for place, (other, cosine) in enumerate(zip(self._past, cosines, strict=True)):
                lost = _OPENING * (one.opens + other.opens)
                most = _SHARPNESS * (cosine - (near + cosine / _RIVALS) / 2) + log(profile.wish) - lost
                if one.session == other.session or not vectors[place] or most < _LEAST_CERTAINTY:
                    continue
                kind = _same_kind(profile, self._profile(other))
                certainty = _SHARPNESS * (cosine - near / 2) + log(kind) - lost
                if certainty - _SHARPNESS * cosine / _RIVALS / 2 >= _LEAST_CERTAINTY:
                    certainty -= _SHARPNESS * self._rivals(place, vectors, new) / 2
                    if certainty >= _LEAST_CERTAINTY:
                        yield certainty, at, place

    def wish_probability(self, one: Sentence) -> float:
        """Return the probability that a sentence of a pair is a wish of any kind."""
        return self._profile(one).wish

    def _rivals(self, place: int, vectors: Sequence[Vector], new: Sequence[Sentence]) -> float:
        one, vector = self._past[place], vectors[place]
        others = [*zip(self._past, vectors, strict=True), *((other, self._vector(other)) for other in new)]
        return self._nearest(one, self._profile(one), ((other, _cosine(vector, theirs)) for other, theirs in others))

    def _nearest(self, one: Sentence, profile: _Profile, cosines: Iterable[tuple[Sentence, float]]) -> float:
        """Return the mean likeness of a sentence to the nearest tasks and messages of other sessions."""
        best: defaultdict[str, float] = defaultdict(float)
        for other, cosine in cosines:
            if other.session != one.session and other.message != one.message and cosine > best[other.message]:
                best[other.message] = cosine
        return sum(nlargest(_RIVALS, (*profile.tasks, *best.values()))) / _RIVALS

    def _profile(self, one: Sentence) -> _Profile:
        key = (one.text, one.message)
        if key not in self._profiles:
            vector, odds = self._vector(one), dict[int, float]()
            for kind, wordings in enumerate(self._references.wishes):
                odds[kind] = sum(exp(_SHARPNESS * _cosine(vector, self._vectors[text])) for text in wordings)
            tasks = [_cosine(vector, self._vectors[text]) for text in self._references.tasks]
            total = sum(odds.values()) + sum(exp(_SHARPNESS * cosine) for cosine in tasks)
            kinds = {kind: value / total for kind, value in odds.items()}
            self._profiles[key] = _Profile(vector, tuple(nlargest(_RIVALS, tasks)), kinds)
        return self._profiles[key]

    def _vector(self, one: Sentence) -> Vector:
        """Return the middle of the vectors of a sentence and of its message."""
        key = f"{one.text}\0{one.message}"
        if key not in self._vectors:
            parts = self._vectors[one.text], self._vectors[one.message]
            both = tuple(map(add, *parts)) if all(parts) else ()
            length = sqrt(_cosine(both, both))
            self._vectors[key] = tuple(value / length for value in both) if length else ()
        return self._vectors[key]

    def _embed_missing(self, sentences: Iterable[Sentence]) -> None:
        said = (text for one in sentences for text in (one.text, one.message))
        missing = [text for text in dict.fromkeys((*self._references.all, *said)) if text not in self._vectors]
        if missing:
            self._vectors.update(zip(missing, self._embed(missing), strict=True))


def _same_kind(one: _Profile, other: _Profile) -> float:
    return sum(value * other.kinds[kind] for kind, value in one.kinds.items())


def _cosine(one: Vector, other: Vector) -> float:
    return sum(map(mul, one, other))
