"""What does one turn cost, how does that grow, and how fast does a log load?

    python benchmarks/view.py [--json] [--check] [--rounds 20] [--megabytes 50]

A turn is the work of a tool loop between two calls of a model: append the reply to the log (in memory), fold it, append
the tool's result, fold it, build the next request. Sessions of 200 and of 2,000 messages (1.2 M tokens) are measured
alternately, call by call, so that other load affects both. The same is measured with 500 old results
cleared, and with decisions logged in each turn. Loading is compared with parsing the log's lines.

Folding does not count tokens; the count is made on request. It is therefore measured separately from the turn
and from loading, and a session that asks for it every turn pays ``with_all``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from random import Random
from statistics import median
from typing import Any, NamedTuple

import msgspec

from reverie.conversation.decisions import (
    Cause,
    Decision,
    PrefixRendered,
    Replacement,
    ResultOffloaded,
    ResultsCleared,
    ResultsKept,
    body_of,
)
from reverie.conversation.entries import ASSISTANT, DECISION, USER, Entry, encode_entry, iso, new_uuid
from reverie.conversation.log import parse_log
from reverie.conversation.view import View
from reverie.conversation.wire.request import build_request
from reverie.storage.in_memory import InMemoryStorage

SIZES = (200, 2_000)
LIMITS = {"turn_us": 100.0, "growth": 1.2, "load_ratio": 3.0}
SPREAD = 40  # messages around each size over which turns are measured

PROSE = """the session keeps what was said and a view shows what is left of it when old results are cleared so that the
next request extends the last one byte for byte unless a decision in the log says why it does not and that decision
names its reason its layer and the tokens it frees"""
WORDS = PROSE.split()
CODE = [
    "def load(self, key: str) -> bytes | None:",
    "    pieces = self._pieces.get(key, [])",
    "    if not pieces or len(pieces) > limit:",
    "        raise StorageError(f'cannot read {key}: {len(pieces)} pieces', path=key)",
    "    return b''.join(piece for piece in pieces if piece is not None)",
    "for index, (name, value) in enumerate(sorted(settings.items())):",
    "    assert value >= 0, f'{name} at {index} is {value!r}'",
    "",
]

SYSTEM = "You are a careful engineer. " * 280
TOOLS = [
    {
        "name": name,
        "description": "Do what the name says, on the paths given. " * 12,
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    }
    for name in ("Read", "Write", "Edit", "Glob", "Grep", "Bash", "Todo", "Skill", "Agent", "Send", "Fetch", "Search")
]
CAUSE = Cause("benchmark", "because")

Body = dict[str, Any]


class Turn(NamedTuple):
    """The duration of one turn, in microseconds."""

    turn: float
    stamps: float
    count: float


def prose(rng: Random, chars: int) -> str:
    """Write sentences of about a given length."""
    out: list[str] = []
    size = 0
    while size < chars:
        sentence = " ".join(rng.choices(WORDS, k=rng.randint(6, 18))).capitalize() + ". "
        out.append(sentence)
        size += len(sentence)
    return "".join(out).strip()


def code(rng: Random, chars: int) -> str:
    """Write a file with line numbers, like the output of a read."""
    out: list[str] = []
    size, number = 0, rng.randint(1, 900)
    while size < chars:
        line = f"{number:>6}\t{rng.choice(CODE)}"
        out.append(line)
        size += len(line) + 1
        number += 1
    return "\n".join(out)


def listing(rng: Random, chars: int) -> str:
    """Write JSON, like the output of a command."""
    rows: list[Body] = []
    while len(rows) * 66 < chars:
        name = "_".join(rng.choices(WORDS, k=2))
        rows.append({"path": f"src/{name}.py", "line": rng.randint(1, 999), "passed": rng.random() < 0.9})
    return json.dumps(rows, indent=1)


def results(rng: Random) -> Iterator[str]:
    """Yield tool results of about 2.4 KB, each kind in turn."""
    while True:
        for write in (code, prose, code, listing):
            yield write(rng, 2_350)


class Talk:
    """A realistic tool loop, turn by turn, as the bytes that a provider and a tool would send."""

    def __init__(self, seed: int = 7) -> None:
        self._rng = Random(seed)
        self._results = results(self._rng)
        self._turns: list[tuple[bytes, bytes]] = []
        self._billed = 6_000

    def turn(self, at: int) -> tuple[Body, Body]:
        """Return the bodies of a reply and of its result, fresh from the wire."""
        while len(self._turns) <= at:
            self._turns.append(self._told(len(self._turns)))
        reply, result = self._turns[at]
        return msgspec.json.decode(reply), msgspec.json.decode(result)

    def _told(self, at: int) -> tuple[bytes, bytes]:
        rng, called = self._rng, f"toolu_{at:024d}"
        said = prose(rng, 700)
        path = f"/repo/src/{rng.choice(WORDS)}.py"
        if at % 3:
            name, arguments = "Edit", {"file_path": path, "old_string": code(rng, 380), "new_string": code(rng, 480)}
        else:
            name, arguments = "Bash", {"command": f"sed -n 1,80p {path}", "description": prose(rng, 650)}
        content = [
            {"type": "text", "text": said},
            {"type": "tool_use", "id": called, "name": name, "input": arguments},
        ]
        result = next(self._results)
        usage = {
            "input_tokens": 4,
            "cache_creation_input_tokens": 1_250,
            "cache_read_input_tokens": self._billed,
            "output_tokens": 520 + at % 60,
            "service_tier": "standard",
        }
        self._billed += 1_250
        reply = {
            "id": f"msg_{at:024d}",
            "type": "message",
            "model": "claude-sonnet-4-5-20250929",
            "stop_reason": "tool_use",
            "usage": usage,
        }
        block = {"type": "tool_result", "tool_use_id": called, "content": result}
        return (
            msgspec.json.encode({"message": {"role": ASSISTANT, "content": content}, "reply": reply}),
            msgspec.json.encode({"message": {"role": USER, "content": [block]}}),
        )


class Live:
    """A session in memory: a log, its view, and the last request built from it."""

    def __init__(self, talk: Talk, busy: bool = False) -> None:
        self.talk = talk
        self.busy = busy
        self.storage = InMemoryStorage()
        self.view = View()
        self.request: Body = {}
        self.turns = 0
        self.decide(PrefixRendered(CAUSE, "claude-sonnet-4-5", SYSTEM, TOOLS, {"max_tokens": 8_000}))
        self.append(
            self.stamped(
                USER, {"message": {"role": USER, "content": "Make the failing tests of this repository pass."}}
            )
        )

    def stamped(self, kind: str, body: Body) -> Entry:
        """Make an entry with an id and a time."""
        return Entry(new_uuid(), self.view.last, iso(time.time()), "session", kind, body)

    def append(self, entry: Entry) -> None:
        """Append one entry and fold it, the way the session's writer does."""
        self.storage.append("session.jsonl", encode_entry(entry))
        self.view = self.view.fold(entry)

    def decide(self, decision: Decision) -> None:
        """Log a decision."""
        self.append(self.stamped(DECISION, body_of(decision)))

    def clear(self, results: int) -> None:
        """Clear the oldest results, one decision each."""
        for result in self.view.results[:results]:
            self.decide(cleared(result.tool_use_id))

    def turn(self) -> Turn:
        """Take one turn and say how long its parts took."""
        reply, result = self.talk.turn(self.turns)
        clock = time.perf_counter_ns
        start = clock()
        entry = self.stamped(ASSISTANT, reply)
        stamped = clock()
        self.append(entry)
        replied = clock()
        entry = self.stamped(USER, result)
        restamped = clock()
        self.append(entry)
        if self.busy:
            self._decide_on(result["message"]["content"][0]["tool_use_id"])
        self.request = build_request(self.view)
        built = clock()
        _ = self.view.token_count.tokens
        counted = clock()
        self.turns += 1
        turn, stamps = (replied - stamped) + (built - restamped), (stamped - start) + (restamped - replied)
        return Turn(turn / 1e3, stamps / 1e3, (counted - built) / 1e3)

    def _decide_on(self, called: str) -> None:
        """Log the decisions of a busy turn: keep or offload the new result, clear an old one."""
        if self.turns % 2:
            self.decide(ResultsKept(CAUSE, [called]))
        else:
            self.decide(ResultOffloaded(CAUSE, called, "<preview>", f"tool-results/{called}.txt", "00" * 32, 2_400))
        old = f"toolu_{self.turns // 2:024d}"
        self.decide(cleared(old))


def cleared(called: str) -> ResultsCleared:
    """Decide to clear one result."""
    return ResultsCleared(CAUSE, [Replacement(called, "[Old tool result content cleared]", called, 600)])


def measure_turns(talk: Talk, rounds: int, *, clear: bool = False, busy: bool = False) -> Body:
    """Measure turns around both sizes, alternately, in new sessions each round."""
    spent: dict[int, list[Turn]] = {size: [] for size in SIZES}
    tokens: dict[int, int] = {}
    for lap in range(rounds + 1):
        live = {size: Live(talk, busy) for size in SIZES}
        for size, session in live.items():
            while session.turns * 2 + 1 < size - SPREAD // 2:
                session.turn()
            session.clear(size // 4 if clear else 0)
        for step in range(SPREAD // 2):
            for size in SIZES if step % 2 else reversed(SIZES):
                took = live[size].turn()
                if lap:  # the first round warms up
                    spent[size].append(took)
        tokens = {size: session.view.tokens for size, session in live.items()}
    few, many = (Turn(*(median(part) for part in zip(*spent[size], strict=True))) for size in SIZES)
    return {
        "turns_measured": len(spent[SIZES[0]]),
        "tokens": tokens[SIZES[1]],
        "at_200_us": few.turn,
        "at_2000_us": many.turn,
        "per_message_us": many.turn / 2,
        "best_tenth_us": sorted(one.turn for one in spent[SIZES[1]])[len(spent[SIZES[1]]) // 10],
        "growth": many.turn / few.turn,
        "stamps_us": many.stamps,
        "count_us": many.count,
        "with_all_us": sum(many),
        "growth_with_all": sum(many) / sum(few),
    }


def write_log(talk: Talk, megabytes: float) -> bytes:
    """Write the log of a long session."""
    lines: list[bytes] = []
    size = at = 0
    while size < megabytes * 1e6:
        for kind, body in zip((ASSISTANT, USER), talk.turn(at), strict=True):
            entry = Entry(f"{kind}-{at}", None, iso(1.7e9 + at), "session", kind, body)
            lines.append(encode_entry(entry) + b"\n")
            size += len(lines[-1])
        at += 1
    return b"".join(lines)


def measure_loading(talk: Talk, megabytes: float, rounds: int = 7) -> Body:
    """Load a log, and parse its lines, alternately; compare the medians."""
    data = write_log(talk, megabytes)
    spent: dict[str, list[float]] = {"parse lines": [], "load": [], "count": []}
    for _ in range(rounds):
        start = time.perf_counter()
        parsed = [msgspec.json.decode(line) for line in data.split(b"\n") if line]
        spent["parse lines"].append(time.perf_counter() - start)
        entries = len(parsed)
        del parsed
        start = time.perf_counter()
        view = View().fold_all(parse_log(data).entries)
        spent["load"].append(time.perf_counter() - start)
        start = time.perf_counter()
        _ = view.token_count.tokens
        spent["count"].append(time.perf_counter() - start)
        del view
    parsing, loading, counting = (median(times) for times in spent.values())
    return {
        "megabytes": len(data) / 1e6,
        "entries": entries,
        "parse_lines_s": parsing,
        "load_s": loading,
        "ratio": loading / parsing,
        "first_count_s": counting,
    }


def measure_forks(talk: Talk, rounds: int = 200) -> Body:
    """Fork a view of each size and extend it twice, so that the second extension has to copy."""
    found: Body = {}
    for size in SIZES:
        live = Live(talk)
        while live.turns * 2 + 1 < size:
            live.turn()
        spent: list[float] = []
        for _ in range(rounds):
            snapshot = live.view
            live.turn()
            entry = live.stamped(USER, {"message": {"role": USER, "content": "Sum up what was done."}})
            start = time.perf_counter_ns()
            build_request(snapshot.fold(entry))
            spent.append((time.perf_counter_ns() - start) / 1e3)
        found[f"fork_at_{size}_us"] = median(spent)
    return found


def main() -> int:
    """Measure, print, and with ``--check`` return the exit status: 0 if the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--check", action="store_true", help="fail where a limit is missed")
    parser.add_argument("--rounds", type=int, default=20, help="fresh sessions to measure turns in")
    parser.add_argument("--megabytes", type=float, default=50.0, help="size of the log that is loaded")
    options = parser.parse_args()
    talk, half = Talk(), max(1, options.rounds // 2)
    turns = {
        "tool loop": measure_turns(talk, options.rounds),
        "a quarter of the results cleared": measure_turns(talk, half, clear=True),
        "two decisions a turn": measure_turns(talk, half, busy=True),
    }
    forks = measure_forks(talk)
    loading = measure_loading(Talk(11), options.megabytes)
    plain = turns["tool loop"]
    values = {"turn_us": plain["at_2000_us"], "load_ratio": loading["ratio"]}
    values["growth"] = max(row["growth"] for row in turns.values())
    checks = {
        name: {"value": values[name], "limit": limit, "met": values[name] <= limit} for name, limit in LIMITS.items()
    }
    if options.json:
        print(json.dumps({"turns": turns, "forks": forks, "loading": loading, "limits": checks}, indent=2))
    else:
        table(turns, forks, loading)
        for name, check in checks.items():
            print(f"{name:<12}{check['value']:10.3f} <= {check['limit']:<7} {'met' if check['met'] else 'MISSED'}")
    return 1 if options.check and not all(check["met"] for check in checks.values()) else 0


def table(turns: dict[str, Body], forks: Body, loading: Body) -> None:
    """Print the measurements."""
    columns = (
        "at_200_us",
        "at_2000_us",
        "per_message_us",
        "best_tenth_us",
        "growth",
        "stamps_us",
        "count_us",
        "with_all_us",
    )
    print(f"{'one turn: append, fold, build':<36}{'tokens':>10}" + "".join(f"{name:>16}" for name in columns))
    for name, row in turns.items():
        print(f"{name:<36}{row['tokens']:>10,}" + "".join(f"{row[column]:>16.2f}" for column in columns))
    print(
        "(the limits are on append, fold and build. stamps: ids and times of both entries; count: asking for the count"
    )
    print(" afterwards, which measures the text only then; with_all: the sum of all three)\n")
    print("first entry onto a fork that has to copy, and its request: " + named(forks))
    print("loading: " + named(loading) + "\n")


def named(figures: Body) -> str:
    """Return figures and their names on one line."""
    return ", ".join(
        f"{name} {value:,.3f}" if isinstance(value, float) else f"{name} {value:,}" for name, value in figures.items()
    )


if __name__ == "__main__":
    sys.exit(main())
