"""Small words that make another fact: must and may, only and also, some and all, on and off, in and out. Pure.

Words of grammar are left aside when statements are held against each other, since a fact is mostly told by others. Not
by these: where one statement has such a word and the other has its opposite, or has nothing of the sort, they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from .lexicon import normal
from .words import Word

__all__ = ["marked", "still_to_do"]


def _table(lines: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines.strip().splitlines():
        name, _, words = line.strip().partition(":")
        found |= {normal(word): name for word in words.split()}
    return found


_ALONE: Final = _table(
    """
    only: only solely exclusively merely
    part: some several few partly partially mostly most half
    seldom: sometimes occasionally rarely seldom intermittently
    chance: might maybe perhaps possibly probably presumably
    other: other different else
    first: first
    last: last final
    """
)
"""One of these in one statement and none of its sort in the other makes them two."""
_PAIRS: Final = _table(
    """
    duty/leave: must require mandatory shall have_to need obligatory
    leave/duty: may allow can could optional
    on/off: on
    off/on: off
    in/out: in into inside
    out/in: out outside
    up/down: up upward
    down/up: down downward
    above/below: above over
    below/above: below under beneath
    for/against: for
    against/for: against
    front/behind: ahead
    behind/front: behind
    through/back: through
    back/through: back
    alike/unlike: same identical
    unlike/alike: another
    more/less: more
    less/more: less fewer
    always/at_times: always
    at_times/always: usually typically often normally mostly
    knows/wants: know
    wants/knows: want use wish
    still/past: still
    past/still: formerly previously no_longer
    he/she: he him his himself
    she/he: she her hers herself
    with/without: with
    without/with: without
    """
)
"""A sort and its opposite: one in one statement and the other in the other makes them two."""
_BOUNDS: Final = frozenset(
    map(normal, ("at_most", "at_least", "more_than", "less_than", "limit", "maximum", "minimum"))
)
_DUTY: Final = frozenset(map(normal, ("must", "have_to", "should", "shall", "will", "need", "to")))
_WAS: Final = frozenset({"was", "were", "been"})
_DOERS: Final = frozenset({"we", "i", "they", "he", "she", "user"})


def marked(one: Iterable[Word], other: Iterable[Word]) -> tuple[list[Word], list[Word]] | None:
    """Return the small words in which two statements differ, or None."""
    mine, theirs = tuple(one), tuple(other)
    here, there = _marks(mine), _marks(theirs)
    for sort in _ALONE.values():
        if (sort in here) != (sort in there):
            return ([here[sort]] if sort in here else []), ([there[sort]] if sort in there else [])
    if _BOUNDS & {word.form for word in (*mine, *theirs)}:  # "may be at most" is no leave
        here, there = ({k: v for k, v in of.items() if k != "leave/duty"} for of in (here, there))
    for sort, word in here.items():
        opposite = "/".join(reversed(sort.split("/")))
        if opposite != sort and opposite in there and opposite not in here and sort not in there:
            return [word], [there[opposite]]
    return None


@lru_cache(maxsize=8_192)
def _marks(words: tuple[Word, ...]) -> dict[str, Word]:
    found: dict[str, Word] = {}
    for word in words:
        if word.kind == "word" and not word.denied and (sort := _ALONE.get(word.form) or _PAIRS.get(word.form)):
            found.setdefault(sort, word)
    return found


def still_to_do(one: Sequence[Word], other: Sequence[Word]) -> Word | None:
    """Return what one statement says is to be done and the other that it was: no repetition, and no contradiction."""
    for first, second in ((one, other), (other, one)):
        for at, word in enumerate(first):
            if word.light or not _is_due(first[max(0, at - 3) : at]):
                continue
            doer = first[at - 2].form if at > 1 and not first[at - 2].light else ""
            if any(
                _is_done(found, second[place], doer)
                for place, found in enumerate(second[1:])
                if found.form == word.form
            ):
                return word
    return None


def _is_due(before: Sequence[Word]) -> bool:
    """Say whether what follows these words is to be done: "has to be", "will", "must"."""
    passive = bool(before) and before[-1].form == "be" and before[-1].shown == "be"
    rest = before[:-1] if passive else before
    return bool(rest) and rest[-1].form in _DUTY and (passive or rest[-1].form != "to")


def _is_done(word: Word, before: Word, doer: str) -> bool:
    """Say whether a word tells what has happened: "was signed", "we signed"."""
    if before.shown in _WAS:
        return True
    return word.shown.endswith("ed") and (before.shown in _DOERS or before.slot == "name" or before.form == doer)
