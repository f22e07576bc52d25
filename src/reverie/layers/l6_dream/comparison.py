"""Compare memories by their normalised words: equal ones are merged, similar ones become questions.

There is no vocabulary here. A number, a name or a "not" is a word like any other, so one different word makes two
memories similar and never equal.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from ...memories.store.records import MemoryRecord
from ...text.words import has_run, words
from .changes import Question

__all__ = ["equal_groups", "similar_groups", "similarity_question"]

_FEW_WORDS: Final = 3
"""The fewest words that two similar memories share."""
_QUOTE_CHARS: Final = 240
_MAX_DIFFERENT_WORDS: Final = 6
_REASONS: Final = ("\n**Why:**", "\n**How to apply:**")


def equal_groups(memories: Mapping[str, MemoryRecord]) -> list[list[str]]:
    """Return groups of files whose memories have the same type and the same words in the same order."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for file, memory in sorted(memories.items()):
        if said := _all_words(memory):
            groups[memory.type, said].append(file)
    return [files for files in groups.values() if len(files) > 1]


def _all_words(memory: MemoryRecord) -> tuple[str, ...]:
    """Return the words of name, description and body; a name or description that the body repeats is left out."""
    body = words(memory.body)
    heads = (words(memory.name), words(memory.description))
    return tuple(word for head in heads if not has_run(body, head) for word in head) + body


def similar_groups(memories: Mapping[str, MemoryRecord], least: float) -> list[list[str]]:
    """Return groups of files whose memories have the same type and nearly the same words.

    Two are similar if they differ in one word, or if they have at least ``least`` of their words in common (Dice).
    """
    claims = {file: _numbered(_claim(memory)) for file, memory in memories.items()}
    group = {file: {file} for file in memories}
    for one, other in _candidates(claims, least):
        same_type = memories[one].type == memories[other].type
        if same_type and group[one] is not group[other] and _is_similar(claims[one], claims[other], least):
            group[one] |= group[other]
            group.update(dict.fromkeys(group[other], group[one]))
    found = {id(files): sorted(files) for files in group.values() if len(files) > 1}
    return sorted(found.values())


def _claim(memory: MemoryRecord) -> tuple[str, ...]:
    """Return the words of a memory's body without its reasons, which many share; else of its description."""
    body = memory.body
    for label in _REASONS:
        body = body.split(label, 1)[0]
    return words(body) or words(memory.description)


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


def _candidates(claims: Mapping[str, frozenset[tuple[str, int]]], least: float) -> Iterator[tuple[str, str]]:
    """Yield the pairs of files that can be similar: each such pair shares one of the rarest words of both."""
    counts = Counter(word for said in claims.values() for word in said)
    share = least / (2 - least)  # the smallest share of its words that a memory shares with a similar one
    having: dict[tuple[str, int], list[str]] = defaultdict(list)
    for file in sorted(claims):
        ranked = sorted(claims[file], key=lambda word: (counts[word], word))
        rarest = ranked[: max(2, len(ranked) - math.ceil(share * len(ranked)) + 1)]
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
    only = [", ".join(list(extra)[:_MAX_DIFFERENT_WORDS]) or "nothing" for extra in (first - second, second - first)]
    differ = f"Only the first has: {only[0]}; only the second: {only[1]}."
    text = f"{_quote(one)} {_quote(other)} {differ} {newest} If both say one thing, or only one holds, keep one."
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
