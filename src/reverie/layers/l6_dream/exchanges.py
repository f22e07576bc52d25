"""Facts that have changed places: the same words, and another meaning."""

from __future__ import annotations

from .statements import Statement
from .words import Word

__all__ = ["exchanged"]


def exchanged(one: Statement, other: Statement) -> list[Word]:
    """Return two words that have changed places: of one kind, or each in the clause where the other was."""
    return _turned_round(one, other) or _exchanged_facts(one, other) or _exchanged_clauses(one, other)


def _turned_round(one: Statement, other: Statement) -> list[Word]:
    """Return what one statement comes from and the other goes to."""
    ways = {word.form: word.after for word in other.words}
    return [word for word in one.words if {word.after, ways.get(word.form)} == {"from", "to"}]


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


def _between(statement: Statement, first: Word, second: Word) -> tuple[set[str], bool]:
    """Return what stands between two words of a statement, and whether the first comes first."""
    one, other = statement.words.index(first), statement.words.index(second)
    return {word.form for word in statement.words[min(one, other) + 1 : max(one, other)]}, one < other


def _beside(statement: Statement, word: Word, pair: tuple[Word, Word]) -> set[str]:
    forms = {one.form for one in pair}
    return {one.form for one in statement.words if one.clause == word.clause and one.form not in forms}
