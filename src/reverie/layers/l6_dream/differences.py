"""In what two memories differ: held against each other statement by statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from ...values import record
from .exchanges import exchanged, governed
from .lexicon import GENERIC, NAMED, SCOPES, SPARE, TURNING, implied_by, kind_of, normal
from .marks import marked, still_to_do
from .minimal import replaced
from .statements import Pool, Profile, Statement
from .words import Word, weight_of

__all__ = [
    "Difference",
    "about",
    "apart",
    "are_aligned",
    "are_generic",
    "beyond",
    "dice",
    "differences_between",
    "shared_weight",
    "weighed",
    "without_slots",
]

Way: TypeAlias = Literal["value", "word", "denial", "exchange", "list", "turn", "mark", "narrower", "pending"]
_ALIGNED: Final = 0.5
_ALIGNED_HEAD: Final = 0.65
"""Names and descriptions are worded more freely; only where they are this alike does another word tell them apart."""
_ALIGNED_REASON: Final = 0.6
_SAME_NAME: Final = 0.9
_ALIGNED_BY_NAME: Final = 0.4
_CONTAINED: Final = 0.8
_ENOUGH: Final = 1.9
"""The weight of what two statements share before they are held against each other: two words at least."""
_OPPOSED: Final = 0.8
_CONDITIONS: Final = frozenset(map(normal, ("if", "when", "unless", "while", "whenever", "until", "except")))
_WHERE: Final = frozenset(map(normal, ("in", "for", "on", "within", "at")))
_DENYING: Final = frozenset(("un", "in", "im", "il", "ir", "dis", "non", "de", "mis"))
_SHORT: Final = 3
_NAMED: Final = NAMED | {"name"}
_SIDES: Final = frozenset(map(normal, ("before", "after", "until", "since")))


@record
class Difference:
    """In what two statements about one thing differ."""

    way: Way
    left: Statement
    right: Statement
    words: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    subject: float = 0.0
    """How much of what they are about is the same, between 0 and 1."""


def shared_weight(left: Statement, right: Statement) -> float:
    return max(0.0, left.weight - weighed(apart(left, right)[0]))


def dice(left: Statement, right: Statement) -> float:
    whole = left.weight + right.weight
    return 2 * sum(left.weights[form] for form in left.forms & right.forms) / whole if whole else 0.0


def are_aligned(left: Statement, right: Statement) -> bool:
    """Say whether two statements are about the same thing."""
    both = dice(left, right)
    if both >= _ALIGNED or not both:
        return both > 0.0
    short, long = sorted((left, right), key=lambda one: one.weight)
    shared = shared_weight(short, long)
    return shared >= _ENOUGH and shared >= _CONTAINED * short.weight


def differences_between(left: Profile, right: Profile) -> list[Difference]:
    found: list[Difference] = []
    for one, other in _pairs(left, right):
        difference = _difference(one, other, left, right)
        if difference is not None:
            found.append(difference)
    return found


def _pairs(left: Profile, right: Profile) -> Iterable[tuple[Statement, Statement]]:
    """Yield the statements that are to be held against each other."""
    seen: set[tuple[int, int]] = set()

    def fresh(one: Statement, other: Statement) -> bool:
        key = (id(one), id(other))
        if key in seen:
            return False
        seen.add(key)
        return True

    if left.claims and right.claims and dice(left.name, right.name) >= _SAME_NAME:
        one, other = left.claims[0], right.claims[0]
        if about(one, other) >= _ALIGNED_BY_NAME and fresh(one, other):
            yield one, other
    for claim in left.claims:
        other = _nearest(claim, right.claims)
        if other is not None and fresh(claim, other):
            yield claim, other
    for claim in right.claims:
        other = _nearest(claim, left.claims, turned=True)
        if other is not None and fresh(other, claim):
            yield other, claim
    if not seen:
        return  # what they claim is about different things: nothing else they say can bring them together
    named = bool(left.name.words and right.name.words) and not (
        _is_excerpt(left.name, left) and _is_excerpt(right.name, right)
    )
    if named and about(left.name, right.name) >= _ALIGNED_HEAD:
        yield left.name, right.name
    for one in left.description:
        others = [it for it in right.description if not (_is_excerpt(one, left) and _is_excerpt(it, right))]
        other = max(others, key=lambda it: about(one, it), default=None)
        if other is not None and about(one, other) >= _ALIGNED_HEAD:
            yield one, other
    for reason in left.reasons:
        other = max(right.reasons, key=lambda one: dice(reason, one), default=None)
        if other is not None and dice(reason, other) >= _ALIGNED_REASON:
            yield reason, other


def _is_excerpt(heading: Statement, of: Profile) -> bool:
    """Say whether a heading is the beginning of the first claim, which is held against the other's anyway."""
    return bool(of.claims) and heading.opens(of.claims[0])


def _nearest(claim: Statement, others: Sequence[Statement], *, turned: bool = False) -> Statement | None:
    """Return the statement that is about the same thing, what fills its slots left aside."""
    # Always asked from left to right: what is known of two statements is not found out again.
    near = [(about(one, claim) if turned else about(claim, one), one) for one in others]
    if not near:
        return None
    how, best = max(near, key=lambda one: one[0])
    return best if how >= _ALIGNED or (how and are_aligned(claim, best)) else None


@lru_cache(maxsize=32_768)
def about(left: Statement, right: Statement) -> float:
    """Return how much two statements share of what is no value in them."""
    if _are_framed(left, right):
        return _ALIGNED_HEAD
    common = left.forms & right.forms
    if not common:
        return 0.0
    shared = sum(left.weights[form] for form in common)
    mine, theirs = apart(left, right)
    mine_left, theirs_left, slots = without_slots(mine, theirs)
    shared += sum(0.5 for one, _ in slots if kind_of(one.form))
    rest = (weighed(mine_left) + weighed(theirs_left)) / 2
    return shared / (shared + rest)


def _are_framed(left: Statement, right: Statement) -> bool:
    """Say whether two short statements are about one thing of a person: where they live, which of two they prefer."""
    if len(left.of_person & right.of_person) > 1:
        return True
    return bool(left.frame and left.frame[1]) and left.frame == right.frame and left.forms != right.forms


def beyond(statement: Statement, own: Pool, other: Pool) -> list[Word]:
    """Return the words of a statement that do not stand in another pool."""
    found: dict[str, Word] = {}
    bases = other.bases
    for word in statement.words:
        if word.base not in bases and not other.covers(word, own):
            found.setdefault(word.base, word)
    return list(found.values())


@lru_cache(maxsize=32_768)
def apart(left: Statement, right: Statement) -> tuple[list[Word], list[Word]]:
    """Return what each of two statements has that the other has not, but for what a value of both says already."""
    mine, theirs = beyond(left, left.pool, right.pool), beyond(right, right.pool, left.pool)
    if not mine and not theirs:
        return mine, theirs
    kinds = left.slots & right.slots
    if "code" in kinds and not any(word.slot == "code" and word.form in right.forms for word in left.words):
        kinds -= {"code"}  # a channel and a path are not two values of one thing
    left_over = (_unimplied(mine, kinds), _unimplied(theirs, kinds)) if kinds else (mine, theirs)
    # Where only one side is explained by that, what is left of the other may stand in its place.
    one_sided = (mine and not left_over[0] and left_over[1]) or (theirs and not left_over[1] and left_over[0])
    return (mine, theirs) if one_sided else left_over


def _unimplied(words: list[Word], kinds: frozenset[str]) -> list[Word]:
    implied = implied_by(kinds)
    return [one for one in words if one.kind != "word" or one.base not in implied]


def weighed(words: Iterable[Word]) -> float:
    return sum(weight_of(word) for word in words)


def without_slots(left: list[Word], right: list[Word]) -> tuple[list[Word], list[Word], list[tuple[Word, Word]]]:
    """Return the words that are left where values of one kind are paired off, and the pairs."""
    rest, slots = list(right), list[tuple[Word, Word]]()
    mine: list[Word] = []
    for word in left:
        kind = word.slot
        other = next((one for one in rest if kind and one.slot == kind), None)
        if other is None and (kind == "name" or kind in NAMED):  # a tool that is known, and one that is not
            other = next((one for one in rest if {kind, one.slot} <= _NAMED and "name" in (kind, one.slot)), None)
        if other is None and word.kind == "word":
            other = next((one for one in rest if _are_opposite(word, one)), None)
        if other is None:
            mine.append(word)
            continue
        rest.remove(other)
        slots.append((word, other))
    return mine, rest, slots


def _are_opposite(one: Word, other: Word) -> bool:
    """Say whether one of two words is the other with a syllable before it that denies it: stable and unstable."""
    if one.base[-1:] != other.base[-1:]:
        return False
    short, long = sorted((one.base, other.base), key=len)
    return long.endswith(short) and long.removesuffix(short) in _DENYING and len(short) > _SHORT


def _difference(one: Statement, other: Statement, left: Profile, right: Profile) -> Difference | None:
    here, there = apart(one, other)
    if one.role == "reason":
        mine, theirs = here, there
    else:
        mine = [word for word in here if not right.pool.covers(word, one.pool)]
        theirs = [word for word in there if not left.pool.covers(word, other.pool)]

    def made(way: Way, words: Iterable[Word], others: Iterable[Word]) -> Difference:
        return Difference(
            way, one, other, tuple(w.shown for w in words), tuple(w.shown for w in others), about(one, other)
        )

    opposed = _opposed(one, other) if one.role in ("claim", "reason") else []
    if opposed:
        return made("denial", opposed, opposed)
    if one.role == "claim" and (pending := still_to_do(one.every, other.every)):
        return made("pending", [pending], [pending])
    _, _, slots = without_slots(mine, theirs)
    if slots or (mine and theirs and not are_generic(mine, theirs)):
        if slots:
            return made("value", [pair[0] for pair in slots], [pair[1] for pair in slots])
        if one.role in ("claim", "reason") or _is_one_slot(one, other, mine, theirs):
            return made("word", mine, theirs)
    if one.role in ("claim", "reason") and (small := marked(one.every, other.every)):
        return made("mark", *small)
    if one.role in ("claim", "reason") and (changed := replaced(one, other)):
        return made("word", *changed)
    if places := exchanged(one, other):
        return made("exchange", places, places)
    if one.role == "claim" and (turned := _turned(one, other, mine, theirs)):
        return made("turn", *turned)
    extra, base, within = (mine, other, one) if mine else (theirs, one, other)
    if any(_extends(word, base, within) for word in extra):
        return made("list", mine, theirs)
    if one.role == "claim" and any(_narrows(word, base, within, left.type) for word in extra):
        return made("narrower", mine, theirs)
    return None


def _is_one_slot(one: Statement, other: Statement, mine: list[Word], theirs: list[Word]) -> bool:
    """Say whether two headings are one pattern with another word in the same place."""
    places = [one.words.index(word) for word in mine]
    return len(one.words) == len(other.words) and places == [other.words.index(word) for word in theirs]


def are_generic(mine: Sequence[Word], theirs: Sequence[Word]) -> bool:
    return all(word.kind == "word" and word.form in GENERIC for word in (*mine, *theirs))


def _turned(
    one: Statement, other: Statement, mine: list[Word], theirs: list[Word]
) -> tuple[Sequence[Word], Sequence[Word]] | None:
    """Return what turns the sense of one of two statements that are otherwise alike."""
    if not one.forms & other.forms:
        return None
    if any(word.form in TURNING for word in (*mine, *theirs)):
        return mine, theirs
    places = {word.form: word for word in other.words if word.slot == "when"}
    for word in one.words:
        place = places.get(word.form)
        if place is not None and place.after != word.after and _SIDES & {place.after, word.after}:
            return [word], [place]
    return None


def _opposed(one: Statement, other: Statement) -> list[Word]:
    """Return the words that one statement denies and the other does not, where these are most of what they share."""
    mine = {word.form: word for word in one.words}
    theirs = {word.form: word for word in other.words}
    both = mine.keys() & theirs.keys()
    against = [mine[form] for form in sorted(both) if mine[form].denied != theirs[form].denied]
    alone = [one for one in against if one.locally != theirs[one.form].locally]
    if alone:
        return alone
    # Where only one of them denies anything at all, no other reading of the same words explains it.
    one_sided = any(word.denied for word in one.words) != any(word.denied for word in other.words)
    crossed = len({one.denied for one in against}) > 1
    most = weighed(against) >= _OPPOSED * weighed(mine[form] for form in both)
    return against if against and (most or one_sided or crossed) else []


def _narrows(word: Word, base: Statement, within: Statement, kind: str) -> bool:
    """Say whether a word that only one side has makes it say less: of integration tests, not of all tests.

    What is added behind all that both say is a detail, unless it says when or, of a rule or a taste, where it holds.
    """
    if word.kind == "word" and word.form in SPARE:
        return False
    if word.form in SCOPES:
        return True
    last = max((at for at, one in enumerate(within.words) if one.form in base.forms), default=-1)
    if within.words.index(word) < last:
        return True
    opening = next(one.form for one in within.every if one.clause == word.clause)
    return opening in _CONDITIONS or (kind in ("feedback", "user") and governed(within).get(word.form) in _WHERE)


def _extends(word: Word, base: Statement, within: Statement) -> bool:
    """Say whether a fact that only one side has makes a list longer that both have: Tuesdays, and Thursdays."""
    kind = word.slot
    if not kind:
        return False
    at = within.words.index(word)
    neighbours = [within.words[place] for place in (at - 1, at + 1) if 0 <= place < len(within.words)]
    return any(
        one.slot == kind and one.form in base.forms and (word.joined or one.joined) and kind != "code"
        for one in neighbours
    )
