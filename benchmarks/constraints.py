"""Do clauses of the user that bind for the rest of a session survive its compactions?

Each clause of ``data/clauses.json`` is a message in English, German or Chinese, stated outright or in passing. It is
put at the top, the middle and late into a chat in which the user writes much, and into a coding session. Other
sessions of the same kind follow in the same log, so that the window fills again and again. After 1, 3 and 5
compactions since the clause was said, it is searched in the next request, by literal match of its words. A run holds
three clauses, one at each place; each clause takes each place in turn.

    without    no model: the program chooses the sentences that it quotes
    with       a scripted model takes the notes and finds the clauses; what is measured is that they then stay

A clause that the user took back, or replaced, is shown wrongly if no message that takes it back follows it in the
request. The saying that a rule no longer holds does not count as showing it. Decoys are sentences
that look like rules and bind nothing; the table says how many the program would quote before others.

With ``--check`` it exits with 1 unless with a model every clause is there and none is shown wrongly, and without one
at least 0.95 of those stated outright in English are there.

Run: python benchmarks/constraints.py [--corpus PATH] [--chats PATH] [--windows 16384,...] [--json] [--check]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import anyio

from reverie import InMemoryStorage, Session, load_settings
from reverie.conversation.authorship import strings_of
from reverie.conversation.entries import ASSISTANT, USER, Entry, new_uuid
from reverie.importers import read_sessions
from reverie.layers.l4_compact.binding_sentences import LEAST_SCORE
from reverie.models.scripted_model import ScriptedModel
from reverie.ports import Capabilities
from reverie.replay.play import PlayedClock, play_session
from reverie.text.directives import binding_passages, typed_sentences
from reverie.values import replace

SHARED = Path(__file__).resolve().parents[2] / "shared"
CLAUSES = Path(__file__).parent / "data" / "clauses.json"
WINDOWS = (16_384, 32_768, 200_000)
PLACES = {"top": 0.03, "middle": 0.5, "late": 0.9}
COUNTS = (1, 3, 5)
START = "2026-01-05T09:00:00.000Z"
MODEL = "claude-sonnet-4-5"
NOTED = '<section name="Current State">\nThe work goes on as asked.\n</section>'
AIM = 0.95
FOLLOWING = 40
LEAST_ENTRIES = 40
_ENDED = re.compile(r"This no longer holds: .*?Ignore the earlier text about this\.")


@dataclass
class Row:
    """Whether one clause was shown after a number of compactions."""

    id: str
    language: str
    style: str
    way: str
    kind: str
    window: int
    place: str
    compactions: int
    shown: bool
    ended: bool = False
    """Whether the user took the clause back."""
    wrong: bool = False


@dataclass
class Planted:
    """A clause in a session: its place, and the number of compactions when it was said."""

    clause: dict[str, Any]
    place: str
    end: str = ""
    """The message that takes the clause back; empty for a clause that stands."""
    said_at: int | None = None
    counted: set[int] = field(default_factory=set[int])


def chat_entries(path: Path) -> list[Entry]:
    """Return the messages of one chat as entries."""
    entries: list[Entry] = []
    for batch in json.loads(path.read_text("utf-8")):
        for turns in batch["turns"]:
            for turn in turns if isinstance(turns, list) else [turns]:
                text = re.sub(r"\s*->->.*\Z", "", turn["content"], flags=re.DOTALL)
                entries.append(_entry(turn["role"], text))
    return entries


def _entry(role: str, text: str) -> Entry:
    uuid = new_uuid()
    reply = {"reply": {"id": f"msg_{uuid}"}} if role == "assistant" else {}
    body = {"message": {"role": role, "content": [{"type": "text", "text": text}]}, **reply}
    return Entry(uuid, None, START, "s", ASSISTANT if role == "assistant" else USER, body)


@cache
def chats(folder: Path) -> list[list[Entry]]:
    """Return the chats in a folder."""
    return [chat_entries(path) for path in sorted(folder.glob("*/chat.json"))]


@cache
def coding(folder: Path) -> list[list[Entry]]:
    """Return the recorded sessions in a folder that are long enough, without their own compactions."""
    found = [list(one.messages) for one in read_sessions(folder)]
    return [entries for entries in found if len(entries) >= LEAST_ENTRIES]


def stream(sessions: Sequence[list[Entry]], first: int, planted: Sequence[Planted]) -> Iterator[Entry]:
    """Yield a session with the clauses in it, then the other sessions of its kind."""
    rotated = [sessions[(first + n) % len(sessions)] for n in range(len(sessions))]
    opening = rotated[0]
    starts = [at for at in range(1, len(opening)) if opening[at].kind == ASSISTANT != opening[at - 1].kind]
    inserted: dict[int, list[str]] = {}
    for one in planted:
        at = starts[min(len(starts) - 1, int(len(starts) * PLACES[one.place]))]
        inserted.setdefault(at, []).append(one.clause["message"])
        if one.end:
            later = starts[min(len(starts) - 1, int(len(starts) * (PLACES[one.place] + 0.05)) + 1)]
            inserted.setdefault(later, []).append(one.end)
    for at, entry in enumerate(opening):
        yield from (_entry("user", text) for text in inserted.get(at, ()))
        yield entry
    for entries in rotated[1 : 1 + FOLLOWING]:
        yield from entries


class Run:
    """One session with planted clauses in one window; collects a row for each clause and count of compactions."""

    def __init__(self, way: str, kind: str, window: int, planted: Sequence[Planted]) -> None:
        self.way, self.kind, self.window, self.planted = way, kind, window, planted
        self.rows: list[Row] = []

    async def play(self, entries: Iterator[Entry]) -> list[Row]:
        """Play entries until every clause has seen five compactions, and return the rows."""
        settings = replace(load_settings(), window_tokens=self.window)
        clock = PlayedClock()
        model = finder(self.planted) if self.way == "with" else None
        async with Session.open("s", storage=InMemoryStorage(), settings=settings, clock=clock, model=model) as session:
            played = play_session(
                list(entries),
                session,
                clock,
                model=MODEL,
                system="You help the user.",
                tools=[],
                check=lambda request: self._check(session, request),
                on_said=lambda text: self._said(session, text),
            )
            async for _ in played:
                if all(max(COUNTS) in one.counted for one in self.planted):
                    break
        return self.rows

    def _said(self, session: Session, text: str) -> None:
        for one in self.planted:
            if text == (one.end or one.clause["message"]):
                one.said_at = len(session.view.facts.compactions)

    def _check(self, session: Session, request: dict[str, Any]) -> None:
        count = len(session.view.facts.compactions)
        due = [
            (one, n)
            for one in self.planted
            for n in COUNTS
            if one.said_at is not None and n not in one.counted and count - one.said_at >= n
        ]
        shown = _ENDED.sub("", _plain("\n".join(strings_of(request["messages"])))) if due else ""
        for one, n in due:
            one.counted.add(n)
            clause = one.clause
            at = shown.rfind(_plain(clause["clause"]))
            wrong = bool(one.end) and at >= 0 and not any(_plain(end) in shown[at:] for end in _ends(one.end))
            key = (clause["id"], clause["language"], clause["style"], self.way, self.kind, self.window)
            self.rows.append(Row(*key, one.place, n, at >= 0, bool(one.end), wrong))


def _plain(text: str) -> str:
    return " ".join(text.split())


def _ends(message: str) -> list[str]:
    return typed_sentences(message) or [message]


def finder(planted: Sequence[Planted]) -> ScriptedModel:
    """Return a model that takes notes in a few words and finds the planted clauses and their ends."""

    def answer(request: dict[str, Any]) -> str:
        said = _plain(
            "\n".join(strings_of(request["messages"]))
        )  # the prompt may share a message with the user's words
        return "\n".join([NOTED, *(line for one in planted for line in _found(one, said))])

    return ScriptedModel(answer, capabilities=Capabilities(caching=True, window=10**7))


def _found(one: Planted, said: str) -> Iterator[str]:
    """Yield the elements of an answer about a clause, given the messages with the prompt for notes."""
    clause = _plain(one.clause["clause"])
    known = re.search(rf"(\d+): {re.escape(clause)}", said)
    if one.end and _plain(one.end) in said:
        if known and one.clause["replaced_by"]:
            yield f'<rule replaces="{known[1]}">{one.clause["replaced_by"]}</rule>'
        elif known:
            yield f'<rule_ended id="{known[1]}">{_ends(one.end)[0]}</rule_ended>'
    elif clause in said and not known:
        yield f"<rule>{clause}</rule>"


def plans(given: dict[str, Any], *, ended: bool) -> Iterator[list[Planted]]:
    """Yield the clauses of each run: three at a time, one at each place, each at every place in turn."""
    clauses = given["constraints"]
    if ended:
        for clause in clauses:
            end = clause["taken_back"] or clause["replaced_by"]
            if end:
                yield [Planted(clause, "top", end)]
        return
    third = -(-len(clauses) // 3)
    for group in range(third):
        mine = clauses[group::third]
        for turn in range(3):
            places = islice(cycle(PLACES), turn, turn + len(mine))
            yield [Planted(clause, place) for clause, place in zip(mine, places, strict=True)]


async def measured(
    given: dict[str, Any], ways: Sequence[str], windows: Sequence[int], kinds: dict[str, list[list[Entry]]]
) -> list[Row]:
    """Run all plans and return their rows; in turn in each kind of session, so that every place meets both."""
    rows: list[Row] = []
    for way in ways:
        for window in windows:
            runs = [*plans(given, ended=False), *plans(given, ended=True)]
            for number, planted in enumerate(runs):
                kind = list(kinds)[number % len(kinds)]
                run = Run(way, kind, window, planted)
                rows += await run.play(stream(kinds[kind], number, planted))
                print(f"\r{way} model, window {window:,}: {number + 1} of {len(runs)}", end="", file=sys.stderr)
            print(file=sys.stderr)
    return rows


def table(rows: Sequence[Row]) -> list[str]:
    """Return the shares that stay, by way, language and style, as lines."""
    windows = sorted({row.window for row in rows})
    lines = [f"{'':<32}" + "".join(f"{f'{window:,} after':>26}" for window in windows)]
    lines.append(f"{'model, language, style':<32}" + f"{''.join(f'{n:>8}' for n in COUNTS):>26}" * len(windows))
    kept = [row for row in rows if not row.ended]
    for key in dict.fromkeys((row.way, row.language, row.style) for row in kept):
        line = f"{', '.join(key):<32}"
        for window in windows:
            cells = [share(kept, *key, window=window, compactions=n) for n in COUNTS]
            line += f"{''.join(f'{cell:>8}' for cell in cells):>26}"
        lines.append(line)
    return lines


def share(rows: Sequence[Row], way: str, language: str, style: str, **fields: Any) -> str:
    """Return how many of the rows with these values show their clause, as a fraction."""
    mine = [row for row in rows if (row.way, row.language, row.style) == (way, language, style)]
    mine = [row for row in mine if all(getattr(row, name) == value for name, value in fields.items())]
    return f"{sum(row.shown for row in mine)}/{len(mine)}" if mine else "-"


def decoys_taken(given: dict[str, Any]) -> Counter[str]:
    """Count the decoys by language, and those of which a sentence would be quoted before others."""
    found: Counter[str] = Counter()
    for decoy in given["decoys"]:
        taken = any(score >= LEAST_SCORE for score, _ in binding_passages(decoy["message"]))
        found.update({decoy["language"]: 1, f"{decoy['language']} taken": taken})
    return found


def shortfalls(rows: Sequence[Row]) -> list[str]:
    """List every limit that is missed."""
    wrong = [f"{row.id} holds after it was taken back: {row}" for row in rows if row.wrong and row.way == "with"]
    kept = [row for row in rows if not row.ended]
    with_model = [row for row in kept if row.way == "with"]
    wrong += [f"{row.id} is lost with a model: {row}" for row in with_model if not row.shown]
    outright = [row for row in kept if (row.way, row.language, row.style) == ("without", "en", "outright")]
    shown = sum(row.shown for row in outright)
    if outright and shown < AIM * len(outright):
        wrong.append(f"without a model {shown} of {len(outright)} clauses stated outright in English stay, not {AIM}")
    return wrong if rows else ["nothing was measured"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--clauses", type=Path, default=CLAUSES)
    parser.add_argument("--corpus", type=Path, default=os.environ.get("REVERIE_CORPUS") or SHARED / "corpus")
    parser.add_argument("--chats", type=Path, default=SHARED / "beam-dev")
    parser.add_argument("--windows", default=",".join(map(str, WINDOWS)))
    parser.add_argument("--ways", default="without,with")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    options = parser.parse_args()
    if not (options.corpus.exists() and options.chats.exists()):
        sys.exit("no recorded sessions here: name folders with --corpus and --chats")
    given = json.loads(options.clauses.read_text("utf-8"))
    kinds = {"chat": chats(options.chats), "coding": coding(options.corpus)}
    windows = [int(one) for one in options.windows.split(",")]
    rows = anyio.run(measured, given, options.ways.split(","), windows, kinds)
    decoys = decoys_taken(given)
    if options.json:
        print(json.dumps({"decoys": decoys, "rows": [asdict(row) for row in rows]}, indent=1))
    else:
        print("\n".join(table(rows)))
        ended = [row for row in rows if row.ended]
        print(f"taken back: {sum(row.wrong for row in ended)} of {len(ended)} requests show it without its end")
        print("decoys ranked as rules: " + ", ".join(f"{name} {n}" for name, n in sorted(decoys.items())))
    wrong = shortfalls(rows) if options.check else []
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
