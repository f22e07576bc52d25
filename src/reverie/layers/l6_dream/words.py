"""Words of a sentence in their normal form, each with its kind and whether it is denied.

Two ways to write one fact become the same words here: spelling, tense, order of day and month, digits, units, synonyms.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ...memories.dates import DAYS, MONTHS
from ...values import record, replace
from .lemmas import base_of
from .lexicon import ACTS, GENERIC, LIGHT, NEGATIVE, is_family, is_phrase, kind_of, normal
from .plain import CURRENCIES, NUMBERS, UNITS, plain

__all__ = ["HARD", "Word", "weight_of", "words_of"]

HARD: Final = frozenset({"number", "time", "date", "unit", "code", "name", "weekday", "month", "currency"})
"""Kinds of words that are facts by themselves: another one is another fact."""
_DAYS: Final = {form: day for day in DAYS for form in (day, f"{day}s")}
_WEEKDAY_SHORT: Final = {
    "mon": "monday",
    "tue": "tuesday",
    "tues": "tuesday",
    "wed": "wednesday",
    "thu": "thursday",
} | {
    "thurs": "thursday",
    "fri": "friday",
}
_WORD: Final = re.compile(
    r"(?P<url>[a-z][a-z+]{1,9}://[^\s)>\]}\"'`]+)"
    r"|(?P<mail>[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]+)"
    r"|(?P<iso>\d{4}-\d\d(?:-\d\d)?(?!\d))"
    r"|(?P<clock>\d\d:\d\d)"
    r"|(?P<flag>(?<!\w)--?[a-z][\w-]*)"
    r"|(?P<path>~?[\w.@*-]{0,64}(?:[/\\][\w.@*-]+)+/?)"
    r"|(?P<ticket>#[\w-]+|\b[a-z]{2,}(?:-[a-z]+){0,3}-\d+\b)"
    r"|(?P<version>v\d+(?:\.\d+)*|\d+(?:\.\d+){2,})"
    r"|(?P<money>[$€£]\s?\d+(?:\.\d+)?)"
    r"|(?P<measure>\d+(?:\.\d+)? ?(?:" + "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True)) + r")(?!\w))"
    r"|(?P<number>\d+(?:\.\d+)?(?:st|nd|rd|th)?(?![\w]))"
    r"|(?P<code>\w+(?:\.\w+)+|\w*_\w+(?:_\w+)*|\w*\d\w*)"
    r"|(?P<word>[^\W\d_]+(?:['’][^\W\d_]+)*)"
    r"|(?P<stop>[,;:()—–]|\s-\s)"
)
_HYPHENED: Final = re.compile(r"\w-")
_BREAKS: Final = frozenset(
    ("but", "while", "whereas", "because", "since", "although", "so", "if", "when", "unless", "until", "and", "or")
)
_CONTRAST: Final = frozenset({"instead_of", "without"})
_BEFORE_VALUES: Final = frozenset(map(normal, ("with", "in", "by", "via", "of", "use", "gnu", "bsd")))
_VALUES: Final = frozenset(map(normal, ("make", "just", "go", "get", "put", "note", "turn", "see")))
"""Words of grammar that are names behind such a word: built with make, written in go."""
_DOER: Final = re.compile(r"[eo]rs?\Z")
_FEW: Final = 30
_THINGS: Final = frozenset(
    map(
        base_of,
        re.findall(
            r"\w+",
            "service team api app module project server table column channel queue topic bucket board component job "
            "library cluster page endpoint repo package plugin database gateway worker department committee account",
        ),
    )
)
_END_USER: Final = normal("enduser")
_ORDERING: Final = frozenset(map(normal, ("please", "just", "and", "so", "then", "also", "always", "do")))
_WHEN_TOLD: Final = frozenset(map(normal, ("stop", "skip", "reject", "refuse")))
"""Words that deny only as an order: "stop mocking", but not "the importer skips bad rows"."""
_COMPARED: Final = frozenset({"over", "than", "to"})
_CHOOSING: Final = frozenset(map(normal, ("prefer", "choose")))
_PREPOSITIONS: Final = frozenset(("to", "in", "for", "on", "at", "when", "during", "by", "with", "as"))
_PARTS: Final = frozenset(map(normal, ("from", "to", "by", "before", "after", "until", "since", "for", "of", "with")))
_LEADING: Final = frozenset(map(normal, ("in", "on", "for", "at", "during", "from", "when", "with", "within", "as")))


@record
class Word:
    """A word of a statement in its normal form."""

    form: str
    kind: str = "word"
    denied: bool = False
    locally: bool = False
    """Whether the denial is of this word alone: "not npm", "without sugar"."""
    parts: tuple[str, ...] = ()
    compound: bool = False
    """Whether it is what follows a hyphen: no word of grammar there, as in "opt-out"."""
    whole: bool = False
    """Whether its parts, standing in another text, are not yet the word itself: a path, an address."""
    shown: str = ""
    """As it was written."""
    clause: int = 0
    joined: bool = False
    """Whether it follows another by "and", "or" or a comma."""
    slot: str = ""
    """What kind of value it is, if it is one: another of that kind in its place is another fact."""
    base: str = ""
    """Its stem, where another word with the same form may stand for something else."""
    after: str = ""
    """The word before it that says its part: from, to, by, before, after, over."""
    names_thing: bool = False
    """Whether it stands before a word such as service or table: part of a name, where no other word will do."""

    @property
    def light(self) -> bool:
        """Whether it carries no fact of its own."""
        return self.kind == "word" and self.form in LIGHT and not self.compound


def weight_of(word: Word) -> float:
    """Return how much a word counts when statements are held against each other."""
    if word.kind in HARD:
        return 1.3
    return 0.4 if word.form in GENERIC else 1.0


@lru_cache(maxsize=4_096)
def words_of(text: str, names: frozenset[str]) -> tuple[Word, ...]:
    """Return the words of a sentence; ``names`` are those that are written as names somewhere in its text."""
    made: list[Word] = []
    clause, contrast, after = 0, False, ""
    chosen = stated = False
    text = plain(text)
    for found in _WORD.finditer(text):
        kind, said = found.lastgroup or "word", found.group()
        if kind == "stop":
            clause, contrast, after = clause + 1, False, ""
            continue
        compound = _HYPHENED.match(text, found.start() - 2) is not None if found.start() > 1 else False
        for word in _made(kind, said, names):
            if word.form in _BREAKS and word.kind == "word":
                clause, contrast = clause + 1, False
            if word.form in _CONTRAST or (chosen and word.form in _COMPARED and _is_choice(made, word)):
                contrast = True
            elif contrast and word.form in _PREPOSITIONS and made and not made[-1].light:
                contrast = False  # "rather than mocks in tests": the tests are not denied
            if word.form in _PARTS:
                after = word.form
            if word.form == "user" and stated:
                word = Word(_END_USER, shown=word.shown)  # whom something is done to, not whose memory it is
            previous = made[-1] if made else None
            value = previous is not None and previous.form in _BEFORE_VALUES and word.form in _VALUES
            joined = previous is not None and (previous.form in ("and", "or") or clause > previous.clause)
            made.append(
                Word(
                    word.form,
                    word.kind,
                    contrast,
                    contrast,
                    word.parts,
                    compound or value,
                    word.whole,
                    word.shown,
                    clause,
                    joined,
                    _slot(word),
                    word.base or word.form,
                    after,
                )
            )
            chosen = chosen or word.form in _CHOOSING
            if not made[-1].light:
                after, stated = "", True
    return tuple(_denied(_named_things(made)))


def _named_things(words: list[Word]) -> list[Word]:
    """Mark what stands before a word such as service: the billing service is not the invoicing service."""
    made = list(words)
    for at, word in enumerate(words[1:]):
        if word.base in _THINGS and not word.joined and made[at].kind == "word" and not made[at].light:
            made[at] = replace(made[at], names_thing=True)
    return made


def _is_choice(words: list[Word], word: Word) -> bool:
    """Say whether what comes is what something was preferred to: "tabs to spaces", and not "prefers to be asked"."""
    if word.form == "to" and any(one.denied for one in words[-_FEW:]):
        return False  # "over pip to install packages"
    last = words[-1]
    return word.form != "to" or not (last.light or last.form in _CHOOSING or last.form in NEGATIVE)


def _slot(word: Word) -> str:
    if word.kind in ("date", "month", "weekday", "time"):
        return "when"
    kind = kind_of(word.form)
    if kind in ACTS and _DOER.search(word.shown):
        return ""
    return kind or (word.kind if word.kind in HARD else "")


def _made(kind: str, said: str, names: frozenset[str]) -> list[Word]:
    """Return the words that one match is: a measure is a number and its unit."""
    if kind == "word":
        return _plain_words(said, names)
    if kind == "code" and is_phrase(said):
        parts = tuple(map(base_of, said.split("_")))
        return [Word(normal(said), parts=parts, base=said, shown=said.replace("_", " "))]
    if kind in ("url", "mail", "path", "flag", "ticket", "code"):
        shown = said.rstrip(".,:;!?/").removeprefix("./")
        parts = tuple(map(base_of, re.findall(r"[^\W\d_]{2,}", shown)))
        whole = kind != "code" or len(parts) < 2 or "." in shown
        return [Word(shown, "code", parts=parts, whole=whole, shown=shown.removeprefix("letter_"))]
    if kind in ("iso", "clock"):
        return [Word(said, "date" if kind == "iso" else "time", shown=said)]
    if kind == "version":
        return [Word(said.removeprefix("v"), "number", shown=said)]
    if kind == "money":
        return [
            Word(_digits(said[1:].strip()), "number", shown=said),
            Word(CURRENCIES[said[0]], "currency", shown=said),
        ]
    digits = re.match(r"\d+(?:\.\d+)?", said)
    number = Word(_digits(digits.group()) if digits else said, "number", shown=said)
    if kind == "number":
        return [number]
    unit = said[digits.end() :].strip() if digits else ""
    return [number, Word(f"unit:{UNITS[unit]}", "unit", parts=(base_of(unit),), shown=unit)]


def _digits(number: str) -> str:
    return (number.rstrip("0").rstrip(".") if "." in number else number.lstrip("0")) or "0"


_SHOUTED: Final = frozenset(
    re.findall(r"\w+", "get put us it set go done will may use see make need who mind note windows")
)
"""Words of grammar that are names where they are written as such: a GET request, the language Go, the column Done."""


def _plain_words(said: str, names: frozenset[str]) -> list[Word]:
    base, apostrophe, ending = said.partition("'")
    if apostrophe and ending == "t":
        root = {"don": "do", "doesn": "do", "didn": "do", "can": "can", "won": "will", "isn": "be", "aren": "be"}
        return [Word(root.get(base, "do")), Word("not", shown=said)]
    if base in _DAYS:
        return [Word(_DAYS[base], "weekday", shown=said)]
    if base in _WEEKDAY_SHORT and base in names:
        return [Word(_WEEKDAY_SHORT[base], "weekday", shown=said)]
    if base in MONTHS and (base not in ("may", "march") or base in names):
        return [Word(base, "month", shown=said)]
    if base in NUMBERS and base != "one":
        return [Word(NUMBERS[base], "number", shown=said)]
    if base in CURRENCIES and base != "pounds":
        return [Word(CURRENCIES[base], "currency", shown=said)]
    if base in _SHOUTED and f"^{base}" in names:
        form = normal(f"^{base}")
        return [Word(form, "word" if kind_of(form) else "name", shown=said)]
    form = normal(base)
    known = form in LIGHT or form in NEGATIVE or is_family(form) or kind_of(form)
    named = base in names and not known
    return [Word(form, "name" if named else "word", shown=said, base=base_of(base))]


def _denied(words: list[Word]) -> list[Word]:
    """Mark what is denied: all of a clause with "not" in it, or what follows where a contrast is drawn."""
    made: list[Word] = []
    by_clause: dict[int, list[Word]] = {}
    for word in words:
        by_clause.setdefault(word.clause, []).append(word)
    if by_clause.get(0) and by_clause[0][0].form in _LEADING and 1 in by_clause:  # "In tests, do not ..."
        by_clause = {1: by_clause.pop(0) + by_clause.pop(1), **by_clause}
    carried = False
    for number, clause in by_clause.items():
        opening = next((index for index, word in enumerate(clause) if word.form not in _ORDERING), 0)
        at = [
            index
            for index, word in enumerate(clause)
            if word.kind == "word" and word.form in NEGATIVE and (index == opening or word.form not in _WHEN_TOLD)
        ]
        denied = (len(at) % 2 == 1) != carried
        first = at[0] if at else -1 if carried else 0
        # "Nobody but Ivan may": what is denied comes in the next clause.
        carried = denied and all(word.light or index in at for index, word in enumerate(clause))
        end = _end_of_contrast(clause) if number > 0 and first == 0 else len(clause)
        # ", not mocks" and "and never npm" deny what follows; "must not be mocked" denies the whole clause.
        for index, word in enumerate(clause):
            if index in at:
                continue
            negative = denied and (index > first or number == 0 or first > 0) and index < end
            alone = negative and first == 0 and number > 0
            made.append(replace(word, denied=not word.denied, locally=word.locally or alone) if negative else word)
    return made


def _end_of_contrast(clause: list[Word]) -> int:
    """Return where what is denied alone ends: in ", not pip for packages" the packages are not denied."""
    if clause[0].form != "not":
        return len(clause)
    content = next((index for index, word in enumerate(clause) if index and not word.light), len(clause))
    return next(
        (index for index, word in enumerate(clause) if index > content and word.form in _PREPOSITIONS), len(clause)
    )
