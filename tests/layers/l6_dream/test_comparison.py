"""Equal and similar memories, checked against every pair by brute force."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.layers.l6_dream.comparison import equal_groups, similar_groups
from reverie.memories.store.records import MemoryRecord

texts = st.lists(
    st.sampled_from(["the", "port", "of", "staging", "is", "not", "5432", "5433", "on", "Anna", "Bob"]), max_size=7
).map(" ".join)
memories = st.lists(texts, max_size=8).map(
    lambda bodies: {
        f"{at}.md": MemoryRecord(f"{at}.md", "", type="project", body=body) for at, body in enumerate(bodies)
    }
)


def differs_at_one_place(one: list[str], other: list[str]) -> bool:
    """Return whether one run of at most two words, at most a third of all, makes one text into the other."""
    for start in range(min(len(one), len(other)) + 1):
        for slot, new in ((slot, new) for slot in range(3) for new in range(3)):
            same_end = one[start + slot :] == other[start + new :]
            kept, apart = start + len(one) - start - slot, max(slot, new)
            fits = slot <= len(one) - start and new <= len(other) - start and kept >= max(3, 2 * apart)
            if one[:start] == other[:start] and same_end and fits:
                return True
    return False


def are_of_two_things(one: list[str], other: list[str]) -> bool:
    """Return whether each other word stands in the place of one word, in two or more places, not only in numbers."""
    if len(one) != len(other):
        return False
    pairs = list(zip(one, other, strict=True))
    runs = "".join("x" if a != b else " " for a, b in pairs).split()
    names = [a for a, b in pairs if a != b and not a.isdigit() and not b.isdigit()]
    swapped = {a for a, b in pairs if a != b} & {b for a, b in pairs if a != b}
    return len(runs) > 1 and bool(names) and not swapped and 2 * sum(map(len, runs)) < len(pairs)


@pytest.mark.requirement("L6.11")
@given(memories, st.sampled_from([0.5, 0.8, 1.0]))
def test_no_similar_pair_is_passed_over_and_no_other_one_is_asked_about(
    given_: dict[str, MemoryRecord], least: float
) -> None:
    links: dict[str, set[str]] = {file: {file} for file in given_}
    for one, other in combinations(given_, 2):
        first, second = (Counter(given_[file].body.casefold().split()) for file in (one, other))
        shared, total = (first & second).total(), first.total() + second.total()
        apart = max(first.total(), second.total()) - shared
        words = [given_[file].body.casefold().split() for file in (one, other)]
        near = shared >= 3 and (apart <= 1 or 2 * shared >= least * total)
        near = (near or differs_at_one_place(*words)) and not are_of_two_things(*words)
        if near or (words[0] and words[0] == words[1]):
            merged = links[one] | links[other]
            links.update(dict.fromkeys(merged, merged))
    expected = {frozenset(group) for group in links.values() if len(group) > 1}
    assert {frozenset(group) for group in similar_groups(given_, least)} == expected


@pytest.mark.requirement("L6.11")
def test_memories_that_are_alike_by_meaning_are_similar_unless_they_are_about_two_things() -> None:
    bodies = {
        "a.md": "A canary comes before each deploy",
        "b.md": "New versions go to a few users first",
        "c.md": "The sales team of Ulm sits in room 4 near the lift",
        "d.md": "The sales team of Bonn sits in room 9 near the lift",
    }
    given_ = {file: MemoryRecord(file, file, body=body, type="project") for file, body in bodies.items()}
    given_["b.md"] = MemoryRecord("b.md", "b", body=bodies["b.md"], type="feedback")
    assert similar_groups(given_, 0.8) == []
    alike = {("a.md", "b.md"), ("c.md", "d.md"), ("a.md", "gone.md")}
    assert similar_groups(given_, 0.8, alike) == [["a.md", "b.md"]]


@pytest.mark.requirement("L6.11")
@given(memories)
def test_only_equal_words_in_order_are_one(given_: dict[str, MemoryRecord]) -> None:
    for group in equal_groups(given_):
        assert len({tuple(given_[file].body.casefold().split()) for file in group}) == 1
    listed = [file for group in equal_groups(given_) for file in group]
    counts = Counter(memory.body.casefold() for memory in given_.values() if memory.body)
    assert len(listed) == len(set(listed)) == sum(many for many in counts.values() if many > 1)
