"""Search memories by their words, without a model or a download, over all memories.

A word in a name or description counts more than one in the text, and a rare word more than a common one. Of two equal
matches the newer one ranks slightly higher; types that decay fast, such as deadlines, lose rank sooner.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from ...lazy import pattern
from ...values import record, replace
from ..rules.types import TYPES
from ..store.records import MemoryRecord
from .terms import K1, B, affordable, idf, pieces_of, terms, tokens, without_noise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_DAY_SECONDS: Final = 86_400.0
_MIN_LIKENESS: Final = 0.2
_SENTENCE_END: Final = pattern(r"[.!?…]\s+|[。！？]|\n+")


@record
class MemoryWeights:
    """The constants by which memories are ranked: weights of their parts, bonus of new ones, search budget."""

    name: int = 3
    description: int = 2
    body: int = 1
    recency: float = 0.1
    """The bonus of the newest memory over a very old one."""
    fresh_days: float = 365.0
    """The age in days at which half of the bonus is left."""
    decaying_fresh_days: float = 60.0
    """The age in days at which half of the bonus is left, for types that decay fast."""
    max_postings: int = 2_000
    """Words are looked up rarest first until this many memories were read."""


@record
class Match:
    """A memory that matches a question, with its score and the words that matched."""

    file: str
    score: float
    words: tuple[str, ...]
    """The words of the question that the memory contains."""
    strength: float
    """The summed weight of the matched words; a word that no other memory has adds 1."""
    sentences: tuple[tuple[int, float, float], ...] = ()
    """For each sentence of the question with two of the words: their number, strength, and share of the sentence's."""
    passages: tuple[tuple[float, float], ...] = ()
    """For each passage of the question: the strength of its words, and that of the other memory with the most."""
    likeness: float = 0.0
    """The cosine of the vectors of question and memory; 0 without embeddings."""
    certainty: float | None = None
    """The likeness less half of the nearest other memory's, plus half of the question's specificity.

    None without embeddings."""


@record
class MemoryWords:
    """The words of one memory as the index holds them, with weighted counts."""

    counts: Mapping[str, int]
    """The weighted count of each word in the whole memory."""
    length: int
    """The sum of all counts, without stop words."""


class _IndexedMemory:
    __slots__ = ("decays", "file", "length", "modified", "words")

    def __init__(self, memory: MemoryRecord, words: MemoryWords) -> None:
        self.file = memory.file
        self.words = tuple(words.counts)
        self.length = words.length
        self.modified = _seconds(memory.modified)
        kind = TYPES.get(memory.type)
        self.decays = kind is not None and kind.decays


def _counted(memory: MemoryRecord, weights: MemoryWeights) -> MemoryWords:
    """Return the words of a memory with their weighted counts."""
    counts: Counter[str] = Counter()
    for text, weight in ((memory.name, weights.name), (memory.description, weights.description)):
        for word, count in Counter(tokens(text)).items():
            counts[word] += count * weight
    for word in tokens(memory.file.rsplit("/", 1)[-1].removesuffix(".md")):
        counts[word] = max(counts[word], 1)
    for word, count in Counter(tokens(memory.body)).items():
        counts[word] += count * weights.body
    return MemoryWords(counts, sum(counts[word] for word in without_noise(counts)))


class MemoryIndex:
    """An index of memories in this process for search, updated one memory at a time."""

    def __init__(self, memories: Iterable[MemoryRecord] = (), *, weights: MemoryWeights | None = None) -> None:
        self._weights = weights or MemoryWeights()
        self._numbers: dict[str, int] = {}
        self._shelved: dict[int, _IndexedMemory] = {}
        self._postings: dict[str, dict[int, int]] = {}
        self._lengths: dict[int, int] = {}
        self._length = 0
        self._latest: float | None = None
        self._next = 0
        for memory in memories:
            self.put(memory)

    def __len__(self) -> int:
        return len(self._shelved)

    @property
    def files(self) -> Collection[str]:
        """The files of the indexed memories."""
        return self._numbers.keys()

    def put(self, memory: MemoryRecord) -> None:
        """Index a memory's name, description, file name and body, replacing the earlier version of its file."""
        self.put_words(memory, self.words_of(memory))

    def words_of(self, memory: MemoryRecord) -> MemoryWords:
        """Return the words by which a memory would be indexed, for a cache; the index stays unchanged."""
        return _counted(memory, self._weights)

    def put_words(self, memory: MemoryRecord, words: MemoryWords) -> None:
        """Index a memory by given words, perhaps only those that a query needs, replacing its earlier version."""
        self.drop(memory.file)
        shelved = _IndexedMemory(memory, words)
        number, self._next = self._next, self._next + 1
        self._numbers[memory.file] = number
        self._shelved[number] = shelved
        self._lengths[number] = shelved.length
        self._length += shelved.length
        self._latest = None
        for word, count in words.counts.items():
            self._postings.setdefault(word, {})[number] = count

    def drop(self, file: str) -> bool:
        """Remove a memory from the index by its file, and return whether it was indexed."""
        number = self._numbers.pop(file, None)
        if number is None:
            return False
        shelved = self._shelved.pop(number)
        self._length -= self._lengths.pop(number)
        self._latest = None
        for word in shelved.words:
            having = self._postings[word]
            del having[number]
            if not having:
                del self._postings[word]
        return True

    def search(
        self, query: str, *, limit: int = 10, now: datetime | None = None, without: Collection[str] = ()
    ) -> list[Match]:
        """Return at most ``limit`` memories that best match a question, best first, except files in ``without``.

        ``now`` is the time from which recency counts; by default the newest memory's.
        """
        found = self._affordable(query)
        scores = self._scores(found)
        if without:
            hidden = {self._numbers[file] for file in without if file in self._numbers}
            scores = {number: value for number, value in scores.items() if number not in hidden}
        if not scores or limit < 1:
            return []
        newest = now.timestamp() if now is not None else self._newest()
        # The bonus for new memories is small: a memory further behind than that cannot be among the best.
        last = min(heapq.nlargest(limit, scores.values())) / (1.0 + self._weights.recency)
        shelved = self._shelved
        best = heapq.nsmallest(
            limit,
            (
                (-value * self._freshness(one := shelved[number], newest), -one.modified, one.file, number)
                for number, value in scores.items()
                if value >= last
            ),
        )
        memories, rarest = len(shelved), idf(len(shelved), 1)
        weights = {word: idf(memories, len(self._postings[word])) / rarest for word in found}
        sentences = [words for part in _SENTENCE_END.split(query) if len(words := terms(part)) > 1]
        passages = [self._leads(terms(part), weights) for part in pieces_of(query)]
        matches: list[Match] = []
        for value, _, file, number in best:
            told = {word: weight for word, weight in weights.items() if number in self._postings[word]}
            parts = tuple(_shares(told, weights, sentences))
            leads = tuple(one[number] for one in passages if number in one)
            matches.append(Match(file, -value, tuple(told), sum(told.values()), parts, leads))
        return matches

    def _scores(self, words: list[str]) -> dict[int, float]:
        """Return the scores, by number, of the memories that have at least one of the words."""
        lengths, memories = self._lengths, len(self._shelved)
        plain = K1 * (1 - B)
        slope = K1 * B * memories / (self._length or 1)
        scores: dict[int, float] = {}
        for word in words:
            having = self._postings[word]
            tells = idf(memories, len(having)) * (K1 + 1)
            for number, count in having.items():
                value = tells * count / (count + plain + slope * lengths[number])
                scores[number] = scores.get(number, 0.0) + value
        return scores

    def _leads(self, words: Iterable[str], weights: Mapping[str, float]) -> dict[int, tuple[float, float]]:
        """Return, by number, the strength of these words in each memory and in the other memory with the most."""
        strengths: dict[int, float] = {}
        for word in words:
            for number in self._postings[word] if word in weights else ():
                strengths[number] = strengths.get(number, 0.0) + weights[word]
        first, second, *_ = [*heapq.nlargest(2, strengths.values()), 0.0, 0.0]
        return {number: (own, second if own == first else first) for number, own in strengths.items()}

    def _newest(self) -> float:
        if self._latest is None:
            self._latest = max(one.modified for one in self._shelved.values())
        return self._latest

    def _affordable(self, query: str) -> list[str]:
        """Return the words of a query to look up, rarest first, within the budget; empty if the index has none."""
        having = {word: len(self._postings[word]) for word in terms(query) if word in self._postings}
        return affordable(having, self._weights.max_postings)

    def _freshness(self, one: _IndexedMemory, newest: float) -> float:
        days = max(0.0, newest - one.modified) / _DAY_SECONDS
        fresh_days = self._weights.decaying_fresh_days if one.decays else self._weights.fresh_days
        return 1.0 + self._weights.recency / (1.0 + days / fresh_days)


def _shares(
    told: Mapping[str, float], weights: Mapping[str, float], sentences: Iterable[Sequence[str]]
) -> Iterator[tuple[int, float, float]]:
    for words in sentences:
        matched = [told[word] for word in words if word in told]
        if len(matched) > 1:
            yield len(matched), sum(matched), sum(matched) / sum(weights.get(word, 1.0) for word in words)


def fused(
    matches: Iterable[Match],
    likenesses: Mapping[str, float],
    limit: int,
    *,
    without: Collection[str] = (),
    specificity: float = 0.0,
) -> list[Match]:
    """Return at most ``limit`` matches by words and by meaning, best first; a rare word counts as a tenth of likeness.

    A memory that shares no word with the question is a match from a likeness of a fifth on. A memory whose file is
    in ``without`` is left out, but the others are still compared with it. ``specificity`` is the question's.
    """
    first, second, *_ = [*heapq.nlargest(2, likenesses.values()), 0.0, 0.0]
    by_words = {match.file: match for match in matches}
    found: list[Match] = []
    for file in (by_words.keys() | likenesses.keys()) - set(without):
        match, likeness = by_words.get(file), likenesses.get(file, 0.0)
        if match is None and likeness < _MIN_LIKENESS:
            continue
        match = match or Match(file, 0.0, (), 0.0)
        rival = max(0.0, second if likeness == first else first)
        certainty = likeness + (specificity - rival) / 2 if file in likenesses else None
        found.append(replace(match, score=likeness + match.strength / 10, likeness=likeness, certainty=certainty))
    return sorted(found, key=lambda match: (-match.score, match.file))[:limit]


def _seconds(time: str) -> float:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
