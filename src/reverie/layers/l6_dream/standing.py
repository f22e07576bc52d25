"""What of one text stands in another: exact names, numbers, dates, denials, and enough of every sentence's words. Pure.

This is how a merge is told from a deletion, and a rewriting from a gutting, whoever proposes it. It errs on the side of
"missing": what was said in quite other words counts as lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Final

from ...memories.recall.terms import FUNCTION_WORDS, tokens

__all__ = ["body_of", "missing", "sentences"]

_COVERED: Final = 0.7
_SENTENCE: Final = re.compile(r"(?<=[.!?;])\s+|\n+")
_WORD: Final = re.compile(r"[^\s`\"“”‘’<>()\[\]{}|*,;!?]+")
_ISO: Final = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_DENIAL: Final = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|cannot|avoid|except|unless|instead|stop|forbidden|only"
    r"|refuse[sd]?)\b|n['’]t\b",
    re.IGNORECASE,
)
_COUNT: Final = (
    r"(?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|fourteen|thirty|a few|a couple of|couple of)"
)
_UNIT: Final = r"(?:business |working |work |calendar )?(?:day|week|month|quarter|year|fortnight)s?"
_WHICH: Final = r"(?:next|last|this|coming|upcoming|previous|past|following|current)"
_RELATIVE: Final = re.compile(
    r"\b(?:today|tomorrow|yesterday|tonight|(?:the )?day (?:before|after) (?:yesterday|tomorrow)"
    rf"|{_WHICH} (?:{_COUNT} )?(?:{_UNIT}|(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
    rf"|(?:in|within) {_COUNT} {_UNIT}|{_COUNT} {_UNIT} (?:ago|hence|from|after|before|later)"
    rf"|(?:earlier|later) (?:today|{_WHICH} {_UNIT}))\b",
    re.IGNORECASE,
)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_WHEN: Final = frozenset(
    token
    for word in (*_DAYS, *_MONTHS, "day week month quarter year fortnight end early late next last previous coming ago")
    for token in tokens(word)
)
"""Words that may go where a date comes."""
_EDGES: Final = ".:-_/'’"
_MARKUP: Final = re.compile(
    r"^[ \t]*(?:#{1,6}\s+|[-*+]\s+|>\s?|\d+[.)]\s+)|\*\*(?:Why|How to apply):\*\*", re.MULTILINE
)


def body_of(text: str) -> str:
    """Return a text without the marks that say nothing: headings, bullets, the labels of a memory's parts."""
    return _MARKUP.sub("", text)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, each as its plain words in lower case, once."""
    found = (" ".join(re.findall(r"[\w'’./:@#%+-]+", one.casefold())) for one in _SENTENCE.split(body_of(text)))
    return list(dict.fromkeys(one.strip(" .:-") for one in found if one.strip(" .:-")))


def missing(old: str, new: str, *, most: int = 5) -> list[str]:
    """Return what of ``old`` does not stand in ``new``: the first few names, numbers, denials and sentences."""
    lost: list[str] = []
    there = _Words(new)
    for sentence in _SENTENCE.split(body_of(old)):
        if not sentence.strip() or there.says(sentence):
            continue
        gone = [name for name in _exact(sentence) if not there.has(name)]
        denied = _DENIAL.search(sentence) is not None and not there.denies(sentence)
        if gone:
            lost += gone
        elif denied or there.covered(sentence) < _COVERED:
            lost.append(_shown(sentence))
        if len(lost) >= most:
            break
    return list(dict.fromkeys(lost))[:most]


def _shown(sentence: str) -> str:
    plain = " ".join(sentence.split())
    return plain if len(plain) <= 80 else plain[:79] + "…"


class _Words:
    """A text as what can be found in it."""

    def __init__(self, text: str) -> None:
        self._sentences = set(sentences(text))
        self._split = [one for one in _SENTENCE.split(body_of(text)) if one.strip()]
        self._exact = {word for one in _words(text) for word in (one, *_inner(one))} | set(_said_by_dates(text))
        self._tokens = set(tokens(text)) | {day for day in _DAYS if day in self._exact}
        self._dated = _ISO.search(text) is not None
        self._denials: list[set[str]] | None = None

    def says(self, sentence: str) -> bool:
        """Say whether the very sentence is there."""
        return all(one in self._sentences for one in sentences(sentence))

    def has(self, name: str) -> bool:
        """Say whether an exact name is there, alone or as part of a longer one."""
        return name in self._exact

    def denies(self, sentence: str) -> bool:
        """Say whether some sentence there denies the same."""
        if self._denials is None:
            self._denials = [_content(one) for one in self._split if _DENIAL.search(one)]
        wanted = _content(sentence)
        return any(wanted <= one for one in self._denials)

    def covered(self, sentence: str) -> float:
        """Return the share of a sentence's words that are there."""
        wanted = _content(sentence)
        return len(wanted & self._tokens) / len(wanted) if wanted else 1.0


def _content(sentence: str) -> set[str]:
    """Return the words of a sentence that carry meaning, dates left out: these may be said in another way."""
    plain = _ISO.sub(" ", _RELATIVE.sub(" ", sentence))
    return {word for word in tokens(plain) if word not in FUNCTION_WORDS and word not in _WHEN}


def _words(text: str) -> list[str]:
    return [plain for word in _WORD.findall(text) if (plain := word.strip(_EDGES).casefold())]


def _inner(word: str) -> Iterable[str]:
    """Yield the parts of a compound: ``db.internal:5432`` has ``db.internal`` and ``5432``."""
    return [part for part in re.split(r"[/:=#@–—]", word) if part] if re.search(r"[/:=#@–—]", word) else ()


def _exact(sentence: str) -> list[str]:
    """Return the names of a sentence that cannot be said in other words."""
    plain = _RELATIVE.sub(" ", sentence)
    found: list[str] = []
    for at, raw in enumerate(_WORD.findall(plain)):
        word = raw.strip(_EDGES)
        shaped = any(letter.isdigit() for letter in word) or re.search(r"\w[._/@:#\\=]\w", word)
        upper = sum(letter.isupper() for letter in word)
        named = upper > 1 or (upper == 1 and word[:1].isupper() and at > 0 and len(word) > 1)
        mixed = upper == 1 and not word[:1].isupper()
        if word and (shaped or named or mixed) and word.casefold() not in ("i'm", "i'll", "i'd", "i've"):
            found.append(word.casefold())
    return found


def _said_by_dates(text: str) -> Iterable[str]:
    """Yield what else a date says: its weekday, its month, its day."""
    for year, month, day in _ISO.findall(text):
        try:
            when = date(int(year), int(month), int(day))
        except ValueError:
            continue
        name = _MONTHS[when.month - 1]
        yield from (_DAYS[when.weekday()], name, name[:3], str(when.day), f"{when.day:02}", year)
        yield from (f"{when.day}{ending}" for ending in ("st", "nd", "rd", "th"))
