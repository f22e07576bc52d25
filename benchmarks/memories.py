"""What does it cost to scan a memory directory, load its index and save into it?

The scan reads the head of every memory; in the same run, alternately, every file is opened and 2 KB of it are
read, which is the minimum for any program. Every round has a new store, like a new process; the first scan of all is
shown separately. With a journal, the scan also compares the hash of each file with that of its last change. Prints a
table, or JSON with ``--json``; with ``--check`` exits with 1 above a limit.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import statistics
import string
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from reverie.memories.rules.secrets import find_secrets
from reverie.memories.store.journal import JournalEntry, change_to, encode
from reverie.memories.store.store import MemoryStore
from reverie.memories.store.trust import Trust
from reverie.runtime.memory.memory import Memory

MAX_SCAN_RATIO = 2.0
MAX_JOURNALED_RATIO = 3.0
MAX_INDEX_US = 100.0
MAX_SECRETS_MS = 20.0
MAX_SHORT_RATIO = 300.0
MAX_ALARM_SHARE = 0.001
WORD = re.compile(r"\w+")
TYPES = ("user", "feedback", "project", "reference")


def fill(folder: Path, count: int, *, journaled: bool) -> None:
    """Write a number of memories in the store's format; journaled ones have the trust of a user's save."""
    folder.mkdir()
    trust: Trust = "user" if journaled else "agent"
    lines: list[bytes] = []
    for number in range(count):
        text = (
            f"---\nname: Rule {number} of the deployment\n"
            f'description: "Service {number} is deployed by hand: the pipeline of team {number % 7} is broken"\n'
            f"type: {TYPES[number % 4]}\nsource: session-{number % 50} message-{number}\ntrust: {trust}\n"
            f'created: "2026-10-{number % 28 + 1:02}T08:00:00Z"\n'
            f'modified: "2026-11-{number % 28 + 1:02}T08:00:00Z"\n---\n'
        )
        body = f"Service {number} goes out by hand.\n\n**Why:** the pipeline lost a release.\n" * (1 + number % 12)
        file = f"{TYPES[number % 4]}_rule_{number}.md"
        (folder / file).write_text(text + body)
        change = change_to(file, None, (text + body).encode(), trust=trust)
        lines.append(
            encode(JournalEntry(f"c{number + 1}", "2026-11-01T08:00:00.000000Z", "user", "", "saved", [change]))
        )
    if journaled:  # line by line as the store appends them, without waiting for the disk 20,000 times
        journal = folder / ".journal"
        journal.mkdir()
        data = b"".join(line + b"\n" for line in lines)
        (journal / "journal.jsonl").write_bytes(data)
        (journal / "lock").write_bytes(b"%020d" % len(data))


def timed(way: Callable[[], object]) -> float:
    """Return the seconds that one call takes."""
    gc.collect()
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def measure_scan(folder: Path, count: int, rounds: int, *, journaled: bool) -> dict[str, float]:
    """Scan the directory and read 2 KB of each file, alternately."""
    fill(folder, count, journaled=journaled)
    names = sorted(name for name in os.listdir(folder) if name.endswith(".md"))
    warm = MemoryStore(str(folder))

    def bare() -> None:
        for name in names:
            with open(os.path.join(folder, name), "rb", buffering=0) as file:
                file.read(2_048)

    def ours() -> None:
        found = MemoryStore(str(folder)).scan().memories
        assert len(found) == count
        assert found[0].trust == ("user" if journaled else "agent")

    def again() -> None:
        assert len(warm.scan().memories) == count

    bare()
    first_seconds = timed(ours)
    bare_seconds: list[float] = []
    ours_seconds: list[float] = []
    for _ in range(rounds):
        bare_seconds.append(timed(bare))
        ours_seconds.append(timed(ours))
    again()
    again()
    again_seconds = [timed(again) for _ in range(rounds)]
    return {
        "files": count,
        "journaled": journaled,
        "bare_us_a_file": round(min(bare_seconds) / count * 1e6, 2),
        "scan_us_a_file": round(min(ours_seconds) / count * 1e6, 2),
        "again_us_a_file": round(min(again_seconds) / count * 1e6, 2),
        "first_us_a_file": round(first_seconds / count * 1e6, 2),
        "ratio": round(min(ours_seconds) / min(bare_seconds), 3),
    }


def limit_of(row: dict[str, float]) -> float:
    """Return the limit of a row's ratio: files with a journal are read whole, for their hash."""
    return MAX_JOURNALED_RATIO if row["journaled"] else MAX_SCAN_RATIO


def measure_index(folder: Path, rounds: int) -> dict[str, float]:
    """Load an index of the maximum length."""
    folder.mkdir()
    memory = Memory(folder)
    memory.save("The release train leaves on Tuesdays at noon", type="project", why="the customers are told so")
    lines = [f"- [Memory {number}](project_memory_{number}.md) — {'what it is about ' * 4}" for number in range(200)]
    (folder / "MEMORY.md").write_text("\n".join(lines) + "\n")
    memory.log()
    seconds = sorted(timed_many(memory.index, rounds))
    return {"lines": 200, "p50_us": round(seconds[len(seconds) // 2] * 1e6, 1), "best_us": round(seconds[0] * 1e6, 1)}


def timed_many(way: Callable[[], object], rounds: int) -> list[float]:
    """Return the time of each of many calls."""
    found: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        way()
        found.append(time.perf_counter() - start)
    return found


def measure_saves(folder: Path, count: int) -> dict[str, float]:
    """Save a number of memories, each durable when it is acknowledged."""
    memory = Memory(folder)
    seconds = [
        timed(lambda: memory.save(f"Rule {number} is about service {number}", type="project", why="it is so"))  # noqa: B023
        for number in range(count)
    ]
    return {"saves": count, "p50_ms": round(statistics.median(seconds) * 1e3, 2)}


def measure_secrets(rounds: int) -> dict[str, float]:
    """Look for secrets in 100 kB of this project's own source, and in short texts, beside a split into words."""
    files = sorted((Path(__file__).resolve().parents[1] / "src").rglob("*.py"))
    text = "".join(file.read_text() for file in files)[:100_000]
    chance = random.Random(7)
    alphabets = (string.ascii_lowercase + "9", string.ascii_letters + string.digits, string.hexdigits)
    keys = ("".join(chance.choices(alphabets[size % 3], k=size)) for size in range(16, 66))
    texts = [line for key in keys for line in (f"Run the tests of part {key[:4]} first.", f'api_key = "{key}"')]

    def scan() -> None:
        for one in texts:
            find_secrets(one)

    def split() -> None:
        for one in texts:
            WORD.findall(one)

    short, bare = (min(timed_many(act, rounds)) for act in (scan, split))
    return {
        "bytes": len(text),
        "best_ms": round(min(timed_many(lambda: find_secrets(text), rounds)) * 1e3, 2),
        "short_us": round(short / len(texts) * 1e6, 1),
        "short_ratio": round(short / bare, 1),
    }


def count_alarms(folders: list[Path]) -> dict[str, object]:
    """Look for secrets in every text file below some folders, and name the files with an alarm and its kinds."""
    files, alarms = 0, {}
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        try:
            data = path.read_bytes()[:400_000]
            text = data.decode(errors="strict" if len(data) < 400_000 else "ignore")
        except (OSError, UnicodeDecodeError):
            continue
        if "\0" in text:
            continue
        files += 1
        if found := find_secrets(text):
            alarms[str(path)] = sorted({f"{one.rule}, line {one.line}" for one in found})
    return {"files": files, "alarms": len(alarms), "share": round(len(alarms) / max(files, 1), 5), "named": alarms}


def main() -> int:
    """Measure, print, and return the exit status: 0 if the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit 1 where a limit is passed")
    parser.add_argument("--files", type=int, nargs="*", default=[200, 20_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="the folder to measure in; its file system matters")
    parser.add_argument("--alarms", type=Path, nargs="+", metavar="FOLDER", help="only count alarms of the secret scan")
    options = parser.parse_args()
    if options.alarms:
        counts = count_alarms(options.alarms)
        print(json.dumps(counts, indent=1))
        return int(bool(options.check and counts["share"] > MAX_ALARM_SHARE))  # type: ignore[operator]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="reverie-memories-") as folder:
        scans = [
            measure_scan(
                Path(folder) / f"scan-{count}-{journaled}",
                count,
                options.rounds if count > 2_000 else options.rounds * 10,
                journaled=journaled,
            )
            for count in options.files
            for journaled in (False, True)
        ]
        index = measure_index(Path(folder) / "index", 500)
        saves = measure_saves(Path(folder) / "saves", 50)
    secrets = measure_secrets(10)
    if options.json:
        print(json.dumps({"scans": scans, "index": index, "saves": saves, "secrets": secrets}))
    else:
        for row in scans:
            print(
                f"scan of {row['files']:>6} files{', journaled' if row['journaled'] else ''}: "
                f"{row['scan_us_a_file']:>7} µs a file, reading 2 KB of each "
                f"{row['bare_us_a_file']:>7} µs, ratio {row['ratio']} (limit {limit_of(row)}); "
                f"the first of all {row['first_us_a_file']} µs, again in one process {row['again_us_a_file']} µs"
            )
        print(f"index of 200 lines: {index['p50_us']} µs, best {index['best_us']} µs (limit {MAX_INDEX_US})")
        print(f"save: {saves['p50_ms']} ms")
        print(f"secret scan of 100 kB: {secrets['best_ms']} ms (limit {MAX_SECRETS_MS})")
        print(
            f"secret scan of a short text: {secrets['short_us']} µs, {secrets['short_ratio']} times a split into words "
            f"(limit {MAX_SHORT_RATIO})"
        )
    held = (
        all(row["ratio"] <= limit_of(row) for row in scans)
        and index["p50_us"] <= MAX_INDEX_US
        and secrets["best_ms"] <= MAX_SECRETS_MS
        and secrets["short_ratio"] <= MAX_SHORT_RATIO
    )
    return 0 if held or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
