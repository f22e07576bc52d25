"""What does it cost to find that a dream may not begin?

The gate is checked after every query, and nearly always the last dream was too recent. That answer may cost one
``stat``, so the same run also times a bare ``os.stat`` of the stamp, alternately. Prints a table, or
JSON with ``--json``; with ``--check`` exits with 1 above the limit.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from reverie.layers.l6_dream.policy import DreamPolicy
from reverie.runtime.dream.gate import DreamGate
from reverie.runtime.dream.lock import DreamLock

MAX_RATIO = 3.0
HOUR_SECONDS = 3_600.0


def timed(way: Callable[[], object], calls: int) -> float:
    """Return the seconds per call over a number of calls."""
    start = time.perf_counter()
    for _ in range(calls):
        way()
    return (time.perf_counter() - start) / calls


def filled(folder: Path, sessions: int) -> tuple[Path, Path]:
    """Make a memory directory with a stamp of an hour ago, and a home with sessions."""
    memory, home = folder / "memory", folder / "home"
    logs = home / "projects" / "app"
    logs.mkdir(parents=True)
    for number in range(sessions):
        (logs / f"session-{number}.jsonl").write_text("{}\n")
    held = DreamLock(memory).take(time.time() - HOUR_SECONDS)
    assert held is not None
    held.succeed()
    return memory, home


def reasons(gate: DreamGate, many: int) -> set[str]:
    """Check the gate a number of times and return the reasons why it is closed."""
    found = [gate.check("now") for _ in range(many)]
    return {one.reason if one is not None else "open" for one in found}


def measure(folder: Path, sessions: int, calls: int, rounds: int) -> dict[str, dict[str, float]]:
    """Time a bare stat, the gate closed in each cheap way, and a scan of all sessions."""
    memory, home = filled(folder, sessions)
    stamp = str(memory / ".consolidate-lock")
    by_hours = DreamGate(memory, home=home, project="app")
    by_scan = DreamGate(memory, home=home, project="app", policy=DreamPolicy(every_hours=0.5, min_sessions=10**6))
    looking = DreamGate(
        memory, home=home, project="app", policy=DreamPolicy(every_hours=0.5, scan_minutes=0, min_sessions=10**6)
    )
    assert reasons(by_hours, 2) == {"too_soon"}
    assert reasons(looking, 2) == {"few_sessions"}
    assert reasons(by_scan, 2) == {"just_scanned"}
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "a bare stat": (lambda: os.stat(stamp), calls),
        "closed by the hours": (lambda: by_hours.check("now"), calls),
        "closed by the last scan": (lambda: by_scan.check("now"), calls),
        "switched off": (lambda: by_hours.check("now", enabled=False), calls),
        f"looking at {sessions} sessions": (lambda: looking.check("now"), max(1, calls // 1_000)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name, (way, many) in ways.items():
            seconds[name].append(timed(way, many))
    gc.enable()
    bare = seconds["a bare stat"]
    return {
        name: {
            "best_us": round(min(found) * 1e6, 3),
            "ratio": round(
                min(
                    min(found) / min(bare),
                    statistics.median(one / other for one, other in zip(found, bare, strict=True)),
                ),
                3,
            ),
        }
        for name, found in seconds.items()
    }


def main() -> int:
    """Measure, print, and return the exit status: 0 if the limit holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit 1 where the limit is passed")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, default=None, help="the folder to measure in; its file system matters")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="reverie-dream-gate-") as folder:
        rows = measure(Path(folder), options.sessions, options.calls, options.rounds)
    ratio = rows["closed by the hours"]["ratio"]
    if options.json:
        print(json.dumps({"rows": rows, "ratio": ratio, "limit": MAX_RATIO, "met": ratio <= MAX_RATIO}))
    else:
        for name, row in rows.items():
            limit = f" (limit {MAX_RATIO})" if name == "closed by the hours" else ""
            print(f"{name:<26} {row['best_us']:>10} µs, {row['ratio']:>8} of a bare stat{limit}")
    return 0 if ratio <= MAX_RATIO or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
