"""What a memory states, taken apart: its name, its description, its claims and the reasons it gives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from ...memories.records import MemoryRecord
from ...values import record
from .lemmas import base_of
from .lexicon import normal
from .words import Word, weight_of, words_of

__all__ = ["Pool", "Profile", "Statement", "profile_of", "statements_of"]

_FEW: Final = 3
_OF_PERSONS: Final = frozenset(map(normal, ("user", "live", "work", "name", "from")))
_COMPOUND_CHARS: Final = 30
_SENTENCE: Final = re.compile(r"(?<=[.!?])[\"”')]*\s+(?=[^\sa-z])|\n+\s*(?:[-*+]\s+|\d+[.)]\s+|>\s*)?|\s+—\s+")
_REASONS: Final = re.compile(
    r"^\s*\*\*(?:Why|How to apply|How|When|Reason|Context)\b[^*]*\*\*:?", re.MULTILINE | re.IGNORECASE
)
_MARKS: Final = re.compile(r"\*\*|__(?=\w)|(?<=\w)__|^#{1,6}\s+|^\s*[-*+]\s+|^>\s?", re.MULTILINE)
_LINKED: Final = re.compile(r"\[([^\]\n]*)\]\([^)\n]*\)")
_CAMEL: Final = re.compile(r"\b[a-z]+(?:[A-Z][a-z0-9]*)+\b|\b(?:[A-Z][a-z0-9]+){2,}\b")
_SUBJECT_NAME: Final = re.compile(r"^\W*([A-Z][a-z]+(?<!s))(?: [A-Z][a-z]+)? (?:is|was|has|[a-z]{3,}(?<!s)s)\b")
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
        self.parts = frozenset((*(part for word in listed for part in word.parts), *_compounds(listed)))
        self.meant: dict[str, set[str]] = {}
        self.counts = Counter(word.form for word in listed)
        for word in listed:
            self.meant.setdefault(word.form, set()).add(word.base)

    def covers(self, word: Word, own: Pool) -> bool:
        """Say whether a word of another pool stands here: itself, or another word for it that the other lacks."""
        if word.base in self.bases:
            return True
        if word.base in self.parts:
            return True
        if word.parts and not word.whole and all(part in self.parts or part in self.bases for part in word.parts):
            return True
        others = self.meant.get(word.form)
        if others is None or own.counts[word.form] > self.counts[word.form]:
            return False
        return not others <= own.bases


def _compounds(words: list[Word]) -> Iterable[str]:
    """Yield what two neighbours are when they are written as one."""
    for one, other in pairwise(words):
        pair = f"{one.shown}{other.shown}"
        if pair.isalpha() and len(pair) < _COMPOUND_CHARS:
            yield base_of(pair)


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
    def of_person(self) -> frozenset[str]:
        """What a short statement with a name in it says of somebody: lives, works, is called; empty for any other."""
        if len(self.words) >= _FEW or not any(word.kind == "name" for word in self.words):
            return frozenset()
        return frozenset(word.form for word in self.every) & _OF_PERSONS

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
    name = _statement(_whole(memory.name, main), names, "name")
    description = tuple(statements_of(_whole(memory.description, main), names, "description"))
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
        for one in _SENTENCE.split(_MARKS.sub(" ", _LINKED.sub(r"\1", text)))
        if one.strip()
    )
    return [one for one in made if one.words]


def _statement(text: str, names: frozenset[str], role: str) -> Statement:
    return Statement(text, words_of(_ADDRESSING.sub("", " ".join(text.split())).rstrip(".!"), names), role)


def _names(text: str) -> frozenset[str]:
    """Return the words, in lower case, that are written as names somewhere in a text."""
    plain = _MARKS.sub(" ", text)
    found: set[str] = {one.lower() for one in _CAMEL.findall(plain)}
    for sentence in _SENTENCE.split(plain):
        found.update(one.lower() for one in _SUBJECT_NAME.findall(sentence))
        for one in re.finditer(r"[^\W\d_]+", sentence):
            word, at = one.group(), 0 if _OPENS.search(sentence[: one.start()]) else 1
            if (len(word) > 1 and word.isupper()) or (at > 0 and word[0].isupper() and len(word) > 2):
                found.add(word.lower())
            shouted = len(word) > 1 and word.isupper()
            if (at > 0 or shouted) and word[0].isupper() and not sentence.isupper():  # GET is not "get", nor Go "go"
                found.add(f"^{word.lower()}")
    return frozenset(found)
