"""Does extraction without a model propose wishes that a person repeats, and nothing else? What does its gate stop?

Each set is a project of short sessions in ``data``: the messages of one person, and the wishes that stand in two or
more of them. The sessions are read in order, each compared with those before. A proposal is right if its quotes are of
one wish. The table also names the wishes whose two wordings share half of their stems: those should be found by words
alone. Recorded sessions (``--corpus``) hold no wish that is repeated, so each proposal there is wrong.

    extraction_sessions, _fresh, _unseen    English, written by the author of the method
    extraction_languages                    German and Chinese, likewise
    extraction_stranger, _second, _third    written by people who had not seen the code
    extraction_fourth                       written by somebody who had read parts of the code
    extraction_fifth, _sixth                written by two people who had not seen the code
    extraction_seventh, _eighth             likewise, by two others
    extraction_ninth, _tenth                likewise, by another; not used to choose anything
    extraction_eleventh                     likewise, by another; it is in none of the sums of memory.md

The others were used to choose the method in the end; ``memory.md`` has the first measure of each. Many of their
messages are reference sentences of the package by now, so a set is measured without those that are its own.

The gate is measured by ``data/extraction_worth*.txt``, messages that are worth keeping, and by the messages of the
sets and of recorded sessions, most of which are not.

With ``--embedder`` a second table is made with its vectors. With ``--check`` it exits with 1 unless the gate passes
0.95 of the messages worth keeping, and over all sets the precision is at least 0.8, 0.9 of the wishes that share half
of their stems are found by words, and with vectors 0.8 of all wishes of the English sets.

Run: python benchmarks/extraction.py [--corpus PATH] [--embedder NAME] [--sets NAME ...] [--json] [--check]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reverie.conversation.entries import USER, Entry, iso
from reverie.importers import find_sessions, read_session
from reverie.layers.l5_extract import Embed, MemoryCandidate, PastSayings, extract, has_new_prose, sayings_of
from reverie.layers.l5_extract.prompts import ReferenceSentences, reference_sentences
from reverie.memories.recall.terms import tokens, without_noise
from reverie.memories.store.records import MemoryRecord
from reverie.models.embedders import open_embedder

DATA = Path(__file__).parent / "data"
SETS = (
    "extraction_sessions",
    "extraction_languages",
    "extraction_fresh",
    "extraction_unseen",
    "extraction_stranger",
    "extraction_second",
    "extraction_third",
    "extraction_fourth",
    "extraction_fifth",
    "extraction_sixth",
    "extraction_seventh",
    "extraction_eighth",
    "extraction_ninth",
    "extraction_tenth",
    "extraction_eleventh",
)
NOT_ENGLISH = "extraction_languages"
WORTH = ("extraction_worth", "extraction_worth_stranger", "extraction_worth_fifth")
START = 1_790_000_000.0
LEAST_PASSED = 0.95
LEAST_PRECISION = 0.8
LEAST_SHARED = 0.9
LEAST_EMBEDDED = 0.8


@dataclass
class Found:
    """The proposals of one set, and the wishes that it has."""

    name: str
    messages: int
    proposals: list[tuple[bool, str]]
    wishes: int
    found: int
    sharing: int
    """Wishes whose two wordings share half of their stems."""
    sharing_found: int
    missed: list[str]


def entries_of(session: str, day: int, messages: Sequence[str]) -> list[Entry]:
    """Return the messages of a session as log entries."""
    return [
        Entry(
            f"{session}-{number}", None, iso(START + day * 86_400 + number), session, USER,
            {"message": {"role": "user", "content": text}},
        )
        for number, text in enumerate(messages, 1)
    ]  # fmt: skip


def references_without(messages: Iterable[str]) -> ReferenceSentences:
    """Return the reference sentences except those that are messages of a set: it must not know its own answers."""
    seen = {" ".join(text.split()) for text in messages}
    every = reference_sentences()
    kinds = (tuple(text for text in kind if text not in seen) for kind in every.wishes)
    return ReferenceSentences(tuple(filter(None, kinds)), tuple(text for text in every.tasks if text not in seen))


def kept_vectors(embed: Embed) -> Embed:
    """Return an embedding that computes the vector of a text once, because all sets share the reference sentences."""
    known: dict[str, Sequence[float]] = {}

    def vectors(texts: Sequence[str]) -> list[Sequence[float]]:
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(missing, embed(missing) if missing else (), strict=True))
        return [known[text] for text in texts]

    return vectors


def proposals_of(
    sessions: Sequence[tuple[str, Sequence[Entry]]], embed: Embed | None, references: ReferenceSentences | None = None
) -> list[MemoryCandidate]:
    """Return the proposals of sessions that are read in order, as ``reverie memory extract`` reads them."""
    past = PastSayings(embed=embed, references=references)
    known, found = list[MemoryRecord](), list[MemoryCandidate]()
    for name, entries in sessions:
        made = extract(name, entries, past, known).candidates
        past.add(sayings_of(name, entries))
        found += made
        known += [MemoryRecord(f"{len(known)}.md", "n", one.text, one.type, body=one.body) for one in made]
    return found


def share_half(one: str, other: str) -> bool:
    """Say whether two messages share half of their stems, without stop words, by the shorter one."""
    some, others = (set(without_noise(tokens(text))) for text in (one, other))
    return 2 * len(some & others) >= min(len(some), len(others)) and len(some & others) > 2


def measured(name: str, embed: Embed | None) -> Found:
    """Return the figures of one set."""
    data: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    sessions: dict[str, list[str]] = data["sessions"]
    logs = [(session, entries_of(session, day, said)) for day, (session, said) in enumerate(sessions.items())]
    wishes_of: dict[str, set[int]] = {}
    for at, one in enumerate(data["wishes"]):
        for session, number in one["places"]:
            wishes_of.setdefault(f"{session} {session}-{number}", set()).add(at)
    rows: list[tuple[bool, str]] = []
    found: set[int] = set()
    references = references_without(text for said in sessions.values() for text in said)
    for one in proposals_of(logs, embed, references):
        said = Counter(wish for source in one.sources for wish in wishes_of.get(source, ()))
        last = wishes_of.get(one.sources[-1], set())
        right = {wish for wish in last if said[wish] > 1}
        found |= right
        rows.append((bool(right), f"{one.text} | {one.why}"))
    texts = [[sessions[s][n - 1] for s, n in one["places"]] for one in data["wishes"]]
    sharing = {at for at, said in enumerate(texts) if share_half(said[0], said[1])}
    missed = [str(one["wish"]) for at, one in enumerate(data["wishes"]) if at not in found]
    messages = sum(map(len, sessions.values()))
    return Found(name, messages, rows, len(texts), len(found), len(sharing), len(sharing & found), missed)


def corpus_sessions(corpus: Path | None) -> list[tuple[str, Sequence[Entry]]]:
    """Return the recorded sessions of a folder; none without one."""
    if corpus is None:
        return []
    return [
        (f"{file.name}-{number}", session.entries)
        for file in find_sessions(corpus)
        for number, session in enumerate(read_session(file))
    ]


def gate_rows(corpus: Sequence[tuple[str, Sequence[Entry]]]) -> dict[str, tuple[int, int]]:
    """Return how many messages of each kind the gate passes, and how many there are."""
    worth = [(DATA / f"{name}.txt").read_text().splitlines() for name in WORTH]
    said = [
        text
        for name in SETS
        for one in json.loads((DATA / f"{name}.json").read_text())["sessions"].values()
        for text in one
    ]
    kinds = {f"of {name}": texts for name, texts in zip(WORTH, worth, strict=True)} | {"of the sets": said}
    rows = {
        kind: (sum(has_new_prose(entries_of("s", 0, [text])) for text in texts), len(texts))
        for kind, texts in kinds.items()
    }
    typed = [
        entry for _, entries in corpus for entry in entries if entry.kind == USER and any(sayings_of("s", [entry]))
    ]
    if typed:
        rows["of recorded sessions"] = (sum(has_new_prose([entry]) for entry in typed), len(typed))
    return rows


def summary(found: Sequence[Found]) -> dict[str, float]:
    """Return the shares over all sets."""
    rows = [right for one in found for right, _ in one.proposals]
    return {
        "precision": sum(rows) / len(rows) if rows else 1.0,
        "found": sum(one.found for one in found) / sum(one.wishes for one in found),
        "sharing_found": sum(one.sharing_found for one in found) / sum(one.sharing for one in found),
    }


def draw(title: str, found: Sequence[Found], *, proposals: bool) -> None:
    """Print the table of one way to compare, and each proposal if asked for."""
    print(f"{title}\n{'set':<22}{'messages':>9}{'proposed':>9}{'right':>6}{'found':>10}{'sharing half':>14}  missed")
    for one in found:
        right = sum(good for good, _ in one.proposals)
        sums = f"{len(one.proposals):>9}{right:>6}{f'{one.found} of {one.wishes}':>10}"
        sharing = f"{one.sharing_found} of {one.sharing}"
        print(f"{one.name:<22}{one.messages:>9}{sums}{sharing:>14}  {'; '.join(one.missed)}")
    print("  ".join(f"{name} {value:.2f}" for name, value in summary(found).items()))
    for one in found if proposals else ():
        for good, text in one.proposals:
            print(f"  {'right' if good else 'WRONG'}  {text}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=os.environ.get("REVERIE_CORPUS"))
    parser.add_argument("--embedder", help="local:/path/model.gguf or the URL of an endpoint")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--proposals", action="store_true", help="Print each proposal with its judgement.")
    given = parser.parse_args()
    recorded = corpus_sessions(Path(given.corpus) if given.corpus else None)
    by_words = [measured(name, None) for name in given.sets]
    embed = kept_vectors(open_embedder(given.embedder).vectors) if given.embedder else None
    english = [name for name in given.sets if name != NOT_ENGLISH] if embed is not None else []
    by_vectors = [measured(name, embed) for name in english]
    gate = gate_rows(recorded)
    wrong = [f"{one.text} | {one.why}" for one in proposals_of(recorded, None)]
    wrong_by_vectors = [f"{one.text} | {one.why}" for one in proposals_of(recorded, embed)] if embed else []
    if given.json:
        tables = {"words": [asdict(one) for one in by_words], "vectors": [asdict(one) for one in by_vectors]}
        print(
            json.dumps(
                {**tables, "gate": gate, "recorded": wrong, "recorded, vectors": wrong_by_vectors}, ensure_ascii=False
            )
        )
    else:
        draw("by words", by_words, proposals=given.proposals)
        if by_vectors:
            draw("with vectors", by_vectors, proposals=given.proposals)
        for kind, (passed, total) in gate.items():
            print(f"gate: passes {passed} of {total} messages {kind} ({passed / total:.1%})")
        if recorded:
            by_meaning = f", with vectors {len(wrong_by_vectors)}" if embed else ""
            print(f"recorded sessions: {len(wrong)} proposals{by_meaning}, each of them wrong")
        for text in (*wrong, *wrong_by_vectors):
            print(f"  WRONG  {text}")
    words, worth = summary(by_words), [row for kind, row in gate.items() if kind.startswith("of extraction_worth")]
    limits = {
        "gate": all(passed / total >= LEAST_PASSED for passed, total in worth),
        "precision": words["precision"] >= LEAST_PRECISION and not wrong,
        "wishes that share half of their stems": words["sharing_found"] >= LEAST_SHARED,
    }
    if by_vectors:
        vectors = summary(by_vectors)
        rows = [good for one in by_vectors for good, _ in one.proposals] + [False] * len(wrong_by_vectors)
        limits["precision with vectors"] = sum(rows) / max(len(rows), 1) >= LEAST_PRECISION
        limits["wishes with vectors"] = vectors["found"] >= LEAST_EMBEDDED
    for name, met in limits.items():
        print(f"{'met' if met else 'MISSED'}: {name}", file=sys.stderr)
    return 1 if given.check and not all(limits.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
