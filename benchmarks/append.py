"""How much slower is a durable append than a bare write and fdatasync?

Both append the same lines to their own file in the same directory, alternately, so that other load on the machine
affects both. Prints a table, or JSON with ``--json``; exits with 1 if the ratio of the medians is above the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from reverie.storage.files import FileStorage

LIMIT = 1.5
IN_MEMORY_US = 20.0


def measure(folder: Path, line_bytes: int, appends: int, durable: bool) -> dict[str, float]:
    """Time both ways of appending, alternately, and return the medians and their ratio."""
    sync = getattr(os, "fdatasync", os.fsync)
    descriptor = os.open(folder / f"bare-{line_bytes}-{durable}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    storage = FileStorage(folder, durability="always" if durable else "second")
    line = b"x" * line_bytes
    key = f"log-{line_bytes}-{durable}"

    def bare() -> None:
        os.write(descriptor, line + b"\n")
        if durable:
            sync(descriptor)

    def ours() -> None:
        storage.append(key, line)

    seconds: dict[str, list[float]] = {"bare": [], "ours": []}
    ways: list[tuple[str, Callable[[], None]]] = [("bare", bare), ("ours", ours)]
    for _, way in ways:
        way()
    for _ in range(appends):
        random.shuffle(ways)
        for name, way in ways:
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    storage.close()
    os.close(descriptor)
    bare_us, ours_us = (statistics.median(seconds[name]) * 1e6 for name in ("bare", "ours"))
    return {
        "line_bytes": line_bytes,
        "appends": appends,
        "bare_us": round(bare_us, 1),
        "ours_us": round(ours_us, 1),
        "ratio": round(ours_us / bare_us, 3),
        "ratio_of_means": round(statistics.fmean(seconds["ours"]) / statistics.fmean(seconds["bare"]), 3),
    }


def main() -> int:
    """Measure, print, and return the exit status: 0 if the limit holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--appends", type=int, default=1_000)
    parser.add_argument(
        "--folder", type=Path, default=Path(__file__).parent, help="the folder to measure in; its file system matters"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="reverie-append-") as folder:
        durable = [measure(Path(folder), size, options.appends, durable=True) for size in (200, 2_000, 50_000)]
        second = [measure(Path(folder), size, options.appends, durable=False) for size in (200, 2_000, 50_000)]
    worst = max(row["ratio"] for row in durable)
    if options.json:
        print(json.dumps({"limit": LIMIT, "worst_ratio": worst, "always": durable, "second": second}))
    else:
        print(f"{'durability':<12}{'line bytes':>12}{'bare µs':>12}{'reverie µs':>12}{'ratio':>9}{'of means':>10}")
        for name, rows in (("always", durable), ("second", second)):
            for row in rows:
                print(
                    f"{name:<12}{row['line_bytes']:>12,}{row['bare_us']:>12,.1f}{row['ours_us']:>12,.1f}"
                    f"{row['ratio']:>9.3f}{row['ratio_of_means']:>10.3f}"
                )
        print(f"\nworst ratio with fdatasync {worst:.3f}, limit {LIMIT}; 'second' has no limit (bare = write alone)")
    if durable[0]["bare_us"] < IN_MEMORY_US:
        print(f"{options.folder} is no disk (fdatasync costs nothing there); give one with --folder", file=sys.stderr)
        return 2
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
