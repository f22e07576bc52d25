"""Stems: one form for the many a word has, so that a question finds what was said in another tense or number.

Suffixes go by rules for English in the manner of Porter (1980), with the common verbs and nouns that follow none. Words
of other scripts are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, TypeAlias

__all__ = ["stem"]

_FORMS: Final = """
    be: am are been is was were | become: became | begin: began begun | bite: bit bitten | blow: blew blown
    break: broke broken | bring: brought | build: built | burn: burnt | buy: bought | catch: caught
    choose: chose chosen | come: came | deal: dealt | dig: dug | do: did does done | draw: drawn drew
    dream: dreamt | drink: drank drunk | drive: driven drove | eat: ate eaten | fall: fallen fell | feed: fed
    feel: felt | fight: fought | find: found | fly: flew flown | forget: forgot forgotten | forgive: forgave forgiven
    freeze: froze frozen | get: got gotten | give: gave given | go: goes gone went | grow: grew grown | hang: hung
    have: had has | hear: heard | hide: hid hidden | hold: held | keep: kept | know: knew known | lay: laid
    lead: led | learn: learnt | leave: left | lend: lent | lie: lain lying | light: lit | lose: lost | make: made
    mean: meant | meet: met | pay: paid | ride: ridden rode | ring: rang rung | rise: risen rose | run: ran
    say: said | see: saw seen | seek: sought | sell: sold | send: sent | shake: shaken shook | shine: shone
    shoot: shot | show: shown | shrink: shrank shrunk | sing: sang sung | sink: sank sunk | sit: sat
    sleep: slept | speak: spoke spoken | spend: spent | stand: stood | steal: stole stolen | stick: stuck
    strike: struck | swear: swore sworn | sweep: swept | swim: swam swum | take: taken took | teach: taught
    tear: tore torn | tell: told | think: thought | throw: threw thrown | tie: tying | understand: understood
    wake: woke woken | wear: wore worn | win: won | write: written wrote | die: died dying
    child: children | foot: feet | half: halves | knife: knives | leaf: leaves | life: lives | loaf: loaves
    man: men | mouse: mice | person: people | shelf: shelves | thief: thieves | tooth: teeth | wife: wives
    wolf: wolves | woman: women | index: indexes indices | matrix: matrices | datum: data | schema: schemata
    good: best better | bad: worse worst | far: farther farthest further
"""
_IRREGULAR: Final[dict[str, str]] = {
    form: base.strip()
    for line in _FORMS.replace("|", "\n").splitlines()
    for base, colon, forms in [line.partition(":")]
    if colon
    for form in forms.split()
}
_VOWELS: Final = frozenset("aeiou")
_DERIVED: Final = (
    *(("ational", "ate"), ("ization", "ize"), ("fulness", "ful"), ("ousness", "ous"), ("iveness", "ive")),
    *(("tional", "tion"), ("biliti", "ble"), ("lessli", "less"), ("fulli", "ful"), ("entli", "ent"), ("ousli", "ous")),
    *(("ation", "ate"), ("alism", "al"), ("aliti", "al"), ("iviti", "ive"), ("enci", "ence"), ("anci", "ance")),
    *(("izer", "ize"), ("ator", "ate"), ("abli", "able"), ("alli", "al"), ("eli", "e"), ("li", "")),
)
_SHORTENED: Final = (
    *(("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ness", ""), ("ful", "")),
)
_DROPPED: Final = (
    *("ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ist", "ate", "iti", "ous", "ive"),
    *("ize", "ion", "al", "er", "ic", "or", "i"),
)
_Rules: TypeAlias = Mapping[str, tuple[tuple[str, str], ...]]


def _by_last_letter(rules: Iterable[tuple[str, str]]) -> _Rules:
    """Return rules by the last letter of their suffix, so that a word is held against few of them."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for rule in rules:
        found[rule[0][-1]] = (*found.get(rule[0][-1], ()), rule)
    return found


_TO_DERIVE: Final = _by_last_letter(_DERIVED)
_TO_SHORTEN: Final = _by_last_letter(_SHORTENED)
_TO_DROP: Final = _by_last_letter((suffix, "") for suffix in _DROPPED)
_MIN_CHARS: Final = 4
_MAX_CHARS: Final = 30


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of a word in lower case; what is short, long or not of plain letters stays as it is."""
    word = _IRREGULAR.get(word, word)
    if not _MIN_CHARS <= len(word) <= _MAX_CHARS or not (word.isascii() and word.isalpha()):
        return word
    word = _without_tense(_without_plural(word))
    word = _IRREGULAR.get(word, word)
    word = _without_degree(word)
    if word[-1] == "y" and len(word) > 2 and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    word = _replaced(_replaced(word, _TO_DERIVE), _TO_SHORTEN)
    return _without_final_e(_without_suffix(word))


def _without_plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ies", "ied")):
        return word[:-2] if len(word) > _MIN_CHARS else word[:-1]
    return word[:-1] if word[-1] == "s" and word[-2] not in "siu" else word


def _without_tense(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _syllables(word[:-3]) else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        base = word.removesuffix(suffix)
        if base == word or len(base) < 2 or not _has_vowel(base):
            continue
        if base.endswith(("at", "bl", "iz")) or (len(base) == 3 and _ends_short(base)):
            return base + "e"  # creating, enabling, making: the e went with the ending
        doubled = len(base) > 2 and base[-1] == base[-2] and base[-1] not in "aeiouylsz"
        return base[:-1] if doubled else base
    return word


def _without_degree(word: str) -> str:
    for suffix in ("iest", "ier"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word.removesuffix(suffix) + "y"
    return word


def _replaced(word: str, rules: _Rules) -> str:
    for suffix, other in rules.get(word[-1], ()):
        if word.endswith(suffix):
            base = word.removesuffix(suffix)
            return base + other if _syllables(base) else word
    return word


def _without_suffix(word: str) -> str:
    for suffix, _ in _TO_DROP.get(word[-1], ()):
        if not word.endswith(suffix):
            continue
        base = word.removesuffix(suffix)
        long_enough = _syllables(base) > 1 or (suffix == "i" and len(base) >= _MIN_CHARS)
        return base if long_enough and (suffix != "ion" or base[-1] in "st") else word
    return word


def _without_final_e(word: str) -> str:
    if word[-1] == "e" and len(word) >= _MIN_CHARS:
        base = word[:-1]
        if len(word) > _MIN_CHARS or _syllables(base) > 1 or (_syllables(base) == 1 and not _ends_short(base)):
            word = base
    return word[:-1] if word.endswith("ll") and _syllables(word) > 1 else word


def _has_vowel(word: str) -> bool:
    return any(letter in _VOWELS or (letter == "y" and at > 0) for at, letter in enumerate(word))


def _ends_short(word: str) -> bool:
    """Say whether a word ends in consonant, vowel, consonant, as in ``hop`` of ``hoping``."""
    return len(word) >= 3 and word[-1] not in "aeiouwxy" and word[-2] in _VOWELS and word[-3] not in _VOWELS


def _syllables(word: str) -> int:
    """Count how often a vowel is followed by a consonant."""
    count, after_vowel = 0, False
    for at, letter in enumerate(word):
        vowel = letter in _VOWELS or (letter == "y" and at > 0 and word[at - 1] not in _VOWELS)
        count += after_vowel and not vowel
        after_vowel = vowel
    return count
