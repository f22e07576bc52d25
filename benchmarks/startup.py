"""How long do ``reverie --help`` and ``import reverie`` take, compared with ``python -c pass``?

Run: python benchmarks/startup.py [--rounds 20]. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from statistics import median

LIMIT_MS = 150.0
PROGRAMS = {
    "python -c pass": ["-c", "pass"],
    "import reverie": ["-c", "import reverie"],
    "reverie --help": ["-c", "from reverie.cli.main import main; main(['--help'])"],
}


def milliseconds(arguments: list[str]) -> float:
    """Run Python once and return its duration."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1_000


def main() -> int:
    """Measure alternately, so that other load affects all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    spent: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(rounds):
        for name, arguments in PROGRAMS.items():
            spent[name].append(milliseconds(arguments))
    bare = median(spent["python -c pass"])
    print(f"{'program':<18}{'median ms':>10}{'best ms':>10}{'vs. bare':>13}")
    for name, times in spent.items():
        print(f"{name:<18}{median(times):>10.1f}{min(times):>10.1f}{median(times) - bare:>13.1f}")
    help_ms = median(spent["reverie --help"])
    figures = {name: round(median(times), 1) for name, times in spent.items()}
    print(json.dumps({"median_ms": figures, "limit_ms": LIMIT_MS, "ok": help_ms <= LIMIT_MS}))
    return 0 if help_ms <= LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
