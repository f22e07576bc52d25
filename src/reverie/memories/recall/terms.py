"""Search terms: split, fold and stem words, in the same way for memories and for questions.

Identifiers and paths are found by their parts and as a whole (``userService``, ``user_service``, ``user-service``),
scripts without spaces by pairs of characters. Only the stop words and stems are English.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache

from ...lazy import pattern
from ...text.stems import stem, stems

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_CHUNK: Final = pattern(r"\w+(?:[-'’]\w+)*")
_PIECE: Final = pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\WA-Za-z0-9_]+")
_PLAIN: Final = pattern(r"[a-z]+|[A-Z][a-z]*|[0-9]+")
_GAP: Final = pattern(r"\s+")
_THOUSANDS: Final = pattern(r"(?<=\d),(?=\d{3}\b)")
_ORDINAL: Final = pattern(r"(\d+)(?:st|nd|rd|th)")
# Scripts without spaces between words: Thai to Khmer, kana, Han, Hangul (whose endings join their words).
_UNSPACED: Final = pattern("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_MAX_TOKEN_CHARS: Final = 64
_PIECE_CHARS: Final = 500

K1: Final = 0.9
"""The constant k1 of BM25: how soon repeating a word stops adding to the score."""
B: Final = 0.75
"""The constant b of BM25: how much the length of a text reduces the score of a word."""

_GRAMMAR: Final = """
a about all also am an and any are as at be been being both but by can cannot could did do does doing done down each
for from had has have having he her here hers him his how i if in into is it its just many may me might mine more most
much must my no nor not of on only or our ours out over really shall she should so some such than that the their theirs
them then there these they this those to too up us very was we were what when where which while who whom whose why
will with would you your yours
"""

FUNCTION_WORDS: Final = frozenset(stems(_GRAMMAR.split()))
"""The stems of English stop words."""


def tokens(text: str) -> list[str]:
    """Return the stems of a text's words in order; the parts of a compound come before the whole."""
    if not text.isascii():
        text = _folded(text)
    if "," in text:
        text = _THOUSANDS.sub("", text)
    found: list[str] = []
    for chunk in _CHUNK.findall(text):
        if _PLAIN.fullmatch(chunk):
            found.append(_word(chunk))
        else:
            found += _parts(chunk)
    return found


def terms(text: str) -> list[str]:
    """Return the stems of a question's words, each once; stop words only if there are no others."""
    found = list(dict.fromkeys(tokens(text)))
    return without_noise(found) or found


def without_noise(words: Iterable[str]) -> list[str]:
    """Return the stems without those of English stop words."""
    return [word for word in words if word not in FUNCTION_WORDS]


def _folded(text: str) -> str:
    """Return a text without accents, compatibility forms and invisible characters."""
    plain = unicodedata.normalize("NFKD", text)
    kept = "".join(letter for letter in plain if unicodedata.category(letter) not in ("Mn", "Cf"))
    return unicodedata.normalize("NFC", kept)


@lru_cache(maxsize=65_536)
def _word(chunk: str) -> str:
    """Return the search term of one plain word: its stem, or a number without leading zeros."""
    lower = chunk.lower()
    if chunk[0].isdigit():
        return lower.lstrip("0")[:_MAX_TOKEN_CHARS] or "0"
    return stem(lower)[:_MAX_TOKEN_CHARS]


def _parts(chunk: str) -> list[str]:
    """Return the terms of a chunk that is not a plain word: compounds, contractions, other scripts."""
    ordinal = _ORDINAL.fullmatch(chunk)
    if ordinal:
        return [_word(ordinal[1])]
    chunk, apostrophe, ending = chunk.replace("’", "'").partition("'")
    if apostrophe and ending == "t":
        return ["not"]  # isn't, won't: stop words
    pieces = [piece for piece in _PIECE.findall(chunk) if piece]
    found: list[str] = []
    for piece in pieces:
        unspaced = _UNSPACED.fullmatch(piece)
        found += _pairs(piece) if unspaced else [_word(piece) if piece.isascii() else piece.casefold()]
    if len(pieces) > 1:
        whole = "".join(pieces).lower()
        if len(whole) <= _MAX_TOKEN_CHARS:
            found.append(stem(whole))
    return [token[:_MAX_TOKEN_CHARS] for token in found]


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def pieces_of(text: str) -> list[str]:
    """Return a text in pieces of about 500 characters, cut at a line, sentence or word where one ends in time."""
    pieces: list[str] = []
    at, size = 0, _PIECE_CHARS
    while len(text) - at > size + size // 2:
        ends = (text.rfind(mark, at + size // 2, at + size) for mark in ("\n", ". ", " "))
        cut = next((end + 1 for end in ends if end >= 0), at + size)
        pieces.append(text[at:cut])
        at = cut
    return [*pieces, text[at:]]


# -- weights


def idf(documents: float, having: float) -> float:
    """Return BM25's inverse document frequency of a word that ``having`` of the documents contain."""
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))


def saturated(count: float, length: float, average: float) -> float:
    """Return BM25's score of a word's count in a text: it saturates with the count and falls with the length."""
    return count * (K1 + 1) / (count + K1 * (1 - B + B * length / (average or 1.0)))


def affordable(having: Mapping[str, int], max_postings: int) -> list[str]:
    """Return the rarest words whose document counts together fit a budget, but at least one."""
    kept: list[str] = []
    for word in sorted(having, key=lambda one: (having[one], one)):
        max_postings -= having[word]
        if kept and max_postings < 0:
            break
        kept.append(word)
    return kept


# -- snippets


def snippet(text: str, wanted: Mapping[str, float], *, max_chars: int = 300) -> str:
    """Return the ``excerpt`` of a text on one line."""
    return excerpt(" ".join(text.split()), wanted, max_chars=max_chars)


def excerpt(text: str, wanted: Mapping[str, float], *, max_chars: int) -> str:
    """Return the part of a text, at most ``max_chars``, in whose middle the wanted stems weigh most together."""
    if len(text) <= max_chars:
        return text
    first, last = _span(text, wanted, max_chars - 2)
    begin = max(0, min((first + last - max_chars) // 2, len(text) - max_chars + 1))
    gap = _GAP.search(text, begin, first) if begin else None
    begin = gap.end() if gap else begin
    end = begin + max_chars - (1 if begin else 0)
    if end < len(text):
        gaps = list(_GAP.finditer(text, begin, end - 1))
        end = gaps[-1].start() if gaps else end - 1
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"


def rarity(text: str, words: Iterable[str]) -> dict[str, float]:
    """Return the inverse document frequency of each of these stems in the pieces of a text, if the text has it."""
    pieces = [set(tokens(piece)) for piece in pieces_of(text)]
    having = {word: sum(word in piece for piece in pieces) for word in words}
    return {word: idf(len(pieces), count) for word, count in having.items() if count}


def weight(text: str, wanted: Mapping[str, float]) -> float:
    """Return the sum of the weights of the wanted stems that a text has."""
    return sum(wanted[word] for word in set(tokens(text)) & wanted.keys())


def _span(flat: str, wanted: Mapping[str, float], chars: int) -> tuple[int, int]:
    """Return the first and the last place of those wanted stems within so many characters that weigh most."""
    found = ((one, wanted.keys() & tokens(one.group())) for one in _CHUNK.finditer(flat[:100_000]))
    hits = [(one.start(), one.end(), words) for one, words in found if words]
    counts: dict[str, int] = {}
    best, value, span, first = 0.0, 0.0, (0, 0), 0
    for _, end, words in hits:
        for word in words:
            counts[word] = counts.get(word, 0) + 1
            value += wanted[word] if counts[word] == 1 else 0.0
        while end - hits[first][0] > chars or all(counts[word] > 1 for word in hits[first][2]):
            if hits[first][1] >= end:
                break
            for word in hits[first][2]:
                counts[word] -= 1
                value -= wanted[word] if not counts[word] else 0.0
            first += 1
        if value > best + 1e-9:
            best, span = value, (hits[first][0], end)
    return span
