"""Whether two statements differ in what they speak of, and not in what they say of it. Pure.

A contradiction needs one subject, one attribute and two values that exclude each other. Where both give the same value,
what else differs is the subject: two services may use one database. Where both forbid, they forbid two things. Where
what differs is of two kinds, such as a language and a length, one does not exclude the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .differences import Difference, apart, without_slots
from .exchanges import governed
from .lexicon import ACTS, DIMENSIONS, NAMED, OWNING, SPARE, normal
from .marks import marked
from .statements import Statement
from .words import Word

__all__ = ["are_of_two_subjects", "defines", "is_one_run"]

_SOFT: Final = frozenset({"", "name", "code"})
_VAGUE: Final = ACTS | {"quantity", "bound", "rhythm"}
"""Kinds of values that many statements share which have nothing else in common."""
_CALENDAR: Final = frozenset({"weekday", "month"})
_TIMES: Final = frozenset({"number", "unit", "when", "rhythm", "daypart", "season", "order_of_time"})
_ALONE: Final = NAMED | {"order"}
"""Kinds that exclude only their own: a tool is no alternative to something that is none."""
_OF: Final = frozenset(map(normal, ("of", "for", "at", "in", "to")))
_AT: Final = frozenset(
    map(normal, ("at", "in", "on", "to", "as", "for", "by", "with", "a", "an", "the", "every", "each", "every_other"))
)
_WHERE_SOMEBODY_IS: Final = frozenset(map(normal, ("live", "work", "home")))
_FROM: Final = _AT | {normal("from")}
_WHITHER: Final = frozenset(map(normal, ("in", "into", "to", "at")))
_BY: Final = frozenset(map(normal, ("by", "with", "from")))
_HAVING: Final = OWNING - {normal("ask")}
_ARTICLES: Final = frozenset({"a", "an", "the"})
_WHOSE: Final = frozenset(map(normal, ("my", "our", "his", "her", "their")))
_JOINTS: Final = {
    normal(word): sort
    for sort, words in enumerate(("in at into to within during", "with without via", "before after until since", "as"))
    for word in words.split()
}
"""Prepositions by sorts; what two of different sorts add does not stand in one place."""
_RELATIVE: Final = frozenset({"who", "whom", "whose"})
_DEFINING: Final = frozenset(map(normal, ("where", "what", "who", "the", "our", "how")))


def are_of_two_subjects(difference: Difference) -> bool:
    """Say whether a difference is no contradiction because it lies in what the two speak of."""
    mine = _words(difference.left, difference.words)
    theirs = _words(difference.right, difference.others)
    if difference.way == "denial":
        return _is_of_denied_subjects(difference)
    if difference.way not in ("value", "word") or not mine or not theirs:
        return False
    if difference.way == "word" and (_are_of_two_kinds(mine, theirs) or _are_spare(mine, theirs)):
        return True
    both = [*mine, *theirs]
    sides = (difference.left, mine), (difference.right, theirs)
    if marked(mine, theirs) or all(_is_participle(*side) for side in sides):
        return False  # up and down; "was added" and "was removed"
    soft = all(word.slot in _SOFT for word in both)
    if soft and all(word.denied for word in both):
        return True  # two things may both be forbidden
    if difference.way == "word" and (not _are_pieces(difference) or _are_two_adjuncts(difference, mine, theirs)):
        return True
    if all(_is_label(word, one) for one, words in sides for word in words):
        return _share_a_value(difference, [])
    turning = any(_is_dimension(word) for word in mine) and any(_is_dimension(word) for word in theirs)
    if not soft and not turning:
        return False
    if soft and all(_is_of_front(word, statement) for statement, words in sides for word in words):
        return True
    if any(_is_value(word, statement) or _is_goal(word, statement) for statement, words in sides for word in words):
        return False
    if difference.left.forms & difference.right.forms & _HAVING and all(_are_owners(*side) for side in sides):
        return False
    if turning and not all(_is_dimension(word) for word in both):
        return not is_one_run(difference.left, difference.words)  # another day and another time: each has its own
    return (
        _share_a_value(difference, both)
        or _share_an_owner(difference, mine, theirs)
        or (soft and _are_spoken_of(difference, mine, theirs))
    )


def is_one_run(statement: Statement, words: Sequence[str]) -> bool:
    """Say whether words of a statement stand in one piece: a name of several words is one value."""
    places = [at for at, word in enumerate(statement.every) if not word.light and word.shown in words]
    within = [one for one in statement.every[places[0] : places[-1] + 1] if one.light] if places else []
    clauses = {statement.every[at].clause for at in places}
    return len(words) < 2 or (not within and len(clauses) == 1 and len(places) == places[-1] - places[0] + 1)


def defines(words: Sequence[Word]) -> bool:
    """Say whether a statement begins with what it says of its subject: "Oslo is where the team meets"."""
    at = next((number for number, word in enumerate(words[:4]) if word.form == "be"), None)
    return at is not None and at + 1 < len(words) and words[at + 1].form in _DEFINING


def _words(statement: Statement, shown: Sequence[str]) -> list[Word]:
    return [word for word in statement.every if word.shown in shown]


def _is_of_denied_subjects(difference: Difference) -> bool:
    """Say whether one denies of one thing what the other says of another."""
    if any(word.locally for statement in (difference.left, difference.right) for word in statement.words):
        return False
    return bool(without_slots(*apart(difference.left, difference.right))[2])


def _are_of_two_kinds(mine: Sequence[Word], theirs: Sequence[Word]) -> bool:
    here, there = _kinds(mine), _kinds(theirs)
    if here and there:
        return here.isdisjoint(there)
    plain = theirs if here else mine
    return len(plain) > 1 and not any(word.slot for word in plain) and bool((here | there) & _ALONE)


def _kinds(words: Sequence[Word]) -> frozenset[str]:
    return frozenset("time" if word.slot in _TIMES else word.slot for word in words if word.slot not in _SOFT)


def _are_spare(mine: Sequence[Word], theirs: Sequence[Word]) -> bool:
    return all(word.kind == "word" and word.form in SPARE for word in (*mine, *theirs))


def _are_pieces(difference: Difference) -> bool:
    """Say whether one piece stands here in the place of one piece there; two places are a subject and its value."""
    mine, theirs = apart(difference.left, difference.right)
    return is_one_run(difference.left, [word.shown for word in mine]) or is_one_run(
        difference.right, [word.shown for word in theirs]
    )


def _are_two_adjuncts(difference: Difference, mine: Sequence[Word], theirs: Sequence[Word]) -> bool:
    """Say whether each adds something of its own to what both say: "in French" and "before lunch"."""
    here, there = _joint(difference.left, mine[0]), _joint(difference.right, theirs[0])
    return here >= 0 and there >= 0 and here != there


def _joint(statement: Statement, word: Word) -> int:
    """Return which sort of preposition stands before a word, or -1."""
    at = statement.every.index(word)
    if word.form in _JOINTS:
        return _JOINTS[word.form]
    before = next((one for one in reversed(statement.every[:at]) if one.form not in _ARTICLES), None)
    return _JOINTS.get(before.form, -1) if before else -1


def _is_of_front(word: Word, statement: Statement) -> bool:
    """Say whether a word is part of what a statement begins with: "the warehouse in Lille opens", "her sister is"."""
    every, at = statement.every, statement.every.index(word)
    if at and every[at - 1] in every[:2] and (every[at - 1].shown.endswith("'s") or every[at - 1].form in _WHOSE):
        return True
    inner = word.slot == "name" and at > 1 and every[at - 1].form in _OF and every[at - 2] == statement.words[0]
    return inner and at < len(every) - 1 and every[at + 1].clause == word.clause and every[at + 1].form not in _AT


def _is_participle(statement: Statement, words: Sequence[Word]) -> bool:
    """Say whether the one word is what is done to something: right behind "is"."""
    at = statement.every.index(words[0])
    return len(words) == 1 and at > 0 and words[0].shown.endswith("ed") and statement.every[at - 1].form == "be"


def _is_dimension(word: Word) -> bool:
    return word.slot in DIMENSIONS or word.kind in _CALENDAR


def _is_value(word: Word, statement: Statement) -> bool:
    """Say whether a word is what is said of the subject: behind "is" or "by", before "is where", where one lives."""
    every = statement.every
    at = every.index(word)
    if word.slot and (word.after == "by" or (word.after in _BY and not _is_dimension(word))):
        return True
    if (
        defines(every)
        and word.clause == every[0].clause == _first_be(every).clause
        and at < every.index(_first_be(every))
    ):
        return True
    before = at - 1
    while before >= 0 and (every[before].form in _AT or every[before].slot == "number"):
        before -= 1
    if before >= 0 and every[before].form == "be":
        return bool(word.slot) or word == statement.words[-1]
    if word.slot == "name" and at > 0 and every[at - 1].kind == "time":
        return True  # "02:00 UTC"
    if word.kind == "weekday" and [one.kind for one in every[at + 2 : at + 3]] == ["time"]:
        return True  # "on Mondays at 9:00" is one moment
    there = any(one.form in _WHERE_SOMEBODY_IS for one in every)
    return there and governed(statement).get(word.form) in _FROM


def _is_goal(word: Word, statement: Statement) -> bool:
    """Say whether a name is where something happens or goes, and no part of what that is: "is kept in Glacier"."""
    every, at = statement.every, statement.every.index(word)
    if word.slot != "name" or at < 2 or every[at - 1].form not in _WHITHER:
        return False
    before = every[at - 2]
    if before.form in OWNING:
        return False
    if every[at - 1].form == "to":
        return before.light or before.shown.endswith("ed")
    return before != statement.words[0]


def _are_owners(statement: Statement, words: Sequence[Word]) -> bool:
    return all(word.slot == "name" and governed(statement).get(word.form) not in _OF for word in words)


def _share_a_value(difference: Difference, differing: Sequence[Word]) -> bool:
    """Say whether both give one value, so that the rest is whose value it is."""
    kinds = {word.slot for word in differing} - {"when"}
    mine = [word for word in differing if word in difference.left.every]
    common = [word for word in difference.left.words if word.slot and word.form in difference.right.forms]
    both = _both(difference)
    last = difference.left.words[-1].form == difference.right.words[-1].form
    for word in common:
        if word.slot in _VAGUE or word.slot in kinds or all(_is_label(word, one) for one in both):
            continue
        if word.slot == "order" and any(_joint(difference.left, one) == _joint(difference.left, word) for one in mine):
            continue  # "after the ticket"
        # What holds for a language or on a day may have two values; written in a language, it has that one.
        fixed = word.slot != "name" and not _is_dimension(word)
        if fixed or (difference.way == "word" and _is_told(word, difference, differing, last=last)):
            return True
    return False


def _is_told(word: Word, difference: Difference, differing: Sequence[Word], *, last: bool) -> bool:
    """Say whether a name, a language or a day that both have is what they say, and not when or of what they say it."""
    if word.kind in _CALENDAR:
        at = difference.left.every.index(word)
        return at == 0 or difference.left.every[at - 1] not in differing  # not "the first Monday"
    return last and word == difference.left.words[-1] and all(_is_joined_on(one, word) for one in _both(difference))


def _is_joined_on(statement: Statement, word: Word) -> bool:
    """Say whether a statement ends in a preposition and this word."""
    before = [one.form for one in statement.every[:-1] if one.form not in _ARTICLES]
    return statement.every[-1].form == word.form and before[-1:] != [] and before[-1] in _FROM


def _both(difference: Difference) -> tuple[Statement, Statement]:
    return difference.left, difference.right


def _is_label(word: Word, statement: Statement) -> bool:
    """Say whether a number is part of what a statement begins with: "Version 5"."""
    every = [one for one in statement.every if one.form != "the"][:2]
    named = len(every) > 1 and not every[0].light and not every[0].slot
    return word.kind == "number" and named and every[1].form == word.form


def _share_an_owner(difference: Difference, mine: Sequence[Word], theirs: Sequence[Word]) -> bool:
    """Say whether one person has two things: who is the contact at one place may be so at another."""
    common = difference.left.forms & difference.right.forms
    if not common & OWNING:
        return False
    here, there = governed(difference.left), governed(difference.right)
    names = [word.form for word in difference.left.words if word.form in common and _is_owner(word, difference)]
    if all(_is_dimension(word) for word in (*mine, *theirs)):
        return bool(names)
    if difference.way == "word" and any(word.slot == "name" and word.form in names for word in difference.left.words):
        return True
    owned = all(here.get(word.form) in _OF for word in mine) and all(there.get(word.form) in _OF for word in theirs)
    return owned and any(here.get(name) not in _OF and there.get(name) not in _OF for name in names)


def _is_owner(word: Word, difference: Difference) -> bool:
    """Say whether a word is somebody's name, by how it is written or by its place: "Jonas is our contact"."""
    both = _both(difference)
    return word.slot == "name" or any(one.words[0].form == word.form and defines(one.every) for one in both)


def _are_spoken_of(difference: Difference, mine: Sequence[Word], theirs: Sequence[Word]) -> bool:
    """Say whether names stand where that is of which a statement speaks: in front, or before "who"."""
    if difference.left.forms & difference.right.forms & OWNING:
        return False
    sides = (difference.left, mine), (difference.right, theirs)
    if all(any(_is_antecedent(word, statement) for word in words) for statement, words in sides):
        return True
    named = all(word.slot == "name" for word in (*mine, *theirs))
    return named and any(words[0] == statement.words[0] == statement.every[0] for statement, words in sides)


def _is_antecedent(word: Word, statement: Statement) -> bool:
    """Say whether a relative clause follows on a name, or on what a statement begins with."""
    at = statement.every.index(word)
    return bool(at == 0 or word.slot == "name") and any(one.shown in _RELATIVE for one in statement.every[at + 1 :])


def _first_be(words: Sequence[Word]) -> Word:
    return next(word for word in words if word.form == "be")
