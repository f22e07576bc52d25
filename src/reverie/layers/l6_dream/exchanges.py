"""Facts that have changed places: the same words, and another meaning."""

from __future__ import annotations

from typing import Final

from .lexicon import normal
from .statements import Statement
from .words import Word

__all__ = ["exchanged", "governed"]

_TURNED: Final = frozenset(map(normal, ("be", "by", "is", "get", "become", "mean")))
"""With one of these, what is said first may be either side."""
_AGAINST: Final = frozenset(map(frozenset, (("from", "to"), ("to", "by"), ("for", "by"))))
_USER: Final = frozenset(map(normal, ("user", "enduser")))
_SUBJECTS: Final = frozenset(map(normal, ("you", "we", "they", "he", "she", "it", "i", "there", "be")))
"""Where one of these stands, what came before has no hold on what comes."""
_THEN: Final = frozenset(map(normal, ("then", "afterwards", "next")))
_PREPOSITIONS: Final = frozenset(
    map(
        normal,
        ("in", "on", "at", "for", "with", "from", "to", "of", "via", "through", "as", "into", "over", "per", "within"),
    )
)


def exchanged(one: Statement, other: Statement) -> list[Word]:
    """Return two words that have changed places: of one kind, or each in the clause where the other was."""
    return (
        _turned_round(one, other)
        or _exchanged_facts(one, other)
        or _exchanged_clauses(one, other)
        or _exchanged_sides(one, other)
        or _exchanged_parts(one, other)
        or _exchanged_steps(one, other)
    )


def _turned_round(one: Statement, other: Statement) -> list[Word]:
    """Return what one statement comes from and the other goes to, or what does it here and is given it there."""
    ways = {word.form: word.after for word in other.words}
    return [word for word in one.words if frozenset((word.after, ways.get(word.form, ""))) in _AGAINST]


def _exchanged_clauses(one: Statement, other: Statement) -> list[Word]:
    mine, theirs = _by_clause(one), _by_clause(other)
    cells: dict[tuple[int, int], Word] = {}
    for form, word in mine.items():
        if form in theirs:
            cells.setdefault((word.clause, theirs[form].clause), word)
    for (first, second), word in cells.items():
        for (third, fourth), opposite in cells.items():
            if first < third and second != fourth and (first, fourth) in cells and (third, second) in cells:
                return [word, opposite]
    return []


def _exchanged_sides(one: Statement, other: Statement) -> list[Word]:
    """Return who does something and to whom, where these are the other way round and no passive explains it."""
    if any(word.form in _TURNED for statement in (one, other) for word in statement.every):
        return []
    mine, theirs = _bare(one), _bare(other)
    places = {form: at for at, form in enumerate(theirs)}
    common = [form for form in mine if form in places]
    for at in range(1, len(common) - 1):
        here = places[common[at]]
        first = next((form for form in common[:at] if places[form] > here), None)
        last = next((form for form in common[at + 1 :] if places[form] < here), None)
        if first and last:
            return [mine[first], mine[last]]
    return []


def _exchanged_parts(one: Statement, other: Statement) -> list[Word]:
    """Return what depends on what, where the one that had the preposition is now without it and the other has it."""
    mine, theirs = governed(one), governed(other)
    gained = {theirs[form] for form in mine if not mine[form] and theirs.get(form)}
    lost = {mine[form] for form in theirs if not theirs[form] and mine.get(form)}
    both = (gained & lost) - {"of", "at"}
    return [word for word in one.words if {mine.get(word.form), theirs.get(word.form)} & both] if both else []


def governed(statement: Statement) -> dict[str, str]:
    """Return the preposition before each word that stands once; empty where there is none in its clause."""
    found: dict[str, str] = {}
    clause, before = 0, ""
    for word in statement.every:
        if word.clause != clause:
            clause, before = word.clause, ""
        if word.light:
            before = word.form if word.form in _PREPOSITIONS or word.form == "by" else before
            before = "" if word.form in _SUBJECTS else before
        elif word.slot != "when":
            found[word.form] = "of" if word.form in found else before
    return found


def _exchanged_steps(one: Statement, other: Statement) -> list[Word]:
    """Return what comes first here and last there, where both tell one thing after another."""
    mine, theirs = _later_steps(one), _later_steps(other)
    if not mine or not theirs:
        return []
    return [word for word in one.words if (word.form in mine) != (word.form in theirs) and word.form in other.forms]


def _later_steps(statement: Statement) -> frozenset[str]:
    """Return the words behind the last "then"."""
    forms = [word.form for word in statement.every]
    at = max((number for number, form in enumerate(forms) if form in _THEN), default=None)
    return frozenset() if at is None else frozenset(word.form for word in statement.every[at + 1 :] if not word.light)


def _bare(statement: Statement) -> dict[str, Word]:
    """Return the words of the first clause before any preposition: who, does what, to whom."""
    found: dict[str, Word] = {}
    for word in statement.every:
        if word.clause != statement.every[0].clause or word.form in _PREPOSITIONS:
            break
        if word.joined:
            return {}
        if word.form in _USER:
            found.setdefault("user", word)
        elif not word.light:
            found.setdefault(word.form, word)
    return found


def _by_clause(statement: Statement) -> dict[str, Word]:
    """Return the words that stand once in a statement."""
    once: dict[str, Word] = {}
    twice: set[str] = set()
    for word in statement.words:
        if word.form in once:
            twice.add(word.form)
        once[word.form] = word
    return {form: word for form, word in once.items() if form not in twice}


def _exchanged_facts(one: Statement, other: Statement) -> list[Word]:
    mine = {word.form: at for at, word in enumerate(one.words)}
    theirs = {word.form: at for at, word in enumerate(other.words)}
    slots = {form: one.words[at].slot or other.words[theirs[form]].slot for form, at in mine.items() if form in theirs}
    facts = [form for form, slot in slots.items() if slot]
    for number, form in enumerate(facts):
        for second in facts[number + 1 :]:
            pair = one.words[mine[form]], one.words[mine[second]]
            others = other.words[theirs[form]], other.words[theirs[second]]
            if slots[form] == slots[second] and _crossed(one, other, pair, others):
                return list(pair)
    return []


def _crossed(one: Statement, other: Statement, pair: tuple[Word, Word], others: tuple[Word, Word]) -> bool:
    """Say whether two facts stand the other way round: each beside what the other stood beside."""
    if _are_listed(one, pair) and _are_listed(other, others):
        return False
    if pair[0].after != pair[1].after and (pair[0].after, pair[1].after) == (others[1].after, others[0].after):
        return True
    beside = [_beside(one, word, pair) for word in pair]
    besides = [_beside(other, word, others) for word in others]
    straight = len(beside[0] & besides[0]) + len(beside[1] & besides[1])
    crossed = len(beside[0] & besides[1]) + len(beside[1] & besides[0])
    if crossed > straight:
        return True
    if crossed < straight or any(word.joined or word.after == "by" for word in (*pair, *others)):
        return False
    between, betweens = _between(one, *pair), _between(other, *others)
    turned = between[1] != betweens[1]
    return turned and bool(between[0]) and between[0] == betweens[0]


def _are_listed(statement: Statement, pair: tuple[Word, Word]) -> bool:
    """Say whether two words stand in one list, joined by "and" or a comma: Christmas and New Year."""
    first, second = sorted(statement.words.index(word) for word in pair)
    run = statement.words[first : second + 1]
    return len({word.slot for word in run}) == 1 and any(word.joined for word in run[1:])


def _between(statement: Statement, first: Word, second: Word) -> tuple[set[str], bool]:
    """Return what stands between two words of a statement, and whether the first comes first."""
    one, other = statement.words.index(first), statement.words.index(second)
    return {word.form for word in statement.words[min(one, other) + 1 : max(one, other)]}, one < other


def _beside(statement: Statement, word: Word, pair: tuple[Word, Word]) -> set[str]:
    forms = {one.form for one in pair}
    return {one.form for one in statement.words if one.clause == word.clause and one.form not in forms}
