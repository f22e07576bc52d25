"""Find wishes that a person repeats: a part of a message, said in another session in the same or other words.

A wish that holds for later work is said again where it was forgotten; a task is not. Two wordings are alike if they
share half of their stems; tasks and reports are repeated too, so the grammar of one of the two must make a rule of it,
in the languages whose grammar is known. With an embedding, sentences in other words are found as well, without a word
list (``paraphrases.py``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from math import exp, log
from typing import Final

from ...memories.recall.terms import tokens, without_noise
from ...text.directives import has_known_words, is_question, is_rule, typed_sentences
from ...values import record, replace
from .paraphrases import Embed, Paraphrases, Sentence
from .prompts import ReferenceSentences, reference_sentences
from .sayings import TypedMessage, word_count

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
_QUOTE_CHARS: Final = 300
_INNER_MARKS: Final = str.maketrans("“”„", "‘’‚")
"""Marks of quotes inside a quote, which would end it: a date behind them would count as the writer's own."""
_RULE_WORDS: Final = 5
"""A message of fewer words is a command unless its grammar makes a rule of it."""


@record
class RepeatedWish:
    """A wish with the sentences of two sessions that say it, older first; each is a message's part."""

    quotes: tuple[TypedMessage, ...]
    text: str
    """The quote that is most certainly a wish, or says least beside it."""

    def quoted(self) -> str:
        """Return the quotes in one line, each with its day if it is known."""
        return "; ".join(_with_day(quote) for quote in self.quotes)


def _with_day(quote: TypedMessage) -> str:
    text = " ".join(quote.text.split()).translate(_INNER_MARKS)
    text = text if len(text) <= _QUOTE_CHARS else f"{text[: _QUOTE_CHARS - 1]}…"
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
    """Above one by words: the share of stems, times their weight. Below one by meaning: the certainty."""
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

    def __init__(
        self,
        sayings: Iterable[TypedMessage] = (),
        *,
        embed: Embed | None = None,
        references: ReferenceSentences | None = None,
    ) -> None:
        """Index sentences; ``embed`` also finds those in other words, with these reference sentences."""
        self._paraphrases = Paraphrases(embed, references or reference_sentences()) if embed is not None else None
        self._sayings: list[TypedMessage] = []
        self._wordings: list[_Phrase] = []
        self._sentences: list[_Phrase] = []
        self._places: dict[str, list[int]] = {}
        self._spread: Counter[str] = Counter()
        self.add(sayings)

    def add(self, sayings: Iterable[TypedMessage]) -> None:
        """Add the messages of a session."""
        for saying in sayings:
            self._spread.update(_stems(saying.text))
            for wording in () if _is_command(saying.text) else _wordings(len(self._sayings), saying.text):
                for stem in wording.stems:
                    self._places.setdefault(stem, []).append(len(self._wordings))
                self._wordings.append(wording)
                if wording.is_sentence and self._paraphrases is not None:
                    self._sentences.append(wording)
                    self._paraphrases.add([_sentence(saying, wording)])
            self._sayings.append(saying)

    def repeated(self, sayings: Sequence[TypedMessage]) -> list[RepeatedWish]:
        """Return the wishes in new messages of one session that a person expressed in an earlier session too."""
        new = [
            wording
            for number, one in enumerate(sayings)
            if not _is_command(one.text)
            for wording in _wordings(number, one.text)
        ]
        matches = [match for match in self._matches(sayings, new) if self._is_wish(sayings[match.new.saying], match)]
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

    def _matches(self, sayings: Sequence[TypedMessage], new: Sequence[_Phrase]) -> Iterator[_Match]:
        """Yield the wordings of earlier messages that are like one of a new message."""
        for wording in new:
            yield from self._by_words(wording)
        if self._paraphrases is not None:
            asked = [wording for wording in new if wording.is_sentence]
            sentences = [_sentence(sayings[wording.saying], wording) for wording in asked]
            for certainty, at, place in self._paraphrases.same_wishes(sentences):
                yield _Match(1 / (1 + exp(-certainty)), asked[at], self._sentences[place])

    def _by_words(self, wording: _Phrase) -> Iterator[_Match]:
        shared = Counter(place for stem in wording.stems for place in self._places.get(stem, ()))
        for place, count in shared.items():
            other = self._wordings[place]
            share = 2 * count / (len(wording.stems) + len(other.stems))
            if share >= _SAME_SHARE and (weight := self._weight(wording.stems & other.stems)) >= _LEAST_WEIGHT:
                yield _Match(share * weight, wording, other)

    def _is_wish(self, new: TypedMessage, match: _Match) -> bool:
        """Say whether a match is of two messages, no two questions, and by its grammar a rule if it is one by words.

        With vectors both wordings must be rules, since the others are found by meaning, but not in questions alone.
        """
        earlier = self._sayings[match.other.saying]
        quotes = _quote(new, match.new).text, _quote(earlier, match.other).text
        if _is_copy(new, earlier) or all(map(is_question, quotes)):
            return False
        if match.strength < 1:
            return not any(all(map(is_question, typed_sentences(said.text))) for said in (new, earlier))
        if not any(map(has_known_words, quotes)):
            return True
        return (any if self._paraphrases is None else all)(map(_is_rule, quotes))

    def _weight(self, stems: Iterable[str]) -> float:
        """Return the number of these stems, those that many messages have counted for less than one."""
        rare = log((len(self._sayings) + 2) / 2.5)
        return sum(min(1.0, log((len(self._sayings) + 2) / (self._spread[stem] + 1.5)) / rare) for stem in stems)

    def _wish(self, new: TypedMessage, match: _Match) -> RepeatedWish:
        earlier = self._sayings[match.other.saying]
        said = [(_quote(earlier, match.other), match.other, earlier), (_quote(new, match.new), match.new, new)]
        said.sort(key=lambda one: one[0].at)

        def vagueness(one: tuple[TypedMessage, _Phrase, TypedMessage]) -> tuple[bool, float]:
            quote, wording, saying = one
            if match.strength < 1 and self._paraphrases is not None:
                return is_question(quote.text), -self._paraphrases.wish_probability(_sentence(saying, wording))
            return is_question(quote.text), word_count(quote.text) - wording.length

        return RepeatedWish(tuple(one[0] for one in said), min(reversed(said), key=vagueness)[0].text)


def _sentence(saying: TypedMessage, wording: _Phrase) -> Sentence:
    return Sentence(wording.text, saying.text, saying.session, saying.opens)


def _is_copy(new: TypedMessage, earlier: TypedMessage) -> bool:
    """Say whether two messages are of one session, or one message in two logs: a fork or a resumed recording."""
    is_same_time = new.at == earlier.at > 0 and new.text == earlier.text
    return new.session == earlier.session or new.message == earlier.message or is_same_time


def _is_command(text: str) -> bool:
    """Say whether a message has few words, and none that makes a rule of it: "run the tests"."""
    return word_count(text) < _RULE_WORDS and not _is_rule(text)


def _is_rule(text: str) -> bool:
    return any(map(is_rule, typed_sentences(text)))
