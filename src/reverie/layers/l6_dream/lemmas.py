"""One form for the many a word has: its spelling, number and tense, and the few derivations that keep its meaning.

Finding may be generous; merging may not. The stems that recall uses bring universal, universe and university together,
or import and important: here a word keeps the ending that makes it another word.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ...memories.stems import stem

__all__ = ["american", "base_of"]

_SHORT: Final = 4
# Words whose stem is that of quite another word.
_ODD: Final = {
    **dict.fromkeys(("adding", "added", "adds"), "add"),
    **dict.fromkeys(("theme", "themes"), "colortheme"),
    **dict.fromkeys(("evening", "evenings"), "eveningtime"),
    **{"called": "named", "^go": "go_lang", "^windows": "windows_os"},
    **dict.fromkeys(("succeed", "succeeds", "succeeded", "succeeding"), "success"),
    **dict.fromkeys(("exceed", "exceeds", "exceeded", "exceeding"), "excess"),
    **dict.fromkeys(("generally", "normally", "basically"), "usually"),
    **dict.fromkeys(("strictly", "consistently", "clearly", "strongly"), "always"),
    **{"lives": "live", "leaves": "leave", "left": "leave", "lengthy": "long", "setting": "set", "settings": "config"},
    **dict.fromkeys(("using", "used", "uses"), "use"),
    **{form: "enable" for form in ("enabled", "enables", "enabling")},
    **{form: "disable" for form in ("disabled", "disables", "disabling")},
    **dict.fromkeys(("apply", "applies", "applied", "applying"), "applyto"),
    **dict.fromkeys(("lasts", "lasted", "lasting"), "endure"),
}

_BRITISH: Final = (
    (re.compile(r"isation(s?)$"), r"ization\1"),
    (re.compile(r"(?<=[a-z]{3})is(e|es|ed|ing|er|ers)$"), r"iz\1"),
    (re.compile(r"(?<=[a-z]{3})ys(e|es|ed|ing|er)$"), r"yz\1"),
    (re.compile(r"(col|fav|behavi|hon|lab|neighb|harb|hum|flav|endeav|vap|arm)our"), r"\1or"),
    (re.compile(r"(cent|theat|met|lit|fib|calib)re(s?)$"), r"\1er\2"),
    (re.compile(r"ogue(s?)$"), r"og\1"),
    (re.compile(r"(cancel|label|model|travel|level|signal|total|channel|fuel|dial)l(ed|ing|er|ers)$"), r"\1\2"),
    (re.compile(r"(lic|def|off|pret)ence(s?)$"), r"\1ense\2"),
    (re.compile(r"^(program)me(s?)$"), r"\1\2"),
    (re.compile(r"^(gr)ey"), r"\1ay"),
    (re.compile(r"^(arti)fact"), r"\1fact"),
    (re.compile(r"^artefact"), "artifact"),
    (re.compile(r"^(fulfil|enrol|instal)(s|ment)?$"), r"\1l\2"),
    (re.compile(r"^(whil|among)st$"), r"\1"),
    (re.compile(r"^(learn|burn|dream|spell)t$"), r"\1ed"),
    (re.compile(r"^cheque(s?)$"), r"check\1"),
    (re.compile(r"^practis"), "practic"),
    (re.compile(r"(?<=[pnhl])ae(?=[dms])"), "e"),
    (re.compile(r"^(aesth|anaesth)"), "esth"),
    (re.compile(r"manoeuv"), "maneuv"),
    (re.compile(r"^(c)osy$"), r"\1ozy"),
    (re.compile(r"^(p)yjama"), r"\1ajama"),
    (re.compile(r"^(t)yre(s?)$"), r"\1ire\2"),
    (re.compile(r"^(al)uminium"), r"\1uminum"),
    (re.compile(r"^(m)ould"), r"\1old"),
    (re.compile(r"^(skil|wil)ful"), r"\1lful"),
    (re.compile(r"^(plo)ugh"), r"\1w"),
    (re.compile(r"^(jewel)lery"), r"\1ry"),
    (re.compile(r"^(s)ceptic"), r"\1keptic"),
    (re.compile(r"^judgement"), "judgment"),
    (re.compile(r"^catalogue"), "catalog"),
)
_ANY_BRITISH: Final = re.compile("|".join(f"(?:{pattern.pattern})" for pattern, _ in _BRITISH))
_NOT_BRITISH: Final = frozenset(
    re.findall(
        r"\w+",
        """
    promise promises promised raise raises raised raising exercise exercises precise noise enterprise premise premises
    rise arise advise advises advised advising revise revises revised revising supervise surprise compromise otherwise
    likewise expertise franchise disguise merchandise wise cruise bruise praise paradise concise exercise exercised
    devise improvise televise comprise enterprises
        """,
    )
)

_OWN_ENDING: Final = re.compile(
    r"(?:ity|al|ive|ous|ic|ist|ism|ary|(?<!m)ent|ant|able|ible|ency|ancy|ful|less|ship|hood)$"
)
"""Endings that make another word, not another form of the same one."""
_OF_VERBS: Final = frozenset(
    re.findall(
        r"\w+",
        "approval removal renewal retrieval refusal proposal arrival withdrawal disposal reversal referral denial",
    )
)
_APART: Final = frozenset(
    re.findall(
        r"\w+",
        """
    department apartment compartment complement supplement regiment element moment segment fragment
    really simply currently actually certainly definitely obviously usually typically explicitly particularly
    especially carefully merely solely exclusively basically absolutely highly strongly officially clearly
    nightly weekly daily hourly yearly quarterly
    business leftward
    only likely hardly lately nearly mainly shortly friendly monthly family
    conference reference station ration nation mission passion fashion session pension
    police latter letter matter better best worse worst early earlier
        """,
    )
)
_ADVERB: Final = re.compile(r"(?<=ic)ally$|(?<=[a-z]al|ive|ous|ent|ant)ly$")
_VERBAL: Final = re.compile(r"(?<=[a-z](?:al|nt))(?:ed|ing)$")
_VERB_IZE: Final = re.compile(r"(?<=[a-z]{3})iz(?:e|es|ed|ing|er|ers|ation|ations)$")


@lru_cache(maxsize=16_384)
def american(word: str) -> str:
    """Return a word in lower case as it is spelt in American English."""
    if word in _NOT_BRITISH or len(word) < 4 or not _ANY_BRITISH.search(word):
        return word
    for pattern, other in _BRITISH:
        word = pattern.sub(other, word)
    return word


@lru_cache(maxsize=16_384)
def base_of(word: str) -> str:
    """Return the form that a word shares with its other numbers and tenses, however it is spelt."""
    plain = american(_ODD.get(word, word))
    if not plain.isascii() or not plain.isalpha():
        return stem(plain)
    if plain in _APART:
        return plain
    if _ADVERB.search(plain):
        plain = _ADVERB.sub("", plain)
    single = _singular(_VERBAL.sub("", plain))
    if single in _APART:
        return single
    if _VERB_IZE.search(plain):
        return _VERB_IZE.sub("iz", plain)
    if len(single) > _SHORT and _OWN_ENDING.search(single) and single not in _OF_VERBS:
        return single
    return stem(plain)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > _SHORT:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
