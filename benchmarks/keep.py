"""What does a pass of ``reverie keep`` cost on a machine where nothing changed, compared with a walk with stat?

The walk lists the same folders with ``os.walk`` and calls ``stat`` on every file: nothing can learn with less whether
one of them changed. Passes and walks alternate; the figure is the quotient of their medians of processor time.

    python benchmarks/keep.py [--sessions 300] [--rounds 40] [--check] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from reverie.importers import usual_places
from reverie.runtime.archive import Keeper
from reverie.storage.files import FileStorage

LIMIT = 2.0
PLACES = (
    ".claude/projects/-p{project}/{session}.jsonl",
    ".codex/sessions/2026/11/{project:02}/rollout-2026-11-17T10-00-00-{session}.jsonl",
    ".gemini/tmp/p{project}/chats/session-{session}.jsonl",
    ".qwen/projects/-p{project}/chats/{session}.jsonl",
)


def rows(agent: int, session: str) -> list[dict[str, object]]:
    """Return a session with one prompt, as the agent with this number writes it."""
    at, said = {"timestamp": "2026-11-17T10:00:00.000Z"}, f"fix the parser of {session}"
    both = {"type": "user", "uuid": session, "parentUuid": None, "sessionId": session, "cwd": "/p", **at}
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": said}]}
    return [
        [{**both, "message": {"role": "user", "content": said}}],
        [{**at, "type": "session_meta", "payload": {"id": session}}, {**at, "type": "response_item", "payload": item}],
        [
            {"sessionId": session, "projectHash": "h", "startTime": "x"},
            {"id": session, "type": "user", "content": said},
        ],
        [{**both, "message": {"role": "user", "parts": [{"text": said}]}}],
    ][agent]


def filled(user: Path, sessions: int) -> None:
    """Write sessions of four agents in eight projects."""
    for number in range(sessions):
        session = f"{number:08}-0000-4000-8000-000000000000"
        path = user / PLACES[number % 4].format(project=number % 32 // 4, session=session)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(number % 4, session)))


def walked(user: Path) -> int:
    """Return how many files lie below a folder, after a stat of each."""
    return sum(os.stat(os.path.join(folder, name)).st_size > 0 for folder, _, names in os.walk(user) for name in names)


def timed(action: Callable[[], object]) -> float:
    """Return the processor time of an action in seconds."""
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> int:
    """Measure, print and return 1 if a limit is not met and ``--check`` is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        user, storage = Path(folder) / "user", FileStorage(Path(folder) / "library")
        filled(user, given.sessions)
        places = usual_places(user, {})
        first = timed(lambda: Keeper(storage, places).keep(time.time()))
        passes, walks = list[float](), list[float]()
        for _ in range(given.rounds):
            walks.append(timed(lambda: walked(user)))
            passes.append(timed(lambda: Keeper(storage, places).keep(time.time())))
        storage.close()
    ratio = median(passes) / median(walks)
    found = {
        "sessions": given.sessions,
        "first_pass_ms": round(first * 1000, 1),
        "pass_ms": round(median(passes) * 1000, 2),
        "walk_ms": round(median(walks) * 1000, 2),
        "ratio": round(ratio, 2),
        "limit": LIMIT,
        "met": ratio <= LIMIT,
    }
    print(json.dumps(found) if given.json else "\n".join(f"{name:>14}  {value}" for name, value in found.items()))
    return 1 if given.check and not found["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
