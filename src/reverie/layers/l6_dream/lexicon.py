"""Words in their normal form: those that say the same, those that say little, and kinds of which one excludes another.

Two memories that differ in words of one group of ``SAME`` may be one memory; two that differ in words of one line of
``KINDS`` say different things of one subject. A word in neither is taken at its face: another word is another fact.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from .lemmas import base_of
from .synonyms import PHRASES, SAME
from .value_kinds import ACTS, DIMENSIONS, IMPLIED, KINDS, NAMED

__all__ = [
    "ACTS",
    "CHANGES",
    "DIMENSIONS",
    "GENERIC",
    "LIGHT",
    "NAMED",
    "NEGATIVE",
    "OWNING",
    "SCOPES",
    "SPARE",
    "TURNING",
    "implied_by",
    "is_family",
    "kind_of",
    "normal",
    "phrases",
]

_LIGHT: Final = """
    a an the this that these those it its itself he she they them their his her him we our ours i me my you your
    is are was were be been being am do does did done doing have has had having will would shall should can could
    may might must ought to of in on at by for with from as into onto upon about over under within per and or so
    if then than when whenever while where which who whom whose what how there here very really just simply
    please note remember mind also again still now currently nowadays already always 
    user someone everyone anybody everybody somebody thing stuff something anything way
    want wish prefer need use get go take come put set let say said know mean make
    usually typically actually certainly definitely obviously
    any each every such same other another too well much more lot lots
    sure kind sort out away along across one ones named
    because since therefore hence thus although though however but yet even ever
    happen exist become remain stay seem appear look turn try find see seen
    rule convention policy preference expect supposed meant decision agreed
    via through among toward towards whatever wherever whether anymore
    explicitly particularly especially behind beside between during inside outside around throughout
    regard concern relate regarding concerning etc eg ie vs
    follow follows following live listen carefully fine ok okay available held 
    allow mandatory require stick ensure got instead_of instead worth consider
    team repo repository project without
"""
# Words so general that one for another makes no other fact.
_GENERIC: Final = """
    run work service system application tool contain include feature thing time place part item set serve hold
    perform provide involve type way piece element component instance side area
    do come get person people
    date day period size length value enduser all
"""
# Words that add no fact where the other side has none in their place.
_SPARE: Final = """
    send see keep ask tell call go put hold home base around about important url link address number name file page
    give show endure provide offer manage handle plan own reach reachable whole entire existing overall general
    specific particular
    strongly highly absolutely official officially basically good proper properly careful successfully overall main
    mainly write say begin
    support process order fully completely correctly currently explicit clear clearly team standard regular
    work job task person people code software data information detail content entry
    speak play hit once first_of_all forward ahead reminder purpose matter case topic
"""
_NEGATIVE: Final = """
    not no never none nobody nothing neither nor cannot cant avoid refrain forbid forbidden prohibit prohibited
    ban banned disallow disallowed stop dislike hate refuse reject skip no_longer
"""
# What is said of one of these is not said of another.
_SCOPES: Final = """
    staging production development test qa local sandbox demo preview canary frontend backend ios android web mobile
    desktop client server internal external public private read write north south east west eu us apac emea primary
    secondary replica master upstream downstream inbound outbound incoming outgoing leftward right unittest_kind
    integration e2e junior senior weekday weekend
"""
_CHANGES: Final = """
    move change raise lower switch migrate replace increase decrease no_longer formerly previously
    postpone reschedule extend shorten bump reduce upgrade downgrade
"""
# One of these on one side alone makes it another statement, however alike the rest is.
_TURNING: Final = """
    delete remove drop disable deprecated abandon cancel retire skip except unless until temporary former old
    obsolete optional exempt exception excluding half double fail break only_if off
    at_least at_most more_than less_than
"""
_OWNING: Final = "own owner lead responsible maintain review approve oncall contact manage owned head ask assign belong"


def _families() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in SAME.replace("|", "\n").strip().splitlines():
        words = [base_of(word) for word in line.split()]
        head = words[0]
        for word in words:
            found.setdefault(word, head)
    return found


def _phrase_table() -> tuple[re.Pattern[str], dict[str, str]]:
    table: dict[str, str] = {}
    for one in PHRASES.replace("\n", "|").split("|"):
        said, equals, meant = one.strip().partition("=")
        if equals:
            table[said] = meant
    longest = sorted(table, key=len, reverse=True)
    return re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, longest))})(?![\w/-]|\.\w)"), table


_FAMILY: Final = _families()
_HEADS: Final = frozenset(_FAMILY.values())
_PHRASE, _MEANT = _phrase_table()
_MEANINGS: Final = frozenset(_MEANT.values())


def phrases(text: str) -> str:
    """Return a text in lower case with expressions of several words as the one word they stand for."""
    return _PHRASE.sub(lambda found: _MEANT[found.group()], text)


@lru_cache(maxsize=16_384)
def normal(word: str) -> str:
    """Return the one word that stands for all that say the same as this."""
    base = base_of(word)
    return _FAMILY.get(base, base)


def _normals(words: str) -> frozenset[str]:
    return frozenset(map(normal, words.split()))


LIGHT: Final = _normals(_LIGHT)
"""Words that carry no fact of their own."""
NEGATIVE: Final = _normals(_NEGATIVE)
GENERIC: Final = _normals(_GENERIC)
SPARE: Final = _normals(_SPARE) | GENERIC
SCOPES: Final = _normals(_SCOPES)
CHANGES: Final = _normals(_CHANGES)
OWNING: Final = _normals(_OWNING)
TURNING: Final = _normals(_TURNING) | CHANGES


def _by_kind() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in KINDS.strip().splitlines():
        kind, _, words = line.strip().partition(":")
        for word in words.split():
            found.setdefault(normal(word), kind)
    return found


_KIND: Final = _by_kind()
_IMPLIED: Final = {
    line.split(":")[0].strip(): frozenset(map(base_of, line.split(":")[1].split()))
    for line in IMPLIED.strip().splitlines()
}


def kind_of(word: str) -> str:
    """Return the kind of thing a normal word names, of which one excludes another; empty where none is known."""
    return _KIND.get(word, "")


@lru_cache(maxsize=1_024)
def implied_by(kinds: frozenset[str]) -> frozenset[str]:
    """Return the stems that say no more than any value of these kinds does: a database stores data."""
    return frozenset(word for kind in kinds for word in _IMPLIED.get(kind, ()))


def is_family(word: str) -> bool:
    """Say whether a normal word stands for several, and so is no one's name."""
    return word in _HEADS


def is_phrase(word: str) -> bool:
    """Say whether a word stands for an expression of several."""
    return word in _MEANINGS
