"""A process that has loaded the store and forks one child per action, so that hundreds under a tracer are cheap.

Run as ``python -S -E zygote.py PATH...``. Each line on stdin is an action as JSON, with the directory. The child prints
its process id, waits for a signal, and prints the result; the zygote prints its exit status.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from datetime import UTC, datetime

sys.path[:0] = sys.argv[1:]

from reverie.errors import ReverieError, StorageError  # noqa: E402
from reverie.runtime.memory.memory import Memory  # noqa: E402

ANY_TRACER = 0x59616D61
NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


def say(**said: object) -> None:
    """Answer by a call that the store does not make, so that none meant for the store fails here."""
    os.writev(1, [json.dumps(said).encode() + b"\n"])


def act(root: str, name: str, how: dict[str, object]) -> None:
    memory = Memory(root, clock=lambda: NOW)
    getattr(memory, name)(*how.pop("args", []), **how)  # type: ignore[misc]


def child(root: str, name: str, how: dict[str, object]) -> None:
    ctypes.CDLL(None).prctl(ANY_TRACER, -1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    say(pid=os.getpid())
    signal.sigwait([signal.SIGUSR1])
    try:
        act(root, name, how)
        say(ok=True)
    except ReverieError as error:
        path = error.path if isinstance(error, StorageError) else ""
        say(error=type(error).__name__, message=str(error), path=path)
    except Exception as error:
        say(error=type(error).__name__, message=str(error), untyped=True)
    os._exit(0)


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(asked["root"], asked["act"], asked["how"])
        _, status = os.waitpid(pid, 0)
        say(ended=status)


main()
