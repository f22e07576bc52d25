"""A process that has loaded the dreamer and forks one child per dream, so that hundreds under a tracer are cheap.

Run as ``python -S -E zygote.py SRC SITE WARM``. Each line on stdin names a directory, a home and a dreamer. The child
prints its process id, waits for a signal, and prints the result; the zygote prints its exit status.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path[:0] = sys.argv[1:3]

from reverie.errors import ReverieError  # noqa: E402
from reverie.models.scripted_model import ScriptedModel  # noqa: E402
from reverie.runtime.dream.dreams import Dreams  # noqa: E402
from reverie.runtime.memory.memory import Memory  # noqa: E402
from reverie.settings import Settings  # noqa: E402

ANY_TRACER = 0x59616D61
NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
TARGET, SECOND = "feedback_real_database.md", "feedback_database_tests.md"
MERGED = """---
name: real database
description: tests use the real database on port 5432, never a mock
type: feedback
---
Use the real database in tests, port 5432. Tests use the real database on port 5432, never a mock.

**Why:** a mock hid a broken migration
"""


def say(**said: object) -> None:
    """Answer by a call that the dreamer does not make, so that none meant for it fails here."""
    os.writev(1, [json.dumps(said).encode() + b"\n"])


def use(name: str, **given: object) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": given}


def model() -> ScriptedModel:
    """Return a model that merges two memories and adds one."""
    added = MERGED.replace("real database\n", "ports\n", 1).replace("Use the", "Ports: use the")
    return ScriptedModel(
        [
            [use("Read", file_path=TARGET), use("Read", file_path=SECOND)],
            [
                use("Write", file_path=TARGET, content=MERGED, reason="two say the same"),
                use("Forget", file_path=SECOND, merged_into=TARGET, reason="merged"),
                use("Write", file_path="feedback_ports.md", content=added),
            ],
            "Done.",
        ]
    )


def dream(root: str, home: str, by: str) -> dict[str, object]:
    dreams = Dreams(
        Memory(root, clock=lambda: NOW),
        Settings(home=Path(home)),
        project=home,
        model=model() if by == "model" else None,
        clock=lambda: NOW,
    )
    report = asyncio.run(dreams.run())
    return {"state": report.state, "changes": len(report.changes), "dream": report.dream}


def child(root: str, home: str, by: str) -> None:
    ctypes.CDLL(None).prctl(ANY_TRACER, -1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    say(pid=os.getpid())
    signal.sigwait([signal.SIGUSR1])
    try:
        say(ok=dream(root, home, by))
    except ReverieError as error:
        say(error=type(error).__name__, message=str(error))
    except BaseException as error:
        say(error=type(error).__name__, message=str(error), untyped=True)
    os._exit(0)


def main() -> None:
    warm = sys.argv[3]
    for by in ("local", "model"):  # everything that is loaded on first use is loaded before anybody counts calls
        Memory(f"{warm}/memory").save(f"Warm {by} thing number 1 is here", type="project", name=f"warm {by}", why="x")
        dream(f"{warm}/memory", f"{warm}/home", by)
    say(ready=True)
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(asked["root"], asked["home"], asked["by"])
        _, status = os.waitpid(pid, 0)
        say(ended=status)


main()
