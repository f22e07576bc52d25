"""How much memory and time does a session take as it grows, and what does opening its log cost?

    python benchmarks/soak.py [--json] [--check] [--turns 20000]

One session on disk takes many turns of a tool loop: a reply with text and a call, a result of about 2.4 KB, every tenth
turn a message of the user; notes, clearing and compaction run locally in a window of 200,000 tokens. Resident
memory after a tenth of the turns is compared with that at the end. Then new processes open the
log and run the commands that read it, and each is compared with loading: parsing and folding the log's entries.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from view import SYSTEM, TOOLS, Talk

from reverie.runtime.session.session import Session
from reverie.settings.load import load_settings

LIMITS = {"growth": 1.2, "open_mb": 200.0, "command_time": 3.0, "command_memory": 3.0}
PARTS = 10
MODEL = "claude-sonnet-4-5"
NAME = "soak"
OPEN = f"""
import anyio
from reverie import Session
async def main():
    async with Session.open({NAME!r}) as session:
        await session.say("Go on.")
        await session.prepare(model={MODEL!r}, max_tokens=8000)
anyio.run(main)
"""
LOAD = """
import sys
from pathlib import Path
from reverie.conversation.log import parse_log
from reverie.conversation.view import View
View().fold_all(parse_log(Path(sys.argv[1]).read_bytes()).entries)
"""
Row = dict[str, float]


def resident_mb() -> float:
    """Return the memory that this process holds now, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def turns() -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield replies, each with the id of its call and the call's result, without keeping any."""
    at = 0
    while True:
        talk = Talk(seed=at)
        for step in range(100):
            said, given = talk.turn(step)
            called = f"toolu_{at:024d}"
            said["message"]["content"][1]["id"] = called
            reply = {**said["reply"], **said["message"], "id": f"msg_{at:024d}"}
            yield reply, called, given["message"]["content"][0]["content"]
            at += 1


async def grow(home: Path, number: int) -> list[Row]:
    """Take the turns of one session and return the figures after each tenth of them."""
    rows: list[Row] = []
    now = time.time() - 10.0 * number
    settings = load_settings(home=home, environ={}, arguments={"durability": "second"})
    async with Session.open(NAME, cwd=home, settings=settings, clock=lambda: now) as session:
        await session.say("Make the failing tests of this repository pass.")
        spent, worst, part = time.process_time(), 0.0, number // PARTS
        for at, (reply, called, result) in zip(range(1, number + 1), turns(), strict=False):
            begun = time.process_time()
            now += 8.0
            await session.prepare(model=MODEL, max_tokens=8_000, system=SYSTEM, tools=TOOLS)
            reply["usage"]["cache_read_input_tokens"] = session.view.tokens
            await session.observe(reply)
            await session.result(called, result)
            if at % 10 == 0:
                await session.say(f"That is right. Now look at module {at} and keep its tests green.")
            worst = max(worst, time.process_time() - begun)
            if at % part == 0:
                gc.collect()
                cpu = time.process_time() - spent
                size = sum(one.stat().st_size for one in home.rglob("*.jsonl")) / 1e6
                rows.append(
                    {
                        "turn": at,
                        "cpu_ms": 1e3 * cpu / part,
                        "worst_ms": 1e3 * worst,
                        "resident_mb": resident_mb(),
                        "descriptors": len(os.listdir("/proc/self/fd")),
                        "log_mb": size,
                        "compactions": len(session.view.facts.compactions),
                    }
                )
                spent, worst = time.process_time(), 0.0
    return rows


def peak(home: Path, *command: str) -> Row:
    """Run a command in a new process and return its processor time and its peak of memory."""
    meter = (
        "import os, resource, subprocess, sys\n"
        "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(code, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)\n"
    )
    environ = {**os.environ, "REVERIE_HOME": str(home), "NO_COLOR": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", meter, *command], cwd=home, env=environ, capture_output=True, text=True, check=True
    )
    code, seconds, mb = ran.stdout.split()
    if code != "0":
        raise SystemExit(f"{' '.join(command)} ended with {code}: {ran.stderr}")
    return {"seconds": float(seconds), "mb": float(mb)}


def read(home: Path) -> dict[str, Row]:
    """Open the log in a new process and run the commands that read it."""
    log = next(home.rglob(f"{NAME}.jsonl"))
    program = str(Path(sys.executable).with_name("reverie"))
    rows = {
        "bare python": peak(home, sys.executable, "-c", "import reverie.cli.main"),
        "load": peak(home, sys.executable, "-c", LOAD, str(log)),
        "open": peak(home, sys.executable, "-c", OPEN),
    }
    for command in ("context", "loss", "stats"):
        rows[command] = peak(home, program, command, *([] if command == "stats" else [NAME]))
    return rows


def failures(rows: list[Row], reads: dict[str, Row]) -> list[str]:
    """Return the limits that were not met."""
    load = reads["load"]
    found = {
        "growth": rows[-1]["resident_mb"] / rows[0]["resident_mb"],
        "open_mb": reads["open"]["mb"],
        "command_time": max(reads[one]["seconds"] for one in ("context", "loss", "stats")) / load["seconds"],
        "command_memory": max(reads[one]["mb"] for one in ("context", "loss", "stats")) / load["mb"],
    }
    return [f"{name} {value:.2f} > {LIMITS[name]}" for name, value in found.items() if value > LIMITS[name]]


def main() -> int:
    """Measure, print and check."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=int, default=20_000)
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        rows = asyncio.run(grow(Path(place), given.turns))
        reads = read(Path(place))
    wrong = failures(rows, reads)
    if given.json:
        print(json.dumps({"turns": rows, "reads": reads, "failures": wrong}, indent=2))
    else:
        print("   turn  ms/turn  worst ms  resident MB  files  log MB  compactions")
        for row in rows:
            print(
                f"{row['turn']:7.0f} {row['cpu_ms']:8.2f} {row['worst_ms']:9.0f} {row['resident_mb']:12.0f} "
                f"{row['descriptors']:6.0f} {row['log_mb']:7.1f} {row['compactions']:12.0f}"
            )
        for name, row in reads.items():
            print(f"{name:>12}: {row['seconds']:6.2f} s, {row['mb']:5.0f} MB")
        print("\n".join(wrong) or "all limits met")
    return 1 if given.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
