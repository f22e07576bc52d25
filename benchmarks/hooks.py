"""How long does a host wait for a hook, from start to end, warm, compared with a bare Python in the same run?

    python benchmarks/hooks.py [--calls 40] [--memories 200] [--check] [--json]

Limit: the median of every event is at most 100 ms. The command is the one that ``reverie install`` writes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reverie import Memory
from reverie.hosts.installer import command_of

LIMIT_MS = 100.0
EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")


def timed(command: list[str], data: bytes, environ: dict[str, str]) -> tuple[float, float]:
    """Return the wall time and the processor time of a process, in milliseconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ran = subprocess.run(command, input=data, capture_output=True, env=environ, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert not data or isinstance(json.loads(ran.stdout or b"{}"), dict)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1_000, used * 1_000


def main() -> int:
    """Measure and print; with --check return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--memories", type=int, default=200)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        project, home = Path(folder) / "project", Path(folder) / "home"
        project.mkdir()
        environ = {**os.environ, "REVERIE_HOME": str(home), "REVERIE_WORKER": "off", "CLAUDE_PROJECT_DIR": str(project)}
        os.environ["REVERIE_HOME"] = str(home)
        memory = Memory.open(project)
        for number in range(options.memories):
            memory.save(f"Service number {number} is deployed by pipeline p{number * 7}", type="reference")
        memory.save("Never run `git push` from a laptop", type="feedback", why="the pipeline does it")
        time.sleep(2.1)  # a hook reads a file that has just changed again and again
        bare = [timed([sys.executable, "-c", "pass"], b"", environ) for _ in range(options.calls)]
        rows["bare python"] = _row(bare)
        for event in EVENTS:
            program = ["sh", "-c", command_of("claude-code", event, home)]
            found: list[tuple[float, float]] = []
            for number in range(options.calls + 1):
                body = {
                    "session_id": f"s{number}",
                    "cwd": str(project),
                    "transcript_path": str(project / "t.jsonl"),
                    "hook_event_name": event,
                    "prompt": f"which pipeline deploys service number {number}?",
                    "tool_name": "Bash",
                    "tool_input": {"command": f"make service-{number}"},  # no memory names it
                    "tool_response": {"stdout": "ok\n" * 200, "stderr": ""},
                }
                took = timed(program, json.dumps(body).encode(), environ)
                found += [took] if number else []  # the first one warms the files up
            rows[event] = _row(found)
    missed = [name for name in EVENTS if rows[name]["p50_ms"] > LIMIT_MS]
    if options.json:
        print(json.dumps({"memories": options.memories, "rows": rows, "limit_ms": LIMIT_MS, "missed": missed}))
    else:
        print(f"{'':18} {'p50':>9} {'p90':>9} {'processor':>10}   over bare python")
        for name, row in rows.items():
            ratio = row["p50_ms"] / rows["bare python"]["p50_ms"]
            print(f"{name:18} {row['p50_ms']:6.1f} ms {row['p90_ms']:6.1f} ms {row['cpu_ms']:7.1f} ms   {ratio:.1f}x")
    return 1 if options.check and missed else 0


def _row(found: list[tuple[float, float]]) -> dict[str, float]:
    walls = sorted(wall for wall, _ in found)
    cpu = statistics.median(used for _, used in found)
    return {"p50_ms": statistics.median(walls), "p90_ms": walls[int(len(walls) * 0.9)], "cpu_ms": cpu}


if __name__ == "__main__":
    sys.exit(main())
