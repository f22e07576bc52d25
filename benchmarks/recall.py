"""Does search find the right message, how fast is it, and is indexing incremental?

    python benchmarks/recall.py [--shared DIR] [--json] [--check] [--no-speed] [--no-tune] [--embedder NAME]

Searches the sets of ``recall_sets.py`` (LoCoMo, BEAM, coding sessions; in ``../shared`` or $REVERIE_SHARED) by the same
code as ``reverie search``, and in the same run by BM25 with our stems and without stop words ("good"), and by BM25 of
the bare words. R@k is the share of a question's evidence among the first k, averaged over questions.

All constants were chosen on these sets together. So the run also leaves each talk out in turn, chooses the constants
again by the others alone, and measures the talk by those ("left out"). ``--embedder`` adds the figures with embeddings
(``local:/path/model.gguf`` or the URL of an endpoint). For the ratio of speeds, the search of an earlier commit
(``--before``) is asked the same questions in turn.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import IO, Any, NamedTuple

from recall_sets import SETS, SHARED, Question, Talk, talks

from reverie.conversation.entries import USER, Entry, encode_entry, iso
from reverie.memories.recall.search import MemoryIndex
from reverie.memories.recall.terms import tokens, without_noise
from reverie.memories.store.records import MemoryRecord
from reverie.models.embedders import open_embedder
from reverie.ports import Embedder
from reverie.runtime.search.message_scores import Weights
from reverie.runtime.search.sessions import SessionSearch

LIMITS = {
    "locomo r10": 0.79,
    "locomo session_r10": 0.945,
    "beam r10": 0.53,
    "beam r10 with embeddings": 0.58,
    "memories ms": 5.0,
    "times the search before": 1.7,
}
MEMORIES = 10_000
MESSAGES = 100_000
BEFORE = "c56845f"
REPOSITORY = Path(__file__).resolve().parents[1]
NAMES = ("r5", "r10", "session_r5", "session_r10")


class Score(NamedTuple):
    """The share of one question's evidence that was found."""

    r5: float
    r10: float
    session_r5: float
    session_r10: float


# -- the rankings


def ours(talk: Talk, weights: Weights | None = None, embedder: Embedder | None = None) -> list[Score]:
    """Ask every question of a talk, as ``reverie search`` does."""
    out: list[Score] = []
    with SessionSearch(talk.home, weights=weights, embedder=embedder) as search:
        search.refresh()
        keys = search.keys()
        for question in talk.questions:
            handles = [hit.handle for hit in search.search(question.text, limit=10, refresh=False)]
            if talk.kind == "coding":
                handles = [handle[:8] for handle in handles]
            ranked = search.rank(question.text, limit=10).sessions
            sessions = [keys[session].rsplit("/", 1)[1].removesuffix(".jsonl") for session, _ in ranked]
            out.append(score(talk, question, handles, sessions))
    return out


def bare_words(text: str) -> list[str]:
    """Return the words of a text unchanged."""
    return re.findall(r"[a-z0-9]+", text.lower())


def stemmed_words(text: str) -> list[str]:
    """Return the stems of a text without stop words."""
    return without_noise(tokens(text))


def plain_bm25(talk: Talk, words: Callable[[str], list[str]]) -> list[Score]:
    """Rank messages by BM25 of their words, and sessions by BM25 of theirs."""
    messages = {handle: words(one.text) for handle, one in talk.documents.items()}
    sessions: dict[str, list[str]] = {}
    for handle, one in talk.documents.items():
        sessions.setdefault(one.session, []).extend(messages[handle])
    by_message, by_session = bm25(messages), bm25(sessions)
    return [
        score(talk, question, by_message(words(question.text))[:10], by_session(words(question.text))[:10])
        for question in talk.questions
    ]


def bm25(documents: dict[str, list[str]], k1: float = 1.2, b: float = 0.75) -> Callable[[list[str]], list[str]]:
    """Return the textbook ranking."""
    counts = {key: Counter(words) for key, words in documents.items()}
    having = Counter(word for count in counts.values() for word in count)
    average = mean(len(words) for words in documents.values())
    rows: dict[str, list[tuple[str, float]]] = {}
    for key, count in counts.items():
        for word, times in count.items():
            share = times * (k1 + 1) / (times + k1 * (1 - b + b * len(documents[key]) / average))
            tells = math.log(1 + (len(documents) - having[word] + 0.5) / (having[word] + 0.5))
            rows.setdefault(word, []).append((key, tells * share))

    def ranked(words: list[str]) -> list[str]:
        total: dict[str, float] = {}
        for word in words:
            for key, value in rows.get(word, ()):
                total[key] = total.get(key, 0.0) + value
        return sorted(total, key=lambda key: -total[key])

    return ranked


def score(talk: Talk, question: Question, handles: list[str], sessions: list[str]) -> Score:
    """Return the share of the evidence among the first hits."""
    wanted = {talk.documents[handle].session for handle in question.evidence}
    return Score(
        len(question.evidence & set(handles[:5])) / len(question.evidence),
        len(question.evidence & set(handles[:10])) / len(question.evidence),
        len(wanted & set(sessions[:5])) / len(wanted),
        len(wanted & set(sessions[:10])) / len(wanted),
    )


def averaged(scores: list[Score]) -> dict[str, float]:
    """Average scores over questions."""
    return {name: round(mean(getattr(one, name) for one in scores), 4) for name in NAMES}


def by_set(found: list[Talk], scores: list[list[Score]]) -> dict[str, dict[str, float]]:
    """Average the scores of each set over its questions."""
    return {
        kind: averaged([one for talk, some in zip(found, scores, strict=True) if talk.kind == kind for one in some])
        for kind in SETS
        if any(talk.kind == kind for talk in found)
    }


# -- how constants carry over


def grid() -> Iterator[Weights]:
    """Yield the constants and their neighbours, one changed at a time."""
    base = Weights()
    yield base
    for name, values in {"near": (0.35, 0.65), "agent": (0.35, 0.7, 1.0)}.items():
        for value in values:
            yield replace(base, **{name: value})


def left_out(found: list[Talk], first: list[list[Score]]) -> dict[str, Any]:
    """Measure each talk with the constants that are best for the other talks, each set counting the same."""
    weights = list(grid())
    table = [first, *([ours(talk, weight) for talk in found] for weight in weights[1:])]
    chosen: list[list[Score]] = []
    changed = 0
    for at in range(len(found)):

        def worth(row: list[list[Score]], at: int = at) -> float:
            others = [(talk, some) for number, (talk, some) in enumerate(zip(found, row, strict=True)) if number != at]
            sets = by_set([talk for talk, _ in others], [some for _, some in others])
            return mean(one["r10"] for one in sets.values())

        best = max(range(len(weights)), key=lambda number: worth(table[number]))
        changed += best != 0
        chosen.append(table[best][at])
    spread = [by_set(found, row) for row in table]
    worst = {kind: min(row[kind]["r10"] for row in spread) for kind in spread[0]}
    return {"sets": by_set(found, chosen), "worst": worst, "grid": len(weights), "changed": changed}


# -- speed


SYLLABLES = [f"{first}{second}{third}" for first in "bcdfghklmnprstvw" for second in "aeiou" for third in "dgkmnprtx"]
WORDS = [f"{SYLLABLES[at * 7 % len(SYLLABLES)]}{SYLLABLES[at // 19 % len(SYLLABLES)]}" for at in range(30_000)]


def sentence(rng: Random, words: int) -> str:
    """Write words with a realistic frequency: the nth most common is n times rarer than the first."""
    return " ".join(WORDS[int(len(WORDS) ** rng.random()) - 1] for _ in range(words))


def milliseconds(act: Callable[[], object]) -> float:
    """Run a function once and return its duration."""
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1_000


def memory_speed(memories: int = MEMORIES, queries: int = 200) -> dict[str, float]:
    """Query an index of many memories."""
    rng = Random(3)
    index = MemoryIndex()
    records = [
        MemoryRecord(f"m{at}.md", sentence(rng, 4), sentence(rng, 14), rng.choice(["user", "feedback", "project"]),
                     modified=iso(1.7e9 + at * 3_600), body=sentence(rng, 60))
        for at in range(memories)
    ]  # fmt: skip
    building = milliseconds(lambda: [index.put(one) for one in records])
    asked = [f"how do we {sentence(rng, 8)}?" for _ in range(queries)]
    index.search(asked[0])
    times = [milliseconds(lambda text=text: index.search(text, limit=5)) for text in asked]
    return {"memories": memories, "build_ms": building, "query_p50_ms": median(times), "query_p95_ms": at95(times)}


def session_speed(home: Path, messages: int = MESSAGES) -> dict[str, float]:
    """Index many messages, append a little, and count the bytes read to update the index."""
    rng = Random(5)
    folder = home / "projects" / "speed"
    folder.mkdir(parents=True)
    a_log = 250
    for log in range(messages // a_log):
        with open(folder / f"log{log:04}.jsonl", "wb") as file:
            for at in range(a_log):
                file.write(line(rng, f"{log}-{at}", 1.7e9 + log * 86_400 + at * 60))
    with SessionSearch(home) as search:
        building = milliseconds(search.refresh)
        nothing = median([milliseconds(search.refresh) for _ in range(5)])
        with open(folder / "log0000.jsonl", "ab") as file:
            fresh = b"".join(line(rng, f"new-{at}", 1.8e9) for at in range(10))
            file.write(fresh)
        start = time.perf_counter()
        read = search.refresh()
        following = (time.perf_counter() - start) * 1_000
    return {
        "messages": messages,
        "build_ms": building,
        "nothing_new_ms": nothing,
        "ten_new_ms": following,
        "ten_new_bytes_read": read.bytes,
        "ten_new_bytes": len(fresh),
        "index_bytes": search.path.stat().st_size,
    }


ANSWERS = """
import sys, time
from pathlib import Path
from reverie.runtime.search.sessions import SessionSearch
with SessionSearch(Path(sys.argv[1])) as search:
    search.refresh()
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.process_time()
        search.search(line, refresh=False)
        print((time.process_time() - start) * 1_000, flush=True)
"""


def compared_speed(home: Path, folder: Path, revision: str, queries: int = 200) -> dict[str, float]:
    """Ask our search and that of a commit the same questions in turn, and return the processor time of both."""
    (folder / "before").mkdir()
    old = subprocess.run(["git", "archive", revision, "src"], cwd=REPOSITORY, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(old)) as archive:
        archive.extractall(folder / "before", filter="data")
    other = folder / "before" / "home"
    shutil.copytree(home / "projects", other / "projects")
    sources = {"query": (REPOSITORY / "src", home), "before": (folder / "before" / "src", other)}
    children = {
        name: subprocess.Popen(
            [sys.executable, "-c", ANSWERS, str(place)],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, (source, place) in sources.items()
    }
    for child in children.values():
        answer(child.stdout)
    rng = Random(9)
    times: dict[str, list[float]] = {name: [] for name in children}
    for _ in range(queries):
        question = f"what did we decide about {sentence(rng, 7)}?"
        for name, child in children.items():
            assert child.stdin is not None
            print(question, file=child.stdin, flush=True)
            times[name].append(float(answer(child.stdout)))
    for child in children.values():
        child.communicate()
    figures = {f"{name}_{at}_ms": act(some) for name, some in times.items() for at, act in QUANTILES.items()}
    return {**figures, "times_before": figures["query_p50_ms"] / figures["before_p50_ms"]}


def answer(output: IO[str] | None) -> str:
    """Return the next line of a child; raise ``RuntimeError`` if it ended."""
    text = output.readline() if output is not None else ""
    if not text:
        raise RuntimeError("the child process ended: see its error above")
    return text


def line(rng: Random, uuid: str, at: float) -> bytes:
    """Return one message as a line of a log."""
    message = {"role": USER, "content": sentence(rng, rng.randint(10, 90))}
    return encode_entry(Entry(uuid, None, iso(at), "log", USER, {"message": message})) + b"\n"


def at95(times: list[float]) -> float:
    """Return the 95th percentile of the times."""
    return sorted(times)[int(len(times) * 0.95)]


QUANTILES: dict[str, Callable[[list[float]], float]] = {"p50": median, "p95": at95}


# -- the report


def measure(shared: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measure all requested figures."""
    report: dict[str, Any] = {"limits": LIMITS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = talks(shared, folder, tuple(given.sets))
        scores = [ours(talk) for talk in found]
        if found:
            report["questions"] = {
                kind: sum(len(one.questions) for one in found if one.kind == kind) for kind in given.sets
            }
            report["words"] = by_set(found, scores)
            report["bare_bm25"] = by_set(found, [plain_bm25(talk, bare_words) for talk in found])
            report["good_bm25"] = by_set(found, [plain_bm25(talk, stemmed_words) for talk in found])
            if not given.no_tune:
                report["left_out"] = left_out(found, scores)
            if given.embedder:
                embedder = open_embedder(given.embedder)
                report["embeddings"] = by_set(found, [ours(talk, embedder=embedder) for talk in found])
        if not given.no_speed:
            report["memories"] = memory_speed()
            report["sessions"] = session_speed(folder / "speed")
            report["sessions"] |= compared_speed(folder / "speed", folder, given.before)
    report["met"] = met(report)
    return report


def met(report: dict[str, Any]) -> dict[str, bool]:
    """Say which of the measured limits are met."""
    out: dict[str, bool] = {}
    for label in ("words", "embeddings"):
        for kind, one in report.get(label, {}).items():
            good = report["good_bm25"][kind]
            out[f"{kind} {label} not below the good BM25"] = all(
                one[name] >= good[name] for name in ("r10", "session_r10")
            )
            for name in ("r10", "session_r10"):
                limit = LIMITS.get(f"{kind} {name}" + (" with embeddings" if label == "embeddings" else ""))
                if limit is not None:
                    out[f"{kind} {label} {name} {limit}"] = one[name] >= limit
    if "memories" in report:
        sessions = report["sessions"]
        out["memories ms"] = report["memories"]["query_p50_ms"] <= LIMITS["memories ms"]
        out["times the search before"] = sessions["times_before"] <= LIMITS["times the search before"]
        out["incremental"] = sessions["ten_new_bytes_read"] == sessions["ten_new_bytes"]
    return out


def draw(report: dict[str, Any]) -> None:
    """Print the tables."""
    rows = {
        "BM25, bare words": report.get("bare_bm25"),
        "BM25, stems, no stop words": report.get("good_bm25"),
        "reverie, words": report.get("words"),
        "  constants by the others": report.get("left_out", {}).get("sets"),
        "reverie, with embeddings": report.get("embeddings"),
    }
    for kind, count in report.get("questions", {}).items():
        print(f"{kind + ', ' + str(count) + ' questions':<30}" + "".join(f"{name:>13}" for name in NAMES))
        for label, sets in rows.items():
            if sets and kind in sets:
                print(f"{label:<30}" + "".join(f"{sets[kind][name]:>13.3f}" for name in NAMES))
        margin = report["words"][kind]["r10"] - report["good_bm25"][kind]["r10"]
        print(f"{'  margin over the good BM25':<30}{'':13}{margin:>+13.3f}")
    if "left_out" in report:
        tuned = report["left_out"]
        print(f"worst r10 of {tuned['grid']} settings near ours: {tuned['worst']}")
        print(f"other constants were chosen for {tuned['changed']} talks")
    for name in ("memories", "sessions"):
        if name in report:
            print(f"{name}: " + ", ".join(f"{key} {value:,.2f}" for key, value in report[name].items()))
    print("limits met:")
    for name, ok in report["met"].items():
        print(f"  {'yes' if ok else 'NO '} {name}")


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("REVERIE_SHARED") or SHARED))
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--check", action="store_true", help="exit 1 where a limit is not met")
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--no-tune", action="store_true")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--embedder", help="local:/path/model.gguf or the URL of an endpoint")
    parser.add_argument("--before", default=BEFORE, help="the commit to compare the speed with")
    given = parser.parse_args()
    report = measure(given.shared, given)
    missing = [kind for kind in given.sets if not report.get("questions", {}).get(kind)]
    if missing:
        print(f"not measured, because {given.shared} lacks them: {', '.join(missing)}", file=sys.stderr)
    if given.as_json:
        print(json.dumps(report, indent=2))
    else:
        draw(report)
    return 1 if given.check and (missing or not all(report["met"].values())) else 0


if __name__ == "__main__":
    sys.exit(main())
