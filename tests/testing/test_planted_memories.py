"""The generator of planted memories: the same for a seed, another for another, and honest about what it planted."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import reverie.testing.planted_memories as package
from reverie.memories.rules.taxonomy import TYPES
from reverie.memories.store.records import read_record
from reverie.testing.planted_memories import planted_memories
from reverie.testing.planted_memories.wordings import facts, filled, slots


def test_a_seed_always_gives_the_same_memories_and_another_gives_others() -> None:
    assert planted_memories(80, 1) == planted_memories(80, 1)
    assert planted_memories(80, 1).files != planted_memories(80, 2).files


@pytest.mark.parametrize("seed", [0, 7])
def test_every_memory_can_be_read_and_every_fault_is_where_it_is_said_to_be(seed: int) -> None:
    planted = planted_memories(150, seed)
    assert len(planted.files) >= 150
    records = {file: read_record(file, data) for file, data in planted.files.items()}
    assert not [one for one in records.values() if one.problem]
    assert {one.type for one in records.values()} == set(TYPES)
    for group in planted.duplicates:
        assert len({records[file].type for file in group}) == 1
        assert len({records[file].body for file in group}) == len(group)
    for one in planted.dates:
        assert one.phrase.lower() in records[one.file].body.lower()
    for file, words in planted.lookalikes:
        assert words in records[file].body
    for file, target in planted.dead_links.items():
        assert f"({target})" in records[file].body
        assert target not in planted.files
    assert all(records[file].expires < planted.now.date().isoformat() for file in planted.expired)
    grouped = [file for group in planted.duplicates for file in group]
    assert len(grouped) == len(set(grouped))
    assert not any({one, other} <= group for one, other in planted.apart for group in planted.duplicates)


def test_every_wording_of_a_fact_names_all_that_the_fact_is_about() -> None:
    for fact in facts():
        filling = {name: f"<{name}>" for name in slots()}
        for wording in (*fact.wordings, *fact.opposites):
            said = filled(wording, filling).lower()
            assert all(f"<{slot}>" in said for slot in fact.subjects), wording


def test_it_shares_nothing_with_the_dreamer() -> None:
    for file in Path(package.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.module in {"values", "events", "planting", "wordings"}, (file.name, node.module)
