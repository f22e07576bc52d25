"""How long does it take to judge a line of shell, and to start a command in the sandbox?

Run: python benchmarks/shell.py [--check]. Prints a table and one line of JSON; with --check exits with 1 above a limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from reverie.tools.shell.computed import judged_line
from reverie.tools.shell.sandbox import available, confined_command

JUDGE_LIMIT_MS = 5.0
judge = judged_line.__wrapped__  # each line is judged anew
START_LIMIT_MS = 100.0
FOLDER = Path(__file__).resolve().parents[1] / "tests" / "tools" / "shell_commands"
# The longest line that is read at all, in shapes that invite a reader to go back and forth.
LONGEST = {
    "longest: words": "ls " + "a " * 490,
    "longest: quotes": "echo " + "'a'\"b\"" * 160,
    "longest: pipes": "ls | " * 190 + "ls",
    "longest: sed": "sed '" + "p;" * 480 + "w x'",
    "longest: awk": "awk '{print " + "$1 " * 90 + "x}'",
    "longest: brackets": "ls " + "[" * 990,
}


def milliseconds(act: Callable[[], object]) -> float:
    """Run a function once and return its duration."""
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1_000


def lines(name: str) -> list[str]:
    """Return the commands in a file of the tests."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return [line.removeprefix("never ") for line in text.splitlines() if line and not line.startswith("# ")]


def judged(given: list[str], rounds: int) -> dict[str, float]:
    """Judge every line several times and keep its best time, so that other load does not count."""
    best = [min(milliseconds(lambda line=line: judge(line)) for _ in range(rounds)) for line in given]
    return {"median_ms": round(median(best), 3), "worst_ms": round(max(best), 3)}


def started(command: list[str], rounds: int) -> dict[str, float]:
    """Start a command several times."""
    spent = [milliseconds(lambda: subprocess.run(command, check=True)) for _ in range(rounds)]
    return {"median_ms": round(median(spent), 1), "worst_ms": round(max(spent), 1), "best_ms": round(min(spent), 1)}


def main() -> int:
    """Measure, print, and return the exit status: 0 if the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    first = milliseconds(lambda: judge("ls"))
    rows = {name: judged(lines(f"{name}.txt"), options.rounds) for name in ("benign", "harmful")}
    computed = [case["command"] for case in json.loads((FOLDER / "hostile_computed.json").read_text("utf-8"))]
    rows["computed"] = judged(computed, options.rounds)
    rows |= {name: judged([line], options.rounds) for name, line in LONGEST.items()}
    if available().works:
        command = confined_command(["true"], cwd=Path.cwd())
        rows["bare python"] = started([sys.executable, "-I", "-S", "-c", "pass"], 4 * options.rounds)
        rows["confined true"] = started(command, 4 * options.rounds)
    if available().watch:
        line = ["bash", "-c", "for i in 1 2 3; do uname > /dev/null; done"]
        rows["3 watched programs"] = started(confined_command(line, cwd=Path.cwd(), watched=["/proc"]), options.rounds)
    print(f"{'what':<20}{'median ms':>12}{'worst ms':>12}")
    for name, row in rows.items():
        print(f"{name:<20}{row['median_ms']:>12}{row['worst_ms']:>12}")
    worst = max(row["worst_ms"] for name, row in rows.items() if "best_ms" not in row)
    start = rows.get("confined true", {}).get("best_ms", 0.0)
    within = worst <= JUDGE_LIMIT_MS and start <= START_LIMIT_MS
    limits = {"judge_worst_ms": JUDGE_LIMIT_MS, "start_best_ms": START_LIMIT_MS}
    print(json.dumps({"first_ms": round(first, 1), "rows": rows, "limits": limits, "ok": within}))
    return 1 if options.check and not within else 0


if __name__ == "__main__":
    sys.exit(main())
