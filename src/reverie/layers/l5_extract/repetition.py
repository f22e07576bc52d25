"""Find wishes that a person repeats: a part of a message, said in another session in the same or other words.

A wish that holds for later work is said again where it was forgotten; a task is not. Two wordings are alike if they
share half of their stems; with an embedding also two sentences that are much nearer to each other than to any third.
Tasks and reports are repeated too. With an embedding both wordings must be nearer to reference sentences that express
standing wishes than to those about one task; without, the grammar of one of the two must make a rule of it, in the
languages whose grammar is known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import combinations, pairwise
from math import log
from operator import itemgetter, mul
from typing import Final, TypeAlias

from ...memories.recall.terms import tokens, without_noise
from ...text.directives import has_known_words, is_question, is_rule, typed_sentences
from ...values import record, replace
from .prompts import reference_sentences
from .sayings import TypedMessage, word_count

Embed: TypeAlias = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Returns a vector of length one for each text."""

_SENTENCE_END: Final = re.compile(r"(?<=[.!?…])[\"')\]”]*\s+|(?<=[。！？])[”」』]*\s*|\n+")
_CLAUSE_END: Final = re.compile(r"(?<=[,;:])\s+|(?<=[，；：、])|\s+[–—-]+\s+|" + _SENTENCE_END.pattern)
_LONGEST_RUN: Final = 5
"""The most clauses of a wish; one may stretch over sentences."""
_MOST_CLAUSES: Final = 30
_LEAST_WORDS: Final = 3
_LEAST_WEIGHT: Final = 2.25
"""The least weight of the stems that two wordings share; a stem of these two alone weighs one."""
_SYMBOL: Final = re.compile(r"[^\w\s.,;:!?()，；：、。！？…–—-]|_")
_MOST_SYMBOLS: Final = 0.1
"""The largest share of signs other than letters and punctuation in prose: program text has more."""
_NAME_PART: Final = re.compile(r"[_-]|(?<=[a-z])(?=[A-Z])")
_SAME_SHARE: Final = 0.5
_EQUAL_SHARE: Final = 0.9
_SAME_LEAD: Final = 0.3
"""The least cosine of two sentences in other words, less half of that of either to a sentence of a third message."""
_LEAST_LIKENESS: Final = 0.05
"""How much nearer both wordings are to a standing wish than to talk about a task."""
_QUOTE_CHARS: Final = 300
_RULE_WORDS: Final = 5
"""A message of fewer words is a command unless its grammar makes a rule of it."""


@record
class RepeatedWish:
    """A wish with the sentences of two sessions that say it, older first; each is a message's part."""

    quotes: tuple[TypedMessage, ...]
    text: str
    """The quote that says least beside the wish."""

    def quoted(self) -> str:
        """Return the quotes in one line, each with its day if it is known."""
        return "; ".join(_with_day(quote) for quote in self.quotes)


def _with_day(quote: TypedMessage) -> str:
    text = quote.text if len(quote.text) <= _QUOTE_CHARS else f"{quote.text[: _QUOTE_CHARS - 1]}…"
    return f"“{text}” ({quote.day.isoformat()})" if quote.day is not None else f"“{text}”"


@record
class _Phrase:
    """Some clauses of a message in a row, with the stems of their words."""

    saying: int
    start: int
    end: int
    text: str
    stems: frozenset[str]
    length: int
    is_sentence: bool

    def overlaps(self, other: _Phrase) -> bool:
        """Say whether two phrases share a part of one message."""
        return self.saying == other.saying and self.start < other.end and other.start < self.end


@record
class _Match:
    """A wording of a new sentence that is like one of an earlier sentence."""

    strength: float
    """The likeness, times the weight of the stems."""
    new: _Phrase
    other: _Phrase


def _share(some: frozenset[str], others: frozenset[str]) -> float:
    return 2 * len(some & others) / (len(some) + len(others)) if some and others else 0.0


def _wordings(number: int, text: str) -> list[_Phrase]:
    """Return each run of the clauses of a message that has enough words."""
    spans = _spans(text, _CLAUSE_END)[:_MOST_CLAUSES] if _is_prose(text) else []
    whole = set(_spans(text, _SENTENCE_END))
    found: list[_Phrase] = []
    for first, last in combinations(range(len(spans) + 1), 2):
        start, end = spans[first][0], spans[last - 1][1]
        length = word_count(text[start:end]) if last - first <= _LONGEST_RUN else 0
        if length >= _LEAST_WORDS and _is_prose(text[start:end]):
            stems, is_sentence = _stems(text[start:end]), (start, end) in whole
            found.append(_Phrase(number, start, end, text[start:end], stems, length, is_sentence))
    return found


def _is_prose(text: str) -> bool:
    return len(_SYMBOL.findall(text)) <= _MOST_SYMBOLS * len(text)


def _stems(text: str) -> frozenset[str]:
    """Return the stems of the words of a text that are not stop words, with the parts of each name."""
    return frozenset(without_noise(tokens(_NAME_PART.sub(" ", text))))


def _spans(text: str, ends: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return the places of the parts of a text between these ends, without empty ones."""
    cuts = [(0, 0), *(found.span() for found in ends.finditer(text)), (len(text), len(text))]
    return [(before[1], after[0]) for before, after in pairwise(cuts) if text[before[1] : after[0]].strip()]


def _quote(saying: TypedMessage, wording: _Phrase) -> TypedMessage:
    """Return the sentences of a message that a wording belongs to."""
    held = [span for span in _spans(saying.text, _SENTENCE_END) if span[0] < wording.end and span[1] > wording.start]
    return replace(saying, text=" ".join(saying.text[held[0][0] : held[-1][1]].split()))


def are_equal(one: str, other: str) -> bool:
    """Say whether two sentences have nearly the same stems."""
    return _share(_stems(one) or frozenset(tokens(one)), _stems(other) or frozenset(tokens(other))) >= _EQUAL_SHARE


class PastSayings:
    """The sentences of earlier sessions, to find those that a new session repeats."""

    def __init__(self, sayings: Iterable[TypedMessage] = (), *, embed: Embed | None = None) -> None:
        """Index sentences; ``embed`` also finds those in other words."""
        self._embed = embed
        self._sayings: list[TypedMessage] = []
        self._wordings: list[_Phrase] = []
        self._places: dict[str, list[int]] = {}
        self._spread: Counter[str] = Counter()
        self._vectors: dict[str, Sequence[float]] = {}
        self._likenesses: dict[str, float] = {}
        self.add(sayings)

    def add(self, sayings: Iterable[TypedMessage]) -> None:
        """Add the messages of a session."""
        for saying in sayings:
            self._spread.update(_stems(saying.text))
            for wording in () if _is_command(saying.text) else _wordings(len(self._sayings), saying.text):
                for stem in wording.stems:
                    self._places.setdefault(stem, []).append(len(self._wordings))
                self._wordings.append(wording)
            self._sayings.append(saying)

    def repeated(self, sayings: Sequence[TypedMessage]) -> list[RepeatedWish]:
        """Return the wishes in new messages of one session that a person expressed in an earlier session too."""
        new = [
            wording
            for number, one in enumerate(sayings)
            if not _is_command(one.text)
            for wording in _wordings(number, one.text)
        ]
        self._embed_all(new)
        matches = [match for one in new for match in self._matches(sayings[one.saying], one)]
        found: list[RepeatedWish] = []
        tried: list[_Phrase] = []
        taken: list[_Phrase] = []
        pairs: set[tuple[int, int]] = set()
        for match in sorted(matches, key=lambda match: -match.strength):
            if any(map(match.new.overlaps, tried)):
                continue
            tried.append(match.new)
            pair = (match.new.saying, match.other.saying)
            if pair not in pairs and not any(map(match.other.overlaps, taken)):
                taken.append(match.other)
                pairs.add(pair)
                found.append(self._wish(sayings[match.new.saying], match))
        return found

    def _matches(self, new: TypedMessage, wording: _Phrase) -> Iterator[_Match]:
        """Yield the wordings of earlier messages that say the same wish as one of a new message."""
        for match in (*self._by_words(wording), *self._by_meaning(new, wording)):
            earlier = self._sayings[match.other.saying]
            quotes = _quote(new, wording).text, _quote(earlier, match.other).text
            if not _is_copy(new, earlier) and self._is_wish(wording, match.other, *quotes):
                yield match

    def _by_words(self, wording: _Phrase) -> Iterator[_Match]:
        shared = Counter(place for stem in wording.stems for place in self._places.get(stem, ()))
        for place, count in shared.items():
            other = self._wordings[place]
            share = 2 * count / (len(wording.stems) + len(other.stems))
            if share >= _SAME_SHARE and (weight := self._weight(wording.stems & other.stems)) >= _LEAST_WEIGHT:
                yield _Match(share * weight, wording, other)

    def _is_wish(self, wording: _Phrase, other: _Phrase, *quotes: str) -> bool:
        """Say whether both wordings are nearer to wishes than to talk; without vectors, whether a quote is a rule.

        Two questions are no wish.
        """
        if all(map(is_question, quotes)):
            return False
        if self._embed is not None:
            return self._likeness_to_wishes(wording.text, other.text) >= _LEAST_LIKENESS
        return any(map(_is_rule, quotes)) or not any(map(has_known_words, quotes))

    def _by_meaning(self, new: TypedMessage, sentence: _Phrase) -> Iterator[_Match]:
        """Yield the nearest earlier sentence to a new one, if to neither of the two another is nearly as near."""
        near = self._nearest(new.session, sentence)
        for cosine, other in near[:1]:
            rivals = near[1:] + self._nearest(self._sayings[other.saying].session, other)
            if cosine - max((rival for rival, _ in rivals), default=0.0) / 2 >= _SAME_LEAD:
                yield _Match(cosine * min(self._weight(sentence.stems), self._weight(other.stems)), sentence, other)

    def _nearest(self, session: str, sentence: _Phrase) -> list[tuple[float, _Phrase]]:
        """Return the two earlier messages of other sessions that have the nearest sentences, each with its sentence."""
        vector = self._vectors.get(sentence.text) if sentence.is_sentence else None
        best: dict[int, tuple[float, _Phrase]] = {}
        for other in self._wordings if vector is not None else ():
            if other.is_sentence and self._sayings[other.saying].session != session:
                cosine = _cosine(vector, self._vectors.get(other.text))
                if cosine > best.get(other.saying, (0.0,))[0]:
                    best[other.saying] = (cosine, other)
        return nlargest(2, best.values(), key=itemgetter(0))

    def _likeness_to_wishes(self, *texts: str) -> float:
        """Return how much nearer each of these texts is to a standing wish than to talk about one task, at least."""
        halves = reference_sentences()
        self._embed_missing((*halves[0], *halves[1], *texts))
        for text in texts:
            if text not in self._likenesses:
                vector = self._vectors[text]
                wish, talk = (max(_cosine(vector, self._vectors[one]) for one in half) for half in halves)
                self._likenesses[text] = wish - talk
        return min(self._likenesses[text] for text in texts)

    def _weight(self, stems: Iterable[str]) -> float:
        """Return the number of these stems, those that many messages have counted for less than one."""
        rare = log((len(self._sayings) + 2) / 2.5)
        return sum(min(1.0, log((len(self._sayings) + 2) / (self._spread[stem] + 1.5)) / rare) for stem in stems)

    def _embed_all(self, new: Sequence[_Phrase]) -> None:
        if self._embed is None or not new or not self._wordings:
            return
        every = (one for one in (*new, *self._wordings) if one.is_sentence)
        self._embed_missing(one.text for one in every if self._weight(one.stems) >= _LEAST_WEIGHT)

    def _embed_missing(self, texts: Iterable[str]) -> None:
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if missing and self._embed is not None:
            self._vectors.update(zip(missing, self._embed(missing), strict=True))

    def _wish(self, new: TypedMessage, match: _Match) -> RepeatedWish:
        said = [
            (_quote(self._sayings[match.other.saying], match.other), match.other),
            (_quote(new, match.new), match.new),
        ]
        said.sort(key=lambda pair: pair[0].at)
        clearest = min(
            reversed(said), key=lambda pair: (is_question(pair[0].text), word_count(pair[0].text) - pair[1].length)
        )
        return RepeatedWish(tuple(quote for quote, _ in said), clearest[0].text)


def _cosine(one: Sequence[float] | None, other: Sequence[float] | None) -> float:
    return 0.0 if one is None or other is None else sum(map(mul, one, other))


def _is_copy(new: TypedMessage, earlier: TypedMessage) -> bool:
    """Say whether two messages are of one session, or one message in two logs: a fork or a resumed recording."""
    is_same_time = new.at == earlier.at > 0 and new.text == earlier.text
    return new.session == earlier.session or new.message == earlier.message or is_same_time


def _is_command(text: str) -> bool:
    """Say whether a message has few words, and none that makes a rule of it: "run the tests"."""
    return word_count(text) < _RULE_WORDS and not _is_rule(text)


def _is_rule(text: str) -> bool:
    return any(map(is_rule, typed_sentences(text)))
