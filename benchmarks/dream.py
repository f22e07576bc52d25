"""What does a dream without a model do to memories that nobody tuned it by?

Each file of ``data/dream`` is a directory of 40 memories in English, German and Chinese with labels, written before
any result was seen: memories with equal words, memories that repeat or contradict each other in other words,
relative dates, ends that have passed, dead links, and pairs that only look alike. A dream runs on each, through the
command's own door, and is undone.

    wrong merges      memories merged whose words differ
    wrong dates       a relative date made into another day, or into one of the two days that it may mean
                      (``two_readings``), or a text changed that names no day
    asked             labelled pairs and ended memories that became a question
    false questions   questions about memories that are neither, as a share of all questions

With ``--check`` it exits with 1 if a memory is merged or dated wrongly, if a pair with equal texts is neither
merged nor asked about, if the undo is not byte-equal, or if more than a tenth of the questions are false.

With ``--embedder``, memories that are each other's nearest by their vectors are asked about too.

Run: python benchmarks/dream.py [--embedder NAME] [--json] [--check]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from reverie.memories.store.records import new_text
from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.memory.memory import Memory
from reverie.settings import load_settings

DATA = Path(__file__).with_name("data") / "dream"
MAX_FALSE_SHARE = 0.10
DAY = re.compile(r"\d{4}-\d\d(?:-\d\d)?")
FIELDS = ("name", "description", "type", "created", "modified", "expires")


def written(folder: Path, memories: list[dict[str, str]]) -> None:
    """Write the memories as files."""
    folder.mkdir(parents=True)
    for one in memories:
        named = {"name": one["description"], **one, "modified": one["created"]}
        fields = {key: named[key] for key in FIELDS if key in named}
        (folder / one["file"]).write_text(new_text(fields, one["body"] + "\n"), "utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all memory files and of the index."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.md"))}


def is_related(files: set[str], pairs: list[set[str]]) -> bool:
    """Return whether each of these files has a labelled partner among them."""
    return all(any(file in pair and pair <= files for pair in pairs) for file in files)


def judged(report: Any, labels: dict[str, Any], before: dict[str, bytes], after: dict[str, bytes]) -> dict[str, Any]:
    """Return the counts of one dream, compared with the labels."""
    same, related = ([set(pair) for pair in labels[key]] for key in ("same", "related"))
    merged = [{one.file, one.into} for one in report.changes if one.act == "merged"]
    wrong_dates: list[str] = []
    dated = 0
    for file, data in after.items():
        if file == "MEMORY.md" or file not in before:
            continue
        bodies = [text.decode().split("\n---\n", 1)[-1] for text in (before[file], data)]
        added = sorted(set(DAY.findall(bodies[1])) - set(DAY.findall(bodies[0])))
        right = labels["dates"].get(file, [])
        dated += bool(added) and added == right
        is_part = set(added) <= set(right) and file not in labels.get("two_readings", ())
        wrong_dates += [file] if added and added != right and not is_part else []
    ends = set(labels["ended"])
    false: list[list[str]] = []
    asked_pairs: list[set[str]] = []
    asked_ends: set[str] = set()
    for question in report.questions:
        files = set(question.files)
        if question.topic in ("ended", "expired") and files <= ends | set(labels["expired"]):
            asked_ends |= files
        elif question.topic in ("similar", "contradiction") and is_related(files, related + same):
            asked_pairs += [pair for pair in related + same if pair <= files]
        else:
            false.append([question.topic, *sorted(files)])
    settled = merged + asked_pairs
    gone = {one.file for one in report.changes if one.act == "removed"}
    return {
        "same": len(same),
        "merged": sum(pair in merged for pair in same),
        "same_left": [sorted(pair) for pair in same if pair not in settled],
        "wrong_merges": [sorted(pair) for pair in merged if pair not in same],
        "dates": sum(bool(days) for days in labels["dates"].values()),
        "dated": dated,
        "wrong_dates": wrong_dates,
        "related": len(related),
        "asked": sum(pair in asked_pairs for pair in related),
        "not_asked": [sorted(pair) for pair in related if pair not in settled],
        "ended": len(ends),
        "ends_asked": len(ends & asked_ends),
        "expired": len(labels["expired"]),
        "expired_done": len(set(labels["expired"]) & (gone | asked_ends)),
        "links": len(labels["broken_links"]),
        "links_done": sum(
            any(one.file == file and "led nowhere" in one.why for one in report.changes)
            for file in labels["broken_links"]
        ),
        "questions": len(report.questions),
        "false_questions": false,
    }


async def dreamt(source: Path, embedder: str | None = None) -> dict[str, Any]:
    """Dream over the memories of one file of data, undo it, and return the counts."""
    data = json.loads(source.read_text("utf-8"))
    labels = data["labels"]
    day = datetime.fromisoformat(labels["day"]).replace(hour=3, tzinfo=UTC)
    with tempfile.TemporaryDirectory() as place:
        home, project, memory_dir = Path(place) / "home", Path(place) / "project", Path(place) / "memory"
        project.mkdir()
        written(memory_dir, data["memories"])
        arguments = {"memory_dir": str(memory_dir), **({"embedder": embedder} if embedder else {})}
        settings = load_settings(home=home, arguments=arguments, environ={})
        memory = Memory.open(project, settings=settings)
        memory.reindex()
        memory.recall("vectors are saved before the first prompt")
        before = contents(memory_dir)
        dreams = Dreams(memory, settings, project=project, clock=lambda: day)
        report = await dreams.run()
        found = judged(report, labels, before, contents(memory_dir))
        if report.entry:
            dreams.undo()
        found["undo_is_equal"] = contents(memory_dir) == before
    return {"name": source.stem, "memories": len(data["memories"]), **found}


def failures(rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each limit that is not met."""
    found = [f"{row['name']}: {key} {row[key]}" for row in rows for key in ("wrong_merges", "wrong_dates") if row[key]]
    found += [f"{row['name']}: neither merged nor asked: {row['same_left']}" for row in rows if row["same_left"]]
    found += [f"{row['name']}: the undo is not byte-equal" for row in rows if not row["undo_is_equal"]]
    asked, false = sum(row["questions"] for row in rows), sum(len(row["false_questions"]) for row in rows)
    if false > MAX_FALSE_SHARE * asked:
        found.append(f"{false} of {asked} questions are false")
    return found


def main() -> int:
    """Print the figures of all directories, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--embedder", help="local:/path/model.gguf or the URL of an endpoint")
    options = parser.parse_args()
    rows = [anyio.run(dreamt, source, options.embedder) for source in sorted(DATA.glob("*.json"))]
    if options.json:
        print(json.dumps(rows, ensure_ascii=False, indent=1))
    else:
        print(
            "| directory | equal merged | wrong | dates | wrong | related asked | ends asked | false questions | undo |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for row in rows:
            cells = (
                row["name"],
                f"{row['merged']} of {row['same']}",
                len(row["wrong_merges"]),
                f"{row['dated']} of {row['dates']}",
                len(row["wrong_dates"]),
                f"{row['asked']} of {row['related']}",
                f"{row['ends_asked']} of {row['ended']}",
                f"{len(row['false_questions'])} of {row['questions']}",
                "equal" if row["undo_is_equal"] else "differs",
            )
            print("| " + " | ".join(map(str, cells)) + " |")
    missed = failures(rows)
    for line in missed:
        print(f"not met: {line}", file=sys.stderr)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
