"""Which differences cannot both be true of one thing, and are put to a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .differences import Difference, apart, are_generic, dice, without_slots
from .lexicon import CHANGES, DIMENSIONS, GENERIC, OWNING, SCOPES, normal
from .statements import Profile
from .words import HARD, Word

__all__ = ["contradiction_in", "is_weak", "slots_of"]

_ALIGNED_HEAD: Final = 0.65
"""Names and descriptions are worded more freely; only where they are this alike does another word tell them apart."""
_ENOUGH: Final = 1.9
"""The weight of what two statements share before they are held against each other: two words at least."""
_SUBJECT: Final = 0.55
_SUBJECT_OF_WORDS: Final = 0.55
_SUBJECT_OF_NAMESAKES: Final = 0.4
_SUBJECT_OF_PARAPHRASE: Final = 0.85
_MAX_SLOT_WORDS: Final = 3
_SAME_NAME: Final = 0.6
_DEFINING: Final = frozenset(map(normal, ("where", "what", "who", "the", "our", "how")))
_ARTICLES: Final = frozenset({"a", "an", "the"})


def contradiction_in(differences: Sequence[Difference], left: Profile, right: Profile) -> Difference | None:
    """Return the difference that cannot be true of one thing, if there is one."""
    if any(_is_of_scope(one) for one in differences):
        return None
    same = dice(left.name, right.name) >= _SAME_NAME
    for one in differences:
        # A remark that both make in passing is about what the rest of each is about.
        first = any(one.left is claim for claim in left.claims[:1]) or any(
            one.right is claim for claim in right.claims[:1]
        )
        if first and one.left.role == "claim" and _excludes(one, same) and not _is_of_names(one, left, right):
            return one
    return None


def _is_of_names(difference: Difference, left: Profile, right: Profile) -> bool:
    """Say whether the two differ in what their names name: then they are about two things."""
    titled = any(claim.forms <= profile.name.forms for profile in (left, right) for claim in profile.claims[:1])
    if difference.way not in ("value", "word") or titled:  # a name that says it all names no subject
        return False
    mine, theirs = (
        [word for word in words if word.form not in GENERIC] for words in apart(difference.left, difference.right)
    )
    named = [word for word in mine if word.base in left.name.pool.bases]
    others = [word for word in theirs if word.base in right.name.pool.bases]
    if difference.way == "word":
        return bool(named and others)
    if not named or not others:
        return False
    dimension = all(word.slot in DIMENSIONS or word.kind in ("month", "weekday") for word in (*named, *others))
    return dimension or len(named) < len(mine) or len(others) < len(theirs)


def is_weak(difference: Difference) -> bool:
    """Say whether only a word tells two statements apart of which nobody knows whether it excludes the other."""
    if difference.way == "word":
        return True
    return difference.way == "value" and slots_of(difference) <= {"name", "code"}


def slots_of(difference: Difference) -> frozenset[str]:
    """Return the kinds of values in which two statements differ."""
    return frozenset(word.slot for word in difference.left.words if word.shown in difference.words)


def _is_of_scope(difference: Difference) -> bool:
    here, there = apart(difference.left, difference.right)
    return any(word.form in SCOPES for word in here) and any(word.form in SCOPES for word in there)


def _excludes(difference: Difference, same_name: bool) -> bool:
    shared = sum(difference.left.weights[form] for form in difference.left.forms & difference.right.forms)
    here, there, _ = without_slots(*apart(difference.left, difference.right))
    rest = bool(here and there) and not are_generic(here, there)
    if rest and difference.subject < _SUBJECT_OF_PARAPHRASE and difference.way in ("value", "denial"):
        return False  # what is left over on both sides is what they are about
    if difference.way in ("denial", "exchange"):
        return shared >= 1.0 and difference.subject >= _SUBJECT
    if difference.way == "turn":
        extra = {word.form for word in (*difference.left.words, *difference.right.words)}
        return bool(extra & CHANGES) and difference.subject >= _SUBJECT
    if difference.way in ("list", "narrower"):
        return False
    if difference.way == "mark":
        return difference.subject >= _SUBJECT
    if difference.way == "value":
        if difference.subject < _SUBJECT:
            return False
        firm = slots_of(difference) - {"name", "code"}
        personal = not shared and difference.subject >= _ALIGNED_HEAD
        if not firm and (rest or len(difference.words) > 1):
            return False  # one of them is what the other is said of
        return (shared >= 1.0 or personal or bool(firm - HARD)) and (bool(firm) or not _in_front(difference))
    both = difference.left.forms & difference.right.forms
    few = max(len(difference.words), len(difference.others)) <= _MAX_SLOT_WORDS
    return (
        few
        and (shared >= (1.0 if same_name else _ENOUGH) or len(both) > 1)
        and difference.subject >= (_SUBJECT_OF_NAMESAKES if same_name else _SUBJECT_OF_WORDS)
        and not _in_front(difference)
    )


def _in_front(difference: Difference) -> bool:
    """Say whether the two differ in what they begin with, which is what they are about."""
    for statement, words in ((difference.left, difference.words), (difference.right, difference.others)):
        first = next((word for word in statement.every if word.form not in _ARTICLES), None)
        if first is None or first.shown not in words or _defines(statement.every):
            return False
    forms = difference.left.forms & difference.right.forms
    return not forms & OWNING


def _defines(words: Sequence[Word]) -> bool:
    """Say whether a statement begins with what it says of its subject: "Oslo is where the team meets"."""
    at = next((number for number, word in enumerate(words[:4]) if word.form == "be"), None)
    return at is not None and at + 1 < len(words) and words[at + 1].form in _DEFINING
