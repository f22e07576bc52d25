"""Compare memories by their normalised words: equal ones are merged, similar ones become questions.

There is no vocabulary here. A number, a name or a "not" is a word like any other, so one different word makes two
memories similar and never equal. In scripts without spaces each letter counts as a word.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from ...memories.rules.taxonomy import claim_of
from ...memories.store.records import MemoryRecord
from ...text.words import words
from .changes import Question

_FEW_WORDS: Final = 3
"""The fewest words that two similar memories share."""
_SLOT_WORDS: Final = 2
"""The most words of a number, a name or a negation, in which two similar memories may differ at one place."""
_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_PIECE: Final = re.compile(f"[{_UNSPACED}]|[^{_UNSPACED}]+")
_QUOTE_CHARS: Final = 240
_MAX_DIFFERENT_WORDS: Final = 6


def equal_groups(memories: Mapping[str, MemoryRecord]) -> list[list[str]]:
    """Return groups of files whose memories have the same type and a body of the same words in the same order."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for file, memory in sorted(memories.items()):
        if said := words(memory.body):
            groups[memory.type, said].append(file)
    return [files for files in groups.values() if len(files) > 1]


def adds_words(one: MemoryRecord, other: MemoryRecord | None = None) -> int:
    """Count the words in a memory's name and description that neither its body nor another memory has."""
    known = set(words(one.body))
    if other is not None:
        known |= {*words(other.name), *words(other.description)}
    return len({*words(one.name), *words(one.description)} - known)


def similar_groups(
    memories: Mapping[str, MemoryRecord], least: float, alike: Collection[tuple[str, str]] = ()
) -> list[list[str]]:
    """Return groups of files whose memories have the same words, the same type and nearly those, or are ``alike``.

    Two are similar if they differ in one word, if they differ in at most two words at one place and those are at most
    a third, or if they have at least ``least`` of their words in common (Dice). Two that put other words into the
    places of one sentence, a name among them, are about two things.
    """
    said = {file: _claim(memory) for file, memory in memories.items()}
    claims = {file: _numbered(one) for file, one in said.items()}
    group = {file: {file} for file in memories}
    for equal in map(set, equal_groups(memories)):
        group.update((file, equal) for file in equal)
    meant = [pair for pair in sorted(alike) if memories.keys() >= {*pair}]
    for one, other in (*_candidates(claims, least), *meant):
        may_match = memories[one].type == memories[other].type or said[one] == said[other]
        if group[one] is group[other] or _are_of_two_things(said[one], said[other]):
            continue
        by_words = _is_similar(claims[one], claims[other], least) or _differs_at_one_place(said[one], said[other])
        if (may_match and by_words) or (one, other) in alike:
            group[one] |= group[other]
            group.update(dict.fromkeys(group[other], group[one]))
    found = {id(files): sorted(files) for files in group.values() if len(files) > 1}
    return sorted(found.values())


def _claim(memory: MemoryRecord) -> tuple[str, ...]:
    """Return the words of a memory's body without its reasons, which many share; else of its description."""
    found = words(claim_of(memory.body)) or words(memory.description)
    return tuple(piece for word in found for piece in _PIECE.findall(word))


def _numbered(said: tuple[str, ...]) -> frozenset[tuple[str, int]]:
    """Return words as a set of pairs of word and occurrence, so that a repeated word counts again."""
    seen: Counter[str] = Counter()
    found: set[tuple[str, int]] = set()
    for word in said:
        seen[word] += 1
        found.add((word, seen[word]))
    return frozenset(found)


def _is_similar(one: frozenset[tuple[str, int]], other: frozenset[tuple[str, int]], least: float) -> bool:
    shared = len(one & other)
    if shared < _FEW_WORDS:
        return False
    return max(len(one), len(other)) - shared <= 1 or 2 * shared >= least * (len(one) + len(other))


def _differs_at_one_place(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    start, most = 0, min(len(one), len(other))
    while start < most and one[start] == other[start]:
        start += 1
    end = 0
    while end < most - start and one[-1 - end] == other[-1 - end]:
        end += 1
    apart = max(len(one), len(other)) - start - end
    return apart <= _SLOT_WORDS and start + end >= max(_FEW_WORDS, 2 * apart)


def _are_of_two_things(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Say whether two texts have other words in two or more places and differ in nothing else, nor only in numbers."""
    if len(one) != len(other):
        return False
    differ = [at for at, (word, new) in enumerate(zip(one, other, strict=True)) if word != new]
    places = sum(at - 1 not in differ for at in differ)
    named = any(not (one[at].isdigit() or other[at].isdigit()) for at in differ)
    swapped = {one[at] for at in differ} & {other[at] for at in differ}
    return places > 1 and named and not swapped and 2 * len(differ) < len(one)


def _candidates(claims: Mapping[str, frozenset[tuple[str, int]]], least: float) -> Iterator[tuple[str, str]]:
    """Yield the pairs of files that can be similar: each such pair shares one of the rarest words of both."""
    counts = Counter(word for said in claims.values() for word in said)
    share = least / (2 - least)  # the smallest share of its words that a memory shares with a similar one
    having: dict[tuple[str, int], list[str]] = defaultdict(list)
    for file in sorted(claims):
        ranked = sorted(claims[file], key=lambda word: (counts[word], word))
        rarest = ranked[: max(_SLOT_WORDS + 1, len(ranked) - math.ceil(share * len(ranked)) + 1)]
        others = {other for word in rarest for other in having[word]}
        yield from ((other, file) for other in sorted(others))
        for word in rarest:
            having[word].append(file)


# -- the question


def similarity_question(memories: list[MemoryRecord]) -> Question:
    """Return a question about similar memories; for two it quotes both and names the differing words."""
    files = tuple(memory.file for memory in memories)
    newest = _newest(memories)
    if len(memories) > 2:
        listed = ", ".join(files)
        text = f"{len(files)} memories are nearly the same: {listed}. {newest} If one no longer holds, forget it."
        return Question("similar", files, text)
    one, other = memories
    first, second = Counter(words(one.body)), Counter(words(other.body))
    only = [", ".join(list(extra)[:_MAX_DIFFERENT_WORDS]) for extra in (first - second, second - first)]
    sides = [f"only the {name} has: {extra}" for name, extra in zip(("first", "second"), only, strict=True) if extra]
    differ = "; ".join(sides) or "both have the same words"
    said = f"{_quote(one)} {_quote(other)} {differ[0].upper()}{differ[1:]}."
    text = f"{said} {newest} If both say one thing, or only one holds, keep one."
    return Question("similar", files, text)


def _quote(memory: MemoryRecord) -> str:
    plain = " ".join((memory.body.strip() or memory.description).split())
    shown = plain if len(plain) <= _QUOTE_CHARS else plain[: _QUOTE_CHARS - 1] + "…"
    return f"{memory.file} ({(memory.modified or memory.created)[:10] or 'no date'}) says “{shown}”"


def _newest(memories: list[MemoryRecord]) -> str:
    moments = [_moment(memory) for memory in memories]
    known = [moment for moment in moments if moment is not None]
    if len(known) < len(moments) or known.count(max(known)) > 1:
        return "None is known to be the newest."
    return f"{memories[known.index(max(known))].file} is the newest."


def _moment(memory: MemoryRecord) -> datetime | None:
    """Return when a memory was last changed, a date as the start of that day in UTC; None if it is invalid."""
    try:
        found = datetime.fromisoformat(memory.modified or memory.created)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
