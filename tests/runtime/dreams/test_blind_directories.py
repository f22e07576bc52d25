"""The dream without a model on directories that were written before any result was seen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie.layers.l6_dream import local

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def rows_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module of the benchmark."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import dream

    return dream


@pytest.mark.requirement("L6.11")
def test_nothing_is_merged_or_dated_wrongly_and_few_questions_are_false(rows_of: Any) -> None:
    rows = [anyio.run(rows_of.dreamt, source) for source in sorted(rows_of.DATA.glob("*.json"))]
    assert sorted(row["memories"] for row in rows) == [25, *[40] * 8]
    assert rows_of.failures(rows) == []


@pytest.mark.requirement("L6.11")
def test_a_dreamer_that_merges_similar_memories_is_caught(rows_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "equal_groups", lambda memories: local.similar_groups(memories, 0.8))
    monkeypatch.setattr(local, "merged_text", lambda kept, text, gone: text)
    monkeypatch.setattr("reverie.layers.l6_dream.validate.missing", lambda *_, **__: [])
    row = anyio.run(rows_of.dreamt, rows_of.DATA / "drones.json")
    assert any("wrong_merges" in line for line in rows_of.failures([row]))
