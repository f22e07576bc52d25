"""Normalise a text to words and sentences, in any language and without a vocabulary.

Only punctuation at the edges of words is removed. Text that may carry a fact stays: numbers, ``C++``, ``.env``,
``--force``, a question mark, an arrow.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_OPENING: Final = "\"'`([{“”‘’«»„¿¡「『"
_CLOSING: Final = "\"'`)]}“”‘’«»„.,;:!。、」』"
_EMPHASIS: Final = re.compile(r"(?<![\w*/])(\*{1,3})(?=\S)([^*\n]+)(?<=\S)\1(?![\w*])")
_LINE_MARK: Final = re.compile(r"^[ \t]*(?:#{1,6}|[-*+>])[ \t]+", re.MULTILINE)
_PART_LABEL: Final = re.compile(r"^[ \t]*(?:[-*+][ \t]+)?\*\*(?:Why|How to apply):\*\*", re.MULTILINE)
"""The labels of a memory's parts, as the memory store writes them."""
_LINE_END: Final = re.compile(r"(?<=\S)[ \t]*\n[ \t]*(?=([^\W\d_]))")
_SENTENCE: Final = re.compile(r"(?<=[.!?;])\s+|\n+|(?<=[。！？])")


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text in order, in lower case, without Markdown marks and outer punctuation."""
    return tuple(_word(one) for one in _EMPHASIS.sub(r"\2", _LINE_MARK.sub("", text)).split())


def _word(raw: str) -> str:
    if raw.isascii():
        plain = raw.lower()
    else:
        # NFKC would turn 10² into 102 and 1½ into 11⁄2.
        exact = any(letter.isnumeric() and not letter.isdecimal() for letter in raw)
        plain = unicodedata.normalize("NFC" if exact else "NFKC", raw).casefold()
    return plain.lstrip(_OPENING).rstrip(_CLOSING) or plain


def sentences(text: str) -> list[tuple[str, ...]]:
    """Return the normalised words of each sentence of a text, in order, each distinct sentence once.

    A sentence goes on if the next line begins with a small letter. A number alone belongs to the next words ("5. Mai").
    """
    plain = _PART_LABEL.sub("", _LINE_END.sub(lambda found: " " if found[1].islower() else "\n", text))
    found: dict[tuple[str, ...], None] = {}
    number: tuple[str, ...] = ()
    for part in _SENTENCE.split(plain):
        said = number + words(part)
        number = said if len(said) == 1 and said[0].isdecimal() else ()
        if said and not number:
            found[said] = None
    return list(found | dict.fromkeys([number] if number else []))


def has_run(whole: tuple[str, ...], part: tuple[str, ...]) -> bool:
    """Say whether the words ``whole`` contain the words ``part`` one after the other."""
    return f" {' '.join(part)} " in f" {' '.join(whole)} "
