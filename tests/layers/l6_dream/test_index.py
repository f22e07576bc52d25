"""The index after a dream: computed from the files, within its limits, with lines of people unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.layers.l6_dream.transaction import capped_index
from reverie.memories.store.index import MAX_BYTES, MAX_LINES, lines_of, load

PERSON = "# Mine\n\nA note of a person.\n- [Wiki](https://wiki.example) — not a memory\n"


def memory(number: int, *, trust: str = "agent", kind: str = "project", words: int = 5) -> bytes:
    head = f"name: memory {number}\ndescription: fact {number} {'of note ' * words}\ntype: {kind}\ntrust: {trust}"
    return f"---\n{head}\nmodified: 2026-01-{number % 28 + 1:02}T00:00:00Z\n---\nFact {number}.\n".encode()


def files(many: int, words: int = 5) -> dict[str, bytes]:
    return {f"project_{number}.md": memory(number, words=words) for number in range(many)}


@pytest.mark.requirement("L6.4", "M2")
@settings(max_examples=12)
@given(st.sampled_from((0, 1, 60, 199, 200, 201, 260)), st.integers(1, 40), st.booleans())
def test_an_index_is_within_its_caps_and_points_only_to_what_is_there(many: int, words: int, person: bool) -> None:
    there = files(many, words)
    stale = "- [gone](project_gone.md) — no longer there\n"
    index = capped_index((PERSON if person else "") + stale, there)
    assert index.count("\n") <= MAX_LINES
    assert len(index.encode()) <= MAX_BYTES
    listed = [line.file for line in lines_of(index) if line.file.endswith(".md")]
    assert len(set(listed)) == len(listed)
    assert set(listed) <= set(there)
    assert not load(index).warning
    assert index.startswith(PERSON) or not person
    left = many - len(listed)
    assert (f"{left} more memories are not listed here" in index) == (left > 0)
    assert capped_index(index, there) == index, "a second time changes nothing"


def test_what_matters_most_keeps_its_line() -> None:
    there = files(230)
    there["feedback_rule.md"] = memory(500, trust="user", kind="feedback")
    there["project_doubt.md"] = memory(501, trust="unconfirmed")
    listed = [line.file for line in lines_of(capped_index("", there))]
    assert "feedback_rule.md" in listed
    assert "project_doubt.md" not in listed
    assert len(listed) >= 170, "room is left for what is saved until the next dream, and no more"


def test_a_long_line_is_shortened_only_where_its_memory_says_all_it_says() -> None:
    there = {"project_1.md": memory(1, words=40)}
    hook = "fact 1 of note " + "of note " * 30
    kept = "fact 1 of note, and Anna keeps key 4711 in drawer 9 " + "of note " * 30
    assert len(capped_index(f"- [memory 1](project_1.md) — {hook}\n", there)) < 160
    assert kept in capped_index(f"- [memory 1](project_1.md) — {kept}\n", there)
