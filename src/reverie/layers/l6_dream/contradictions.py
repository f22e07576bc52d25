"""Which differences cannot both be true of one thing, and are put to a person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .differences import Difference, apart, are_generic, dice, without_slots
from .lexicon import CHANGES, DIMENSIONS, GENERIC, OWNING, SCOPES, SPARE
from .statements import Profile, Statement
from .subjects import are_of_two_subjects, defines, is_one_run
from .words import HARD, Word

__all__ = ["contradiction_in", "is_weak", "slots_of"]

_ALIGNED_HEAD: Final = 0.65
"""Names and descriptions are worded more freely; only where they are this alike does another word tell them apart."""
_ENOUGH: Final = 1.9
"""The weight of what two statements share before they are held against each other: two words at least."""
_ENOUGH_DENIED: Final = 2.5
_SUBJECT: Final = 0.55
_SUBJECT_OF_DENIAL: Final = 0.54
_SUBJECT_OF_WORDS: Final = 0.55
_SUBJECT_OF_NAMES: Final = 0.75
"""Any name may stand where another does; they are two values of one thing only where the rest is much the same."""
_SUBJECT_OF_NAMESAKES: Final = 0.4
_SUBJECT_OF_PARAPHRASE: Final = 0.85
_MAX_SLOT_WORDS: Final = 3
_SAME_NAME: Final = 0.6
_ARTICLES: Final = frozenset({"a", "an", "the"})
_LANGUAGES: Final = frozenset({"language", "language_spoken"})
_DEFINITE: Final = re.compile(r"\W*(?:the|our|my|his|her|their)\b|\W*[\w-]+['’]s\b", re.IGNORECASE)
_ATTRIBUTE: Final = re.compile(
    r"^\W*(?:her|his|their|our|my|your)\b|^\W*(?:the )?(?:\w+ )?\w+['’]s\b|\b(?:favou?rite|default|preferred)\b"
    r"|^\W*the (?:[\w-]+ ){1,3}is an? ",
    re.IGNORECASE,
)


def contradiction_in(differences: Sequence[Difference], left: Profile, right: Profile) -> Difference | None:
    """Return the difference that cannot be true of one thing, if there is one."""
    if any(_is_of_scope(one) for one in differences):
        return None
    same = dice(left.name, right.name) >= _SAME_NAME
    for one in differences:
        # A remark that both make in passing is about what the rest of each is about.
        first = [one.left in left.claims[:1], one.right in right.claims[:1]]
        if one.left.role != "claim" or not (all(first) if one.way == "word" else any(first)):
            continue
        if _excludes(one, same) and not _is_of_names(one, left, right) and not are_of_two_subjects(one):
            return one
    return None


def _is_of_names(difference: Difference, left: Profile, right: Profile) -> bool:
    """Say whether the two differ in what their names name: then they are about two things."""
    titled = any(_is_title(profile.name, claim) for profile in (left, right) for claim in profile.claims[:1])
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
    if len(mine) == len(theirs) == 1 and _is_said(mine[0], difference.left) and _is_said(theirs[0], difference.right):
        return False
    dimension = all(word.slot in DIMENSIONS or word.kind in ("month", "weekday") for word in (*named, *others))
    return dimension or len(named) < len(mine) or len(others) < len(theirs)


def _is_title(name: Statement, claim: Statement) -> bool:
    """Say whether a name says all that a claim does, or is only its beginning."""
    return claim.forms <= name.forms or name.opens(claim)


def is_weak(difference: Difference) -> bool:
    """Say whether only a word tells two statements apart of which nobody knows whether it excludes the other."""
    if difference.way == "word":
        return True
    return difference.way == "value" and slots_of(difference) <= {"name", "code"} and not _is_where_or_what(difference)


def _is_where_or_what(difference: Difference) -> bool:
    """Say whether both say of one definite thing what or where it is, and differ in nothing else."""
    frames = [
        frozenset(word.form for word in statement.every if word.shown not in words)
        for statement, words in ((difference.left, difference.words), (difference.right, difference.others))
    ]
    definite = all(_DEFINITE.match(statement.text) for statement in (difference.left, difference.right))
    return definite and frames[0] == frames[1] and "be" in frames[0]


def slots_of(difference: Difference) -> frozenset[str]:
    """Return the kinds of values in which two statements differ."""
    return _slots(difference.left, difference.words)


def _slots(statement: Statement, words: Sequence[str]) -> frozenset[str]:
    return frozenset(word.slot for word in statement.words if word.shown in words)


def _is_of_scope(difference: Difference) -> bool:
    here, there = apart(difference.left, difference.right)
    return any(_is_scope(word, difference.left) for word in here) and any(
        _is_scope(word, difference.right) for word in there
    )


def _is_scope(word: Word, statement: Statement) -> bool:
    """Say whether a word names what is spoken of, and is not what is said of it: the public data, is public."""
    return word.form in SCOPES and not _is_said(word, statement)


def _is_said(word: Word, statement: Statement) -> bool:
    """Say whether a word stands right behind "is"."""
    at = statement.every.index(word)
    return at > 0 and statement.every[at - 1].form == "be"


def _excludes(difference: Difference, same_name: bool) -> bool:
    shared = sum(difference.left.weights[form] for form in difference.left.forms & difference.right.forms)
    here, there, _ = without_slots(*apart(difference.left, difference.right))
    rest = bool(here and there) and not are_generic(here, there)
    denied = difference.way == "denial" and shared >= _ENOUGH_DENIED and _is_denied_alone(difference)
    if rest and not denied and difference.subject < _SUBJECT_OF_PARAPHRASE and difference.way in ("value", "denial"):
        return False  # what is left over on both sides is what they are about
    if difference.way in ("denial", "exchange"):
        return shared >= 1.0 and difference.subject >= _SUBJECT_OF_DENIAL
    if difference.way == "turn":
        extra = {word.form for word in (*difference.left.words, *difference.right.words)}
        return bool(extra & CHANGES) and difference.subject >= _SUBJECT
    if difference.way in ("list", "narrower", "pending"):
        return False
    if difference.way == "mark":
        return difference.subject >= _SUBJECT
    if difference.way == "value":
        if difference.subject < _SUBJECT:
            return False
        kinds = slots_of(difference)
        named = "name" in kinds | _slots(difference.right, difference.others)
        telling = [word for word in (*here, *there) if word.form not in SPARE or word.form in OWNING]
        if named and telling and difference.subject < _SUBJECT_OF_NAMES:
            return False
        firm = kinds - {"name", "code"}
        if firm and firm != kinds:
            return False  # of two that have names of their own, each may have a value of its own
        if len(firm) > 1 and firm & _LANGUAGES:
            return False  # what holds for one language need not hold for another
        personal = not shared and difference.subject >= _ALIGNED_HEAD
        if not firm and (rest or not _are_runs(difference)):
            return False  # one of them is what the other is said of
        return (shared >= 1.0 or personal or bool(firm - HARD)) and (bool(firm) or not _in_front(difference))
    if _is_attribute(difference) or len(difference.left.of_person & difference.right.of_person) > 1:
        return True
    both = difference.left.forms & difference.right.forms
    if all(word.names_thing for word in (*here, *there)):
        return False
    few = max(len(difference.words), len(difference.others)) <= _MAX_SLOT_WORDS
    return (
        few
        and (shared >= (1.0 if same_name else _ENOUGH) or len(both) > 1)
        and difference.subject >= (_SUBJECT_OF_NAMESAKES if same_name else _SUBJECT_OF_WORDS)
        and not _in_front(difference)
    )


def _is_denied_alone(difference: Difference) -> bool:
    """Say whether one side denies a word by itself: "dropped, not imputed", "without showing it"."""
    denied = [word for word in (*difference.left.words, *difference.right.words) if word.shown in difference.words]
    return any(word.locally for word in denied)


def _are_runs(difference: Difference) -> bool:
    """Say whether what differs stands in one piece on both sides."""
    return is_one_run(difference.left, difference.words) and is_one_run(difference.right, difference.others)


def _is_attribute(difference: Difference) -> bool:
    """Say whether both say what the same thing of somebody is: "her favorite food is", "the user's car is"."""
    before = [_up_to_be(statement) for statement in (difference.left, difference.right)]
    return (
        before[0] == before[1]
        and bool(before[0])
        and all(_ATTRIBUTE.search(statement.text) for statement in (difference.left, difference.right))
    )


def _up_to_be(statement: Statement) -> tuple[str, ...]:
    """Return the words of a statement before its first "is", if some of them carry a fact."""
    words = [word for word in statement.every if word.form not in _ARTICLES]
    at = next((number for number, word in enumerate(words) if word.form == "be"), 0)
    return tuple(word.form for word in words[:at]) if any(not word.light for word in words[:at]) else ()


def _in_front(difference: Difference) -> bool:
    """Say whether the two differ in what they begin with, which is what they are about."""
    for statement, words in ((difference.left, difference.words), (difference.right, difference.others)):
        first = next((word for word in statement.every if word.form not in _ARTICLES), None)
        if first is None or first.shown not in words or defines(statement.every):
            return False
    forms = difference.left.forms & difference.right.forms
    return not forms & OWNING
