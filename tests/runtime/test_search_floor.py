"""Search on evaluation sets is never below a good BM25; ``benchmarks/recall.py`` measures all of them.

The sets stand beside the repository (``../shared``) and are not part of it; without them the test is skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from reverie.runtime.search.message_scores import Weights

SHARED = Path(__file__).resolve().parents[3] / "shared"


@pytest.fixture
def recall(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    import recall  # pyright: ignore[reportMissingImports]

    return recall


@pytest.mark.slow
@pytest.mark.requirement("R9")
@pytest.mark.skipif(not (SHARED / "beam-dev").is_dir(), reason="the evaluation sets are not here")
def test_search_is_not_below_bm25_with_stems_and_without_stop_words(recall: ModuleType, tmp_path: Path) -> None:
    talks = sys.modules["recall_sets"].talks(SHARED, tmp_path)
    chosen = [talk for talk in talks if talk.kind != "beam" or talk.name in ("beam-1", "beam-3")]
    ours = recall.by_set(chosen, [recall.ours(talk) for talk in chosen])
    good = recall.by_set(chosen, [recall.plain_bm25(talk, recall.stemmed_words) for talk in chosen])
    assert set(ours) == {"locomo", "beam", "coding"}
    for kind, scores in ours.items():
        assert scores["r10"] > good[kind]["r10"], kind
        assert scores["session_r10"] >= good[kind]["session_r10"], kind
    chats = [talk for talk in chosen if talk.kind == "beam"]
    twin = recall.by_set(chats, [recall.ours(talk, Weights(agent=4.0)) for talk in chats])
    assert twin["beam"]["r10"] < good["beam"]["r10"], "a search that prefers agents is caught"
