"""Does recall show the memory that a prompt needs, though it has other words, and nothing for a neutral prompt?

    python benchmarks/prompt_recall.py [--embedder NAME] [--set NAME] [--json] [--check]

Saves the memories of a set and asks ``Memory.recall`` each of its prompts, which use other words, and its neutral
prompts: by words alone, with the embedder, and with the least certainty at which the embedder is as precise as words.
Precision is the share of fitting memories among those shown. The certainty (``RecallPolicy``) was chosen on all sets
but the fourth to sixth stranger's and the long ones, the strength of words in long prompts in tables that showed all
of them; ``memory.md`` says how each set fares if it is left out. The author of the code wrote "own" and "choosing"; two
people who had not seen the code wrote the set "stranger", one the memories and prompts, the other the neutral prompts,
and others wrote the five other sets of strangers in the same way (the sixth by one person). The two sets of long
prompts (about 75 words, which name the matter of a memory in passing) were written before their author had read the
ranking.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from reverie.memories.recall.policy import RecallPolicy
from reverie.memories.store.names import file_for
from reverie.memories.store.records import new_text
from reverie.models.embedders import open_embedder
from reverie.ports import Embedder
from reverie.runtime.memory.memory import Memory
from reverie.values import replace

DATA = Path(__file__).resolve().parent / "data"
FIELDS = ("name", "description", "type")
SETS = {
    "own": "prompt_recall",
    "choosing": "prompt_recall_choosing",
    "stranger": "prompt_recall_stranger",
    "second stranger": "prompt_recall_second",
    "third stranger": "prompt_recall_third",
    "fourth stranger": "prompt_recall_fourth",
    "fifth stranger": "prompt_recall_fifth",
    "sixth stranger": "prompt_recall_sixth",
    "long choosing": "prompt_recall_long_choosing",
    "long": "prompt_recall_long",
}
AS_PRECISE = "embeddings, at least as precise as words"
LIMITS = {"precision": 0.6, "neutral": 0.05, "times the answers of words": 2}


def measured(given: dict[str, Any], embedder: Embedder | None, least_precision: float = 0.0) -> dict[str, Any]:
    """Ask all prompts with the least certainty, from the default on, that reaches a precision."""
    with tempfile.TemporaryDirectory() as folder:
        files = [saved(Memory(folder), one) for one in given["memories"]]
        policy = RecallPolicy()
        found = asked(Memory(folder, embedder=embedder), given, files)
        while found["shown"] and found["precision"] < least_precision:
            policy = replace(policy, min_certainty=policy.min_certainty + 0.02)
            found = asked(Memory(folder, embedder=embedder, recall=policy), given, files)
    return found


def asked(memory: Memory, given: dict[str, Any], files: list[str]) -> dict[str, Any]:
    """Ask all prompts and return how many were answered, the precision, and the neutral prompts that were answered."""
    answered = shown = fitting = 0
    for prompt, wanted in given["prompts"]:
        found = [one.file for one in memory.recall(prompt)]
        right = {files[number] for number in wanted} & set(found)
        answered, shown, fitting = answered + bool(right), shown + len(found), fitting + len(right)
    return {
        "memories": len(files),
        "prompts": len(given["prompts"]),
        "answered": answered,
        "shown": shown,
        "precision": round(fitting / shown, 3) if shown else None,
        "neutral": len(given["neutral"]),
        "neutral_answered": [prompt for prompt in given["neutral"] if memory.recall(prompt)],
    }


def saved(memory: Memory, one: str | dict[str, Any]) -> str:
    """Save a text, or a memory with its fields, and return its file."""
    if isinstance(one, str):
        return memory.save(one, type="project", why="it was decided").file
    file = file_for(one["type"], one["name"], text=one["body"])
    memory.path_of(file).parent.mkdir(parents=True, exist_ok=True)
    memory.path_of(file).write_text(new_text({key: one[key] for key in FIELDS}, one["body"] + "\n"), "utf-8")
    return file


def met(report: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """Say which limits are met."""
    out: dict[str, bool] = {}
    for label, one in report.items():
        out[f"{label}: neutral prompts"] = len(one["neutral_answered"]) <= LIMITS["neutral"] * one["neutral"]
    if "embeddings" in report:
        out["embeddings: precision"] = (report["embeddings"]["precision"] or 0) >= LIMITS["precision"]
        least = max(1, LIMITS["times the answers of words"] * report["words"]["answered"])
        out["times the answers of words at their precision"] = report[AS_PRECISE]["answered"] >= least
    return out


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", help="local:/path/model.gguf or the URL of an endpoint")
    parser.add_argument("--set", choices=SETS, default="stranger", dest="name")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--check", action="store_true", help="exit 1 where a limit is not met")
    given = parser.parse_args()
    data = json.loads((DATA / f"{SETS[given.name]}.json").read_text())
    report = {"words": measured(data, None)}
    if given.embedder:
        embedder = open_embedder(given.embedder)
        report["embeddings"] = measured(data, embedder)
        report[AS_PRECISE] = measured(data, embedder, report["words"]["precision"] or 0.0)
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
