"""What broke the cache in recorded sessions? Every drop in reads, with its reason, from recorded usage alone.

    python benchmarks/watch.py [FILE_OR_FOLDER ...] [--each] [--json]

Without an argument it reads the corpus next to the repository, or $REVERIE_CORPUS. A drop is a request that read less
than 95 % of the tokens that the previous request had read and written, and at least 2,000 tokens less.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reverie.errors import ReverieError
from reverie.importers import find_sessions, read_session
from reverie.replay.drops import CacheDrop, drops
from reverie.replay.recording import recording_of

REPOSITORY = Path(__file__).resolve().parent.parent


def corpus() -> list[Path]:
    """Return the default folder of recordings."""
    given = os.environ.get("REVERIE_CORPUS")
    return [Path(given) if given else REPOSITORY.parent / "shared" / "corpus"]


def measured(paths: list[Path]) -> list[dict[str, Any]]:
    """Explain the drops of every session with usage."""
    sessions: list[dict[str, Any]] = []
    for path in paths:
        for file in find_sessions(path) if path.is_dir() else [path]:
            try:
                found = read_session(file)
            except ReverieError as error:
                print(f"{file}: {error}", file=sys.stderr)
                continue
            for imported in found:
                recording = recording_of(imported, str(file))
                if recording.billed:
                    name = f"{imported.format}/{file.name}"
                    sessions.append({"session": name, "requests": len(recording.steps), "drops": drops(recording)})
    return sessions


def by_reason(found: Iterable[CacheDrop]) -> dict[str, list[CacheDrop]]:
    """Group drops by their reason, the most frequent first."""
    gathered: dict[str, list[CacheDrop]] = {}
    for drop in found:
        gathered.setdefault(drop.reason, []).append(drop)
    return dict(sorted(gathered.items(), key=lambda item: (-len(item[1]), item[0])))


def row(reason: str, found: list[CacheDrop]) -> dict[str, Any]:
    """Sum the drops of one reason."""
    return {
        "reason": reason,
        "count": len(found),
        "registered": all(drop.registered for drop in found),
        "tokens": sum(drop.tokens for drop in found),
        "lost_usd": round(sum(drop.usd or 0.0 for drop in found), 4),
    }


def as_json(drop: CacheDrop) -> dict[str, Any]:
    """Return one drop as JSON data."""
    return {name: getattr(drop, name) for name in ("number", "at", "reason", "registered")} | {
        "expected": drop.expected,
        "actual": drop.actual,
        "tokens": drop.tokens,
        "idle_seconds": drop.idle_seconds,
        "lost_usd": drop.usd,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--each", action="store_true", help="also list every drop")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sessions = measured(arguments.paths or corpus())
    everything = [drop for one in sessions for drop in one["drops"]]
    reasons = [row(reason, found) for reason, found in by_reason(everything).items()]
    requests = sum(one["requests"] for one in sessions)
    if arguments.json:
        listed = [{**one, "drops": [as_json(drop) for drop in one["drops"]]} for one in sessions]
        figures = {"requests": requests, "drops": len(everything), "reasons": reasons, "sessions": listed}
        print(json.dumps(figures, indent=2))
        return 0
    if arguments.each:
        for one in sessions:
            for drop in one["drops"]:
                idle = f"after {drop.idle_seconds:>7,.0f} s"
                fall = f"{drop.expected:>7,} -> {drop.actual:>7,}"
                print(f"{one['session'][-44:]:44} #{drop.number:<4} {fall}  {idle}  {drop.reason}")
        print()
    print(f"{len(sessions)} sessions with usage, {requests:,} requests, {len(everything)} drops\n")
    print(f"{'reason':50} {'count':>5} {'tokens':>12} {'lost USD':>9}")
    for one in reasons:
        lost = "" if one["registered"] else f"{one['lost_usd']:.2f}"
        print(f"{one['reason']:50} {one['count']:>5} {one['tokens']:>12,} {lost:>9}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
