"""Does search find the right turn, how fast is it, and is indexing incremental?

    python benchmarks/recall.py [FILE] [--json] [--check] [--no-speed] [--tune]

FILE is a LoCoMo file (default: ../shared/locomo-dev next to the repository, or $REVERIE_LOCOMO). Each conversation
becomes a home directory with one log per session, and is searched by the same code as ``reverie search``, without a
model. The same run measures BM25 over turns and over whole sessions, plain and with our stems and stop words.
R@k is the share of a question's evidence among the first k, averaged over questions that have evidence.

``--tune`` measures how well the constants generalise: for each conversation they are chosen again from a grid by the
other four alone, and the left-out one is measured with those.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any, NamedTuple

from reverie.conversation.entries import USER, Entry, encode_entry, iso
from reverie.memories.recall.dialogue import Weights
from reverie.memories.recall.search import MemoryIndex
from reverie.memories.recall.terms import tokens, without_noise
from reverie.memories.store.records import MemoryRecord
from reverie.runtime.search.sessions import SessionSearch

LIMITS = {"turn_r10": 0.74, "session_r10": 0.92, "memories_ms": 5.0, "messages_ms": 20.0}
MEMORIES = 10_000
MESSAGES = 100_000
DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "locomo-dev"
Place = tuple[int, int]


class Question(NamedTuple):
    """A question and the turns that answer it, by session and turn."""

    text: str
    evidence: frozenset[Place]
    category: int


class Conversation(NamedTuple):
    """One conversation: its turns by session and number, with speaker, text and time."""

    name: str
    turns: dict[Place, tuple[str, str, datetime]]
    questions: list[Question]


class Score(NamedTuple):
    """The share of one question's evidence that was found."""

    turn_r5: float
    turn_r10: float
    session_r5: float
    session_r10: float
    category: int


# -- the data


def conversations(path: Path) -> list[Conversation]:
    """Read a LoCoMo file; a caption is part of the turn that shows the image."""
    file = path if path.is_file() else next(iter(sorted(path.glob("*.json"))))
    return [conversation(item) for item in json.loads(file.read_text())]


def conversation(item: dict[str, Any]) -> Conversation:
    """Read one conversation."""
    said = item["conversation"]
    turns: dict[Place, tuple[str, str, datetime]] = {}
    for number in sorted(int(key.split("_")[1]) for key in said if re.fullmatch(r"session_\d+", key)):
        when = datetime.strptime(said[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
        for turn in said[f"session_{number}"]:
            text = f"{turn['text']} {turn.get('blip_caption') or ''}".strip()
            turns[place(turn["dia_id"])[0]] = (turn["speaker"], text, when)
    questions: list[Question] = []
    for asked in item["qa"]:
        found = frozenset(one for text in asked.get("evidence") or [] for one in place(text) if one in turns)
        if found:
            questions.append(Question(asked["question"], found, asked["category"]))
    return Conversation(item["sample_id"], turns, questions)


def place(text: str) -> list[Place]:
    """Read ids such as ``D3:11``; one text may contain several."""
    return [(int(session), int(turn)) for session, turn in re.findall(r"D:?(\d+):(\d+)", text)]


def write_logs(talk: Conversation, home: Path) -> None:
    """Write a conversation as a home directory with one log per session, as ``reverie import`` would."""
    folder = home / "projects" / "locomo"
    folder.mkdir(parents=True)
    lines: dict[int, list[bytes]] = {}
    for (session, turn), (speaker, text, when) in talk.turns.items():
        message = {"role": USER, "name": speaker, "content": text}
        entry = Entry(f"{session}:{turn}", None, when.isoformat(), f"s{session:03}", USER, {"message": message})
        lines.setdefault(session, []).append(encode_entry(entry) + b"\n")
    for session, some in lines.items():
        (folder / f"s{session:03}.jsonl").write_bytes(b"".join(some))


# -- the rankings


class Ours:
    """Search one conversation as ``reverie search`` does."""

    def __init__(self, talk: Conversation, home: Path) -> None:
        write_logs(talk, home)
        self.home = home
        with SessionSearch(home) as search:
            search.refresh()

    def scores(self, talk: Conversation, weights: Weights | None = None) -> list[Score]:
        """Ask every question."""
        out: list[Score] = []
        with SessionSearch(self.home, weights=weights) as search:
            for question in talk.questions:
                found = search.search(question.text, limit=10, refresh=False)
                turns = [place(f"D{hit.handle}")[0] for hit in found]
                ranked = search.rank(question.text, limit=10).sessions
                keys = search.keys()
                sessions = [int(keys[session].removesuffix(".jsonl")[-3:]) for session, _ in ranked]
                out.append(score(question, turns, sessions))
        return out


def bare_words(text: str) -> list[str]:
    """Return the words of a text unchanged."""
    return re.findall(r"[a-z0-9]+", text.lower())


def stemmed_words(text: str) -> list[str]:
    """Return the stems of a text without stop words."""
    return without_noise(tokens(text))


def plain_bm25(talk: Conversation, words: Callable[[str], list[str]]) -> list[Score]:
    """Rank turns by plain BM25 of their words, and sessions by plain BM25 of theirs."""
    sessions: dict[int, list[str]] = {}
    for (session, _), (speaker, text, _) in talk.turns.items():
        sessions.setdefault(session, []).extend(words(f"{speaker} {text}"))
    by_turn = bm25({where: words(f"{speaker} {text}") for where, (speaker, text, _) in talk.turns.items()})
    by_session = bm25(sessions)
    return [
        score(question, by_turn(words(question.text))[:10], by_session(words(question.text))[:10])
        for question in talk.questions
    ]


def bm25(documents: dict[Any, list[str]], k1: float = 1.2, b: float = 0.75) -> Callable[[list[str]], list[Any]]:
    """Return the textbook ranking."""
    counts = {key: Counter(words) for key, words in documents.items()}
    having = Counter(word for count in counts.values() for word in count)
    average = mean(len(words) for words in documents.values())
    rows: dict[str, list[tuple[Any, float]]] = {}
    for key, count in counts.items():
        for word, times in count.items():
            share = times * (k1 + 1) / (times + k1 * (1 - b + b * len(documents[key]) / average))
            tells = math.log(1 + (len(documents) - having[word] + 0.5) / (having[word] + 0.5))
            rows.setdefault(word, []).append((key, tells * share))

    def ranked(words: list[str]) -> list[Any]:
        total: dict[Any, float] = {}
        for word in words:
            for key, value in rows.get(word, ()):
                total[key] = total.get(key, 0.0) + value
        return sorted(total, key=lambda key: -total[key])

    return ranked


def score(question: Question, turns: list[Place], sessions: list[int]) -> Score:
    """Return the share of the evidence among the first hits."""
    wanted = {session for session, _ in question.evidence}
    return Score(
        len(question.evidence & set(turns[:5])) / len(question.evidence),
        len(question.evidence & set(turns[:10])) / len(question.evidence),
        len(wanted & set(sessions[:5])) / len(wanted),
        len(wanted & set(sessions[:10])) / len(wanted),
        question.category,
    )


def averaged(scores: list[Score]) -> dict[str, float]:
    """Average scores over questions."""
    names = ("turn_r5", "turn_r10", "session_r5", "session_r10")
    return {name: round(mean(getattr(one, name) for one in scores), 4) for name in names}


# -- how constants carry over


def grid() -> Iterator[Weights]:
    """Yield the constants and their neighbours, one changed at a time; zero turns an idea off."""
    base = Weights()
    yield base
    for name, values in {
        "before": (0.0, 0.35, 0.65),
        "after": (0.0, 0.1, 0.4),
        "session": (0.0, 0.3, 0.7),
        "speaker": (0.0, 0.25, 0.75),
    }.items():
        for value in values:
            yield replace(base, **{name: value})


def left_out(talks: list[Conversation], ours: list[Ours]) -> dict[str, Any]:
    """Measure each conversation with the constants that are best for the others."""
    weights = list(grid())
    table = [[one.scores(talk, weight) for talk, one in zip(talks, ours, strict=True)] for weight in weights]
    rows: dict[str, Any] = {}
    everything: list[Score] = []
    for at, talk in enumerate(talks):

        def worth(row: list[list[Score]], at: int = at) -> float:
            others = averaged([one for number, some in enumerate(row) if number != at for one in some])
            return others["turn_r10"] + others["session_r10"]

        best = max(range(len(weights)), key=lambda number: worth(table[number]))
        everything += table[best][at]
        changed = {
            name: getattr(weights[best], name)
            for name in Weights.__dataclass_fields__
            if getattr(weights[best], name) != getattr(weights[0], name)
        }
        rows[talk.name] = {**averaged(table[best][at]), "chosen": {key: str(value) for key, value in changed.items()}}
    spread = [averaged([one for some in row for one in some]) for row in table]
    return {
        "by_conversation": rows,
        "all": averaged(everything),
        "worst_in_grid": {name: min(row[name] for row in spread) for name in ("turn_r10", "session_r10")},
        "grid": len(weights),
    }


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


def session_speed(home: Path, messages: int = MESSAGES, queries: int = 100) -> dict[str, float]:
    """Index many messages, query, append a little, and count the bytes read to update the index."""
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
        asked = [f"what did we decide about {sentence(rng, 7)}?" for _ in range(queries)]
        search.search(asked[0], refresh=False)
        times = [milliseconds(lambda text=text: search.search(text, refresh=False)) for text in asked]
    return {
        "messages": messages,
        "build_ms": building,
        "nothing_new_ms": nothing,
        "ten_new_ms": following,
        "ten_new_bytes_read": read.bytes,
        "ten_new_bytes": len(fresh),
        "index_bytes": search.path.stat().st_size,
        "query_p50_ms": median(times),
        "query_p95_ms": at95(times),
    }


def line(rng: Random, uuid: str, at: float) -> bytes:
    """Return one message as a line of a log."""
    message = {"role": USER, "content": sentence(rng, rng.randint(10, 90))}
    return encode_entry(Entry(uuid, None, iso(at), "log", USER, {"message": message})) + b"\n"


def at95(times: list[float]) -> float:
    """Return the 95th percentile of the times."""
    return sorted(times)[int(len(times) * 0.95)]


# -- the report


def measure(path: Path | None, *, speed: bool, tune: bool) -> dict[str, Any]:
    """Measure all requested figures."""
    report: dict[str, Any] = {"limits": LIMITS}
    with tempfile.TemporaryDirectory() as folder:
        if path is not None:
            talks = conversations(path)
            ours = [Ours(talk, Path(folder) / talk.name) for talk in talks]
            found = [one.scores(talk) for talk, one in zip(talks, ours, strict=True)]
            plain = [plain_bm25(talk, bare_words) for talk in talks]
            stemmed = [plain_bm25(talk, stemmed_words) for talk in talks]
            together = [one for some in found for one in some]
            report["questions"] = len(together)
            report["ours"] = averaged(together)
            report["plain_bm25"] = averaged([one for some in plain for one in some])
            report["stemmed_bm25"] = averaged([one for some in stemmed for one in some])
            report["by_conversation"] = {
                talk.name: {"ours": averaged(mine), "plain_bm25": averaged(other)}
                for talk, mine, other in zip(talks, found, plain, strict=True)
            }
            report["by_category"] = {
                str(category): averaged([one for one in together if one.category == category])
                for category in sorted({one.category for one in together})
            }
            if tune:
                report["left_out"] = left_out(talks, ours)
        if speed:
            report["memories"] = memory_speed()
            report["sessions"] = session_speed(Path(folder) / "speed")
    report["met"] = met(report)
    return report


def met(report: dict[str, Any]) -> dict[str, bool]:
    """Say which of the measured limits are met."""
    out: dict[str, bool] = {}
    if "ours" in report:
        ours, plain = report["ours"], report["plain_bm25"]
        out["turn_r10"] = ours["turn_r10"] >= LIMITS["turn_r10"]
        out["session_r10"] = ours["session_r10"] >= LIMITS["session_r10"]
        out["better_than_bm25"] = all(ours[name] > plain[name] for name in ours)
    if "memories" in report:
        out["memories_ms"] = report["memories"]["query_p50_ms"] <= LIMITS["memories_ms"]
        out["messages_ms"] = report["sessions"]["query_p50_ms"] <= LIMITS["messages_ms"]
        out["incremental"] = report["sessions"]["ten_new_bytes_read"] == report["sessions"]["ten_new_bytes"]
    return out


def draw(report: dict[str, Any]) -> None:
    """Print the tables."""
    names = ("turn_r5", "turn_r10", "session_r5", "session_r10")
    rows: list[tuple[str, dict[str, float]]] = []
    if "ours" in report:
        rows = [("plain BM25", report["plain_bm25"]), ("BM25, stems, no stop words", report["stemmed_bm25"])]
        rows += [("reverie, no model", report["ours"])]
        rows += [(f"  {name}", one["ours"]) for name, one in report["by_conversation"].items()]
        rows += [(f"  category {name}", one) for name, one in report["by_category"].items()]
    if "left_out" in report:
        rows += [("constants by the other four", report["left_out"]["all"])]
        rows += [(f"  {name}", one) for name, one in report["left_out"]["by_conversation"].items()]
    if rows:
        print(f"{'over ' + str(report['questions']) + ' questions':<30}" + "".join(f"{name:>13}" for name in names))
        for label, one in rows:
            print(f"{label:<30}" + "".join(f"{one[name]:>13.3f}" for name in names))
    if "left_out" in report:
        worst = report["left_out"]["worst_in_grid"]
        print(f"worst of {report['left_out']['grid']} settings near ours: {worst}")
    for name in ("memories", "sessions"):
        if name in report:
            print(f"{name}: " + ", ".join(f"{key} {value:,.1f}" for key, value in report[name].items()))
    print("limits met: " + ", ".join(f"{name} {'yes' if ok else 'NO'}" for name, ok in report["met"].items()))


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=None)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--check", action="store_true", help="exit 1 where a limit is not met")
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--tune", action="store_true")
    given = parser.parse_args()
    path = given.file or Path(os.environ.get("REVERIE_LOCOMO") or DEFAULT)
    if not path.exists():
        if given.file is not None or given.check:
            parser.error(f"{path} is not there; name a LoCoMo file")
        print(f"{path} is not there: only speed is measured", file=sys.stderr)
        path = None
    report = measure(path, speed=not given.no_speed, tune=given.tune)
    if given.as_json:
        print(json.dumps(report, indent=2))
    else:
        draw(report)
    return 1 if given.check and not all(report["met"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
