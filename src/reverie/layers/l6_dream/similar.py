"""Whether two memories say the same, and if not, in what they differ.

Two memories are one only where every difference is explained: another word for the same, words without a fact, or a
detail that only one of them has. Where both have something that the other lacks they differ, however alike the rest.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ...values import record
from .contradictions import contradiction_in
from .differences import (
    Difference,
    about,
    apart,
    are_aligned,
    beyond,
    dice,
    differences_between,
    shared_weight,
    weighed,
)
from .statements import Profile, Statement

__all__ = ["Comparison", "Verdict", "compared"]

Verdict: TypeAlias = Literal["same", "contradicts", "differs", "unrelated"]
_ALIGNED: Final = 0.5
_ENOUGH: Final = 1.9
"""The weight of what two statements share before they are held against each other: two words at least."""
_MET: Final = 0.4
"""The share of the shorter memory that must be about the same; what it says besides goes with it."""
_ENOUGH_SCATTERED: Final = 2.5
_FEW: Final = 3
_MAX_CLAIMS: Final = 100
_SHORT_WORDS: Final = 3
_ARTICLES: Final = frozenset({"a", "an", "the"})


@record
class Comparison:
    """What two memories are to each other."""

    verdict: Verdict
    alike: float = 0.0
    difference: Difference | None = None


def compared(left: Profile, right: Profile, *, similar: float) -> Comparison:
    """Hold two memories against each other; ``similar`` is the share of the shorter that must stand in the other."""
    if max(len(left.claims), len(right.claims)) > _MAX_CLAIMS:
        return Comparison("unrelated")  # a page of text is no fact that somebody saved twice
    differences = differences_between(left, right)
    contradiction = contradiction_in(differences, left, right)
    if differences:
        verdict: Verdict = "contradicts" if contradiction else "differs"
        return Comparison(verdict, 0.0, contradiction or differences[0])
    if left.type != right.type or not left.claims or not right.claims:
        return Comparison("unrelated")
    alike = _alike(left, right)
    return Comparison("same" if alike >= similar else "unrelated", alike)


def _alike(left: Profile, right: Profile) -> float:
    """Return how much of the shorter memory's claims stands in the other's."""
    short, long = sorted((left, right), key=lambda one: (sum(claim.weight for claim in one.claims), one.file))
    if not _heads_meet(short, long):
        return 0.0
    total = sum(claim.weight for claim in short.claims)
    found = [(claim.weight, *_found(claim, long)) for claim in short.claims]
    shared = sum(one for _, one, _ in found)
    met = sum(weight for weight, _, of in found if of)
    share = sum(weight * of for weight, _, of in found) / met if met and met >= _MET * total else 0.0
    if len(long.claims) <= _FEW and len(short.claims) > 1:  # one sentence there may be two here
        scattered = total - sum(weighed(beyond(claim, short.claimed, long.claimed)) for claim in short.claims)
        if scattered >= _ENOUGH_SCATTERED and scattered / total > share:
            shared, share = scattered, scattered / total
    if not total or (shared < _ENOUGH and not _are_short_and_equal(short, long)):
        return 0.0
    return share


def _heads_meet(short: Profile, long: Profile) -> bool:
    """Say whether what each says first stands in the other: a remark they share does not make them one."""
    first, second = short.claims[:1], long.claims[:1]
    if len(short.claims) > 1 and len(long.claims) == 1:  # one sentence there is two here
        return any(_meets(claim, second[0]) for claim in short.claims)
    return all(any(_meets(claim, one) for one in long.claims) for claim in first) and all(
        any(_meets(one, claim) for one in short.claims) for claim in second
    )


def _meets(one: Statement, other: Statement) -> bool:
    return are_aligned(one, other) or about(one, other) >= _ALIGNED


def _are_short_and_equal(short: Profile, long: Profile) -> bool:
    """Say whether both begin with the same short sentence, whose few words are mostly those of grammar."""
    if len(short.claims) != 1:
        return False
    one, other = short.claims[0], long.claims[0]
    mine = {word.form for word in one.every} - _ARTICLES
    common = mine & {word.form for word in other.every}
    return not apart(one, other)[0] and len(common) >= _SHORT_WORDS and len(common) >= 0.7 * len(mine)


def _closest(claim: Statement, other: Profile) -> Statement | None:
    best = max(other.claims, key=lambda one: dice(claim, one), default=None)
    return best if best is not None and are_aligned(claim, best) else None


def _found(claim: Statement, other: Profile) -> tuple[float, float]:
    """Return the weight that a claim shares with the one closest to it, and how much of the shorter one that is."""
    closest = _closest(claim, other)
    if closest is None:
        return 0.0, 0.0
    shared = shared_weight(claim, closest)
    return shared, min(1.0, shared / (min(claim.weight, closest.weight) or 1.0))
