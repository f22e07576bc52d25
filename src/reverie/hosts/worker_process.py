"""Start the worker as its own process, which outlives the hook and ends by itself."""

from __future__ import annotations

import os
import sys

from .queue import Queue


def start_worker(queue: Queue) -> None:
    """Start a worker for a queue, detached from terminal and pipes, unless one runs or workers are switched off."""
    if os.environ.get("REVERIE_WORKER", "") == "off" or queue.has_worker():
        return
    # -P: import nothing from the directory the host works in.
    arguments = [sys.executable, "-P", "-m", "reverie.hosts.worker", "--home", queue.home]
    quiet = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    os.posix_spawn(sys.executable, arguments, dict(os.environ), file_actions=quiet, setsid=True)
