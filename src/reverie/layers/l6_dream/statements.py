"""What a memory states, taken apart: its name, its description, its claims and the reasons it gives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from ...memories.store.records import MemoryRecord
from ...values import record
from .labels import without_label
from .lemmas import base_of
from .lexicon import kind_of, normal
from .words import Word, weight_of, words_of

__all__ = ["Pool", "Profile", "Statement", "profile_of", "statements_of"]

_FEW: Final = 3
_OF_PERSONS: Final = frozenset(map(normal, ("user", "live", "work", "name", "from")))
_WHERE_SOMEBODY_IS: Final = frozenset(map(normal, ("live", "work")))
_AT: Final = frozenset(map(normal, ("at", "in", "for", "as")))
_WHOSE: Final = frozenset(map(normal, ("a", "an", "the", "user", "he", "she", "they", "we", "i", "always", "please")))
_COMPOUND_CHARS: Final = 30
_NEAR_CHARS: Final = 40
_MAX_CHARS: Final = 1_000
_SHORTENED: Final = "Dr|Mr|Mrs|Ms|Prof|St|No|vs|approx|ca|Inc|Ltd|Jr|Sr|Nr|Fig|Eq|Vol|cf|[A-Z]"
_NO_END: Final = "".join(rf"(?<!\b{short}\.)" for short in _SHORTENED.split("|"))
"""What ends in a full stop and ends no sentence: "by Dr. Ruiz"."""
_SENTENCE: Final = re.compile(
    rf"(?<=[.!?]){_NO_END}[\"”')]*\s+(?=[^\sa-z])"
    r"|\n+\s*(?:[-*+]\s+|\d+[.)]\s+|>\s*)?|(?<!\s)\s+—\s+"
)
_REASONS: Final = re.compile(
    r"^[ \t]*\*\*(?:Why|How to apply|How|When|Reason|Context)\b[^*]*\*\*:?", re.MULTILINE | re.IGNORECASE
)
_MARKS: Final = re.compile(r"\*\*|__(?=\w)|(?<=\w)__|^#{1,6}\s+|^[ \t]*[-*+][ \t]+|^>\s?", re.MULTILINE)
_LINKED: Final = re.compile(r"\[([^\[\]\n]*)\]\((?:[^()\n]|\([^()\n]*\))*\)")
_CAMEL: Final = re.compile(r"\b[a-z]+(?:[A-Z][a-z0-9]*)+\b|\b(?:[A-Z][a-z0-9]+){2,}\b")
_DEFINED: Final = re.compile(r"^\W*(?!(?:It|He|She|This|That|There|Here|What|Who)\b)([A-Z][a-z]+) (?:is|was|has)\b")
_SUBJECT_NAME: Final = re.compile(r"^\W*([A-Z][a-z]+(?<!s))(?: [A-Z][a-z]+)? (?:is|was|has|[a-z]{3,}(?<!s)s)\b")
_POSSESSOR: Final = re.compile(r"^\W*(?!(?:It|That|Let|Here|There|What|Who|He|She)\b)([A-Z][a-z]+)['’]s\b")
_OPENS: Final = re.compile(r"(?:^|[:—–(\"“])\W*\Z")
_ADDRESSING: Final = re.compile(
    r"^(?:please |note(?: that)?[,:]? |remember(?: that)?[,:]? |reminder[,:] |important[,:]? |fyi[,:]? |nb[,:] "
    r"|tl;dr[,:]? |keep in mind(?: that)?[,:]? |be aware(?: that)? |for the record[,:]? |heads[- ]up[,:]? "
    r"|tip[,:] |rule[,:] )+",
    re.IGNORECASE,
)


class Pool:
    """The words of a statement or a memory, as another is held against them."""

    def __init__(self, words: Iterable[Word]) -> None:
        listed = list(words)
        self.bases = frozenset(word.base for word in listed)
        joined = list(_joined(listed))
        self.parts = frozenset((*(part for word in listed for part in word.parts), *(both for _, _, both in joined)))
        self.meant: dict[str, set[str]] = {}
        self.counts = Counter(word.form for word in listed)
        self.compounds: dict[str, set[str]] = {}
        for one, other, both in joined:
            self.compounds.setdefault(one.base, set()).add(both)
            self.compounds.setdefault(other.base, set()).add(both)
        for word in listed:
            self.meant.setdefault(word.form, set()).add(word.base)

    def covers(self, word: Word, own: Pool) -> bool:
        """Say whether a word of another pool stands here: itself, or another word for it that the other lacks."""
        if word.base in self.bases:
            return True
        if word.base in self.parts or not self.bases.isdisjoint(own.compounds.get(word.base, ())):
            return True
        if word.parts and not word.whole and all(part in self.parts or part in self.bases for part in word.parts):
            return True
        others = self.meant.get(word.form)
        if others is None or own.counts[word.form] > self.counts[word.form]:
            return False
        if word.names_thing and not any(_is_short_for(word.base, other) for other in others):
            return False
        return not others <= own.bases


def _is_short_for(one: str, other: str) -> bool:
    """Say whether one of two words is the other cut short: auth and authentication, db and database."""
    short, long = sorted((one, other), key=len)
    letters = iter(long)
    return short[:1] == long[:1] and all(letter in letters for letter in short)


def _joined(words: list[Word]) -> Iterable[tuple[Word, Word, str]]:
    """Yield two neighbours each and what they are when they are written as one."""
    for one, other in pairwise(words):
        pair = f"{one.shown}{other.shown}"
        if pair.isalpha() and len(pair) < _COMPOUND_CHARS:
            yield one, other, base_of(pair)


class Statement:
    """One sentence."""

    def __init__(self, text: str, words: Sequence[Word], role: str = "claim") -> None:
        self.text = " ".join(text.split())
        self.role = role
        self.every = tuple(words)
        self.words = tuple(word for word in words if not word.light)
        self.weights = {word.form: weight_of(word) for word in self.words}
        self.forms = frozenset(self.weights)
        self.weight = sum(self.weights.values())

    @cached_property
    def bases(self) -> tuple[str, ...]:
        """The stems of all its words, those of grammar with them."""
        return tuple(word.base for word in self.every)

    @cached_property
    def slots(self) -> frozenset[str]:
        """The kinds of the values it has."""
        return frozenset(word.slot for word in self.words if word.slot)

    def opens(self, other: Statement) -> bool:
        """Say whether it is no more than the beginning of another, cut off: a heading made from its text."""
        return len(self.bases) > _FEW and self.bases == other.bases[: len(self.bases)]

    @cached_property
    def of_person(self) -> frozenset[str]:
        """What a short statement says of somebody with one thing or name in it: lives, works, is called."""
        if len(self.words) >= _FEW:
            return frozenset()
        forms = frozenset(word.form for word in self.every)
        if any(word.kind == "name" for word in self.words):
            return forms & _OF_PERSONS
        where = forms & _OF_PERSONS & _WHERE_SOMEBODY_IS and not any(word.slot for word in self.words)
        return (forms & _OF_PERSONS) | (forms & _AT) if where and forms & _AT else frozenset()

    @cached_property
    def frame(self) -> tuple[str, frozenset[str]] | None:
        """The words of grammar around the one value that a short statement has, and the kind of that value."""
        if len(self.words) != 1 or not kind_of(self.words[0].form):
            return None
        return self.words[0].slot, frozenset(word.form for word in self.every if word.light) - _WHOSE

    @cached_property
    def pool(self) -> Pool:
        """The words, as another statement is held against them."""
        return Pool(self.every)


@record
class Profile:
    """All that a memory states."""

    file: str
    type: str
    name: Statement
    description: tuple[Statement, ...]
    claims: tuple[Statement, ...]
    reasons: tuple[Statement, ...]
    pool: Pool
    claimed: Pool
    """What stands in the claims alone."""


def profile_of(memory: MemoryRecord) -> Profile:
    """Take a memory apart."""
    body = memory.body
    found = _REASONS.search(body)
    main, rest = (body[: found.start()], body[found.start() :]) if found else (body, "")
    names = _names(f"{memory.description}\n{body}")
    name = _statement(without_label(_whole(memory.name, main), f"{memory.description}\n{body}"), names, "name")
    hook = without_label(_whole(memory.description, main), body)
    description = tuple(statements_of(hook, names, "description"))
    claims = tuple(statements_of(main, names))
    if not claims:
        claims = tuple(Statement(one.text, one.every) for one in description)
    reasons = tuple(statements_of(_REASONS.sub("\n", rest), names, "reason"))
    return Profile(
        memory.file,
        memory.type,
        name,
        description,
        claims,
        reasons,
        Pool(word for one in (name, *description, *claims) for word in one.every),
        Pool(word for one in claims for word in one.every),
    )


def _whole(heading: str, body: str) -> str:
    """Return a heading without the word in which it was cut off, where it is the beginning of the text."""
    cut, text = " ".join(heading.split()).rstrip("….").rstrip(), " ".join(body.split())
    if text.startswith(cut) and text[len(cut) : len(cut) + 1].strip(" .,;:!?"):
        return cut.rpartition(" ")[0]
    return heading


def statements_of(text: str, names: frozenset[str] | None = None, role: str = "claim") -> list[Statement]:
    """Return the sentences of a text that state something."""
    known = _names(text) if names is None else names
    made = (
        _statement(one, known, role)
        for sentence in _SENTENCE.split(_MARKS.sub(" ", _LINKED.sub(r"\1", text)))
        for one in _pieces(sentence)
    )
    return [one for one in made if one.words]


def _pieces(sentence: str) -> Iterable[str]:
    """Yield a sentence, and what is too long for one in pieces: no page without a full stop is held against others."""
    while len(sentence) > _MAX_CHARS:
        at = sentence.rfind(" ", 0, _MAX_CHARS)
        at = at if at > 0 else _MAX_CHARS
        yield from (piece for piece in (sentence[:at],) if piece.strip())
        sentence = sentence[at:]
    if sentence.strip():
        yield sentence


def _statement(text: str, names: frozenset[str], role: str) -> Statement:
    return Statement(text, words_of(_ADDRESSING.sub("", " ".join(text.split())).rstrip(".!"), names), role)


def _names(text: str) -> frozenset[str]:
    """Return the words, in lower case, that are written as names somewhere in a text."""
    plain = _MARKS.sub(" ", text)
    found: set[str] = {one.lower() for one in _CAMEL.findall(plain)}
    for sentence in _SENTENCE.split(plain):
        found.update(one.lower() for one in _SUBJECT_NAME.findall(sentence))
        found.update(f"^{one.lower()}" for one in _DEFINED.findall(sentence))
        found.update(one.lower() for one in _POSSESSOR.findall(sentence))
        for one in re.finditer(r"[^\W\d_]+", sentence):
            word, at = one.group(), 0 if _OPENS.search(sentence, max(0, one.start() - _NEAR_CHARS), one.start()) else 1
            if (len(word) > 1 and word.isupper()) or (at > 0 and word[0].isupper() and len(word) > 2):
                found.add(word.lower())
            shouted = len(word) > 1 and word.isupper()
            if (at > 0 or shouted) and word[0].isupper() and not sentence.isupper():  # GET is not "get", nor Go "go"
                found.add(f"^{word.lower()}")
    return frozenset(found)
