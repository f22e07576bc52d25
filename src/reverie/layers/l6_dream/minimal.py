"""Two statements that are the same but for one place: what stands there must be another word for the same. Pure.

Elsewhere words of grammar and the most general words may come and go, since a sentence that is turned round needs
others. Where nothing was turned round, one word in the place of another is the very thing that was changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .lexicon import normal
from .statements import Statement
from .words import Word

__all__ = ["replaced"]

_MAX_WORDS: Final = 2


def _normals(words: str) -> frozenset[str]:
    return frozenset(map(normal, words.split()))


_ARTICLES: Final = _normals("a an the")
_GRAMMAR: Final = _normals(
    """
    a an the this that these those it its they their we our you your he she his her i me my which who whom whose there
    be is are was been being do does did have has had will would get to of in on at by for with from as into onto
    via through about around over under per and or so then please note always also now currently still just simply
    really very already here thing way let must should shall ought
    """
)
_ALIKE: Final = tuple(
    map(
        _normals,
        (
            "want prefer like wish love user",
            "must should shall need require mandatory ought expect supposed",
            "be reach live run listen happen exist find found held hold base available stay sit work serve place use",
            "each every all any",
            "have own",
            "stay remain keep",
            "because since therefore",
            "when if whenever once while",
            "can could may might allow",
            "use via make do perform run execute handle manage put set keep write",
            "say tell ask",
            "give provide show see",
            "name named call called",
            "rule convention policy",
            "usually typically often normally",
            "begin start come go",
        ),
    )
)
"""Words that stand for each other in one place."""


def replaced(one: Statement, other: Statement) -> tuple[list[Word], list[Word]] | None:
    """Return the words of which one was put in the place of the other, all else being equal; None if it is the same."""
    mine = [word for word in one.every if word.form not in _ARTICLES or word.kind != "word"]
    theirs = [word for word in other.every if word.form not in _ARTICLES or word.kind != "word"]
    start = 0
    while start < min(len(mine), len(theirs)) and mine[start].form == theirs[start].form:
        start += 1
    end = 0
    while end < min(len(mine), len(theirs)) - start and mine[-1 - end].form == theirs[-1 - end].form:
        end += 1
    here, there = mine[start : len(mine) - end], theirs[start : len(theirs) - end]
    if not (here and there) or max(len(here), len(there)) > _MAX_WORDS or start + end == 0:
        return None
    left, right = _unmatched(here, there)
    if not left or not right or _covered(left, other) or _covered(right, one):
        return None
    return left, right


def _unmatched(left: Sequence[Word], right: Sequence[Word]) -> tuple[list[Word], list[Word]]:
    """Return what is left on both sides where words that stand for each other are paired off."""
    rest, mine = list(right), list[Word]()
    for word in left:
        match = next((one for one in rest if _are_alike(word, one)), None)
        if match is None:
            mine.append(word)
        else:
            rest.remove(match)
    return [word for word in mine if not _is_grammar(word)], [word for word in rest if not _is_grammar(word)]


def _is_grammar(word: Word) -> bool:
    return word.kind == "word" and word.form in _GRAMMAR and not word.compound


def _are_alike(one: Word, other: Word) -> bool:
    return one.form == other.form or any({one.form, other.form} <= group for group in _ALIKE)


def _covered(words: Sequence[Word], other: Statement) -> bool:
    """Say whether words stand in the other statement as a part of a word there, or as several."""
    return all(other.pool.covers(word, other.pool) for word in words)
