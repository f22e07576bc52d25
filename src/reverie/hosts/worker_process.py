"""Start the worker as its own process, which outlives the hook and ends by itself."""

from __future__ import annotations

import os
import sys

__all__ = ["start_worker"]


def start_worker(home: str) -> int:
    """Start a worker for a home, detached from the host's terminal and pipes, and return its process id."""
    # -P: import nothing from the directory the host works in.
    arguments = [sys.executable, "-P", "-m", "reverie.hosts.worker", "--home", home]
    quiet = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    return os.posix_spawn(sys.executable, arguments, dict(os.environ), file_actions=quiet, setsid=True)
