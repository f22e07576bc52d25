"""Find sentences of one text that another lacks, by their normalised words in order. Pure.

This distinguishes a merge from a deletion, and a rewrite from a loss. A sentence in other words counts as missing,
since a paraphrase cannot be distinguished from a change.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from ...text.dates import absolute
from ...text.words import sentences
from .links import without_links

_SHOWN_CHARS: Final = 80


def missing(old: str, new: str, *, written_on: date | None = None) -> list[str]:
    """Return the sentences of ``old`` that ``new`` lacks, normalised and cut to 80 characters.

    ``written_on`` is the date from which relative dates of ``old`` may have become absolute in ``new``.
    """
    there = set(sentences(without_links(new)))
    plain = without_links(old)
    lost = [one for one in sentences(plain) if one not in there]
    if lost and written_on is not None:
        dated = absolute(plain, written_on).text
        lost = [one for one in sentences(dated) if one not in there]
    return [" ".join(one)[:_SHOWN_CHARS] for one in lost]
