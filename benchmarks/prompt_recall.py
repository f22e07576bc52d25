"""Does recall show the memory that a prompt needs, though it has other words, and nothing for a neutral prompt?

    python benchmarks/prompt_recall.py [--embedder NAME] [--choosing] [--json] [--check]

Saves the memories of ``data/prompt_recall.json`` and asks ``Memory.recall`` each of its prompts, which use other words,
and the neutral prompts of ``data/prompt_recall_neutral.json``: by words alone, and with the embedder. Precision is the
share of fitting memories among those shown. The thresholds (``RecallPolicy``) were chosen on other prompts and
memories, those of ``data/prompt_recall_choosing.json``, which ``--choosing`` measures.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from reverie.models.embedders import open_embedder
from reverie.ports import Embedder
from reverie.runtime.memory.memory import Memory

DATA = Path(__file__).resolve().parent / "data"
LIMITS = {"precision": 0.6, "neutral": 0.05, "times the answers of words": 2}


def measured(given: dict[str, Any], neutral: list[str], embedder: Embedder | None) -> dict[str, Any]:
    """Ask all prompts and return how many were answered, the precision, and the neutral prompts that were answered."""
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(folder, embedder=embedder)
        texts = {memory.save(text, type="project", why="it was decided").file: text for text in given["memories"]}
        answered = shown = fitting = 0
        for prompt, wanted in given["prompts"]:
            found = [texts[one.file] for one in memory.recall(prompt)]
            right = {given["memories"][number] for number in wanted} & set(found)
            answered, shown, fitting = answered + bool(right), shown + len(found), fitting + len(right)
        disturbed = [prompt for prompt in neutral if memory.recall(prompt)]
    return {
        "memories": len(texts),
        "prompts": len(given["prompts"]),
        "answered": answered,
        "shown": shown,
        "precision": round(fitting / shown, 3) if shown else None,
        "neutral": len(neutral),
        "neutral_answered": disturbed,
    }


def met(report: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """Say which limits are met."""
    out: dict[str, bool] = {}
    for label, one in report.items():
        out[f"{label}: neutral prompts"] = len(one["neutral_answered"]) <= LIMITS["neutral"] * one["neutral"]
    if "embeddings" in report:
        words, both = report["words"], report["embeddings"]
        out["embeddings: precision"] = (both["precision"] or 0) >= max(LIMITS["precision"], words["precision"] or 0)
        out["times the answers of words"] = both["answered"] >= max(1, 2 * words["answered"])
    return out


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", help="local:/path/model.gguf or the URL of an endpoint")
    parser.add_argument("--choosing", action="store_true", help="the prompts by which the thresholds were chosen")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--check", action="store_true", help="exit 1 where a limit is not met")
    given = parser.parse_args()
    data = json.loads((DATA / f"prompt_recall{'_choosing' if given.choosing else ''}.json").read_text())
    neutral = data["neutral"] if given.choosing else json.loads((DATA / "prompt_recall_neutral.json").read_text())
    report = {"words": measured(data, neutral, None)}
    if given.embedder:
        report["embeddings"] = measured(data, neutral, open_embedder(given.embedder))
    limits = met(report)
    if given.as_json:
        print(json.dumps({"report": report, "met": limits}, indent=2))
    else:
        for label, one in report.items():
            print(f"{label}: " + ", ".join(f"{name} {value}" for name, value in one.items()))
        print("limits met: " + ", ".join(f"{name} {'yes' if ok else 'NO'}" for name, ok in limits.items()))
    return 1 if given.check and not all(limits.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
