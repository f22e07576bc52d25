"""Run a command so that it can only read and compute: no write, no network, no effect on other processes.

``confine.py`` in this folder does the work: a small program that restricts itself and then becomes the command. It uses
Landlock for files, namespaces where the kernel allows them, and a seccomp filter for everything else (sockets of every
kind, file modes and times, the clock, signals, other processes).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from ...errors import SandboxUnavailable
from ...values import record

__all__ = ["Availability", "available", "confined_command"]

LAUNCHER: Final = Path(__file__).with_name("confine.py")
PROBE_SECONDS: Final = 20.0
FALLBACK: Final = "read-only commands do not run automatically; each one asks"


@record
class Availability:
    """Whether the sandbox works on this machine, the kernel features found, and a description for people."""

    works: bool
    landlock_version: int
    namespaces: bool
    seccomp: bool
    detail: str


def confined_command(argv: Sequence[str], *, cwd: Path) -> list[str]:
    """Return a command line that runs ``argv`` in the sandbox in ``cwd``; raise if there is no sandbox."""
    found = available()
    if not found.works:
        raise SandboxUnavailable(f"no sandbox here: {found.detail}; run the command with permission instead")
    if not argv:
        raise SandboxUnavailable("there is no command to confine; name one")
    return [*_interpreter(), "run", str(cwd), *argv]


@cache
def available() -> Availability:
    """Return whether the sandbox works here; the first call tries it, later calls return the same answer."""
    if not sys.platform.startswith("linux"):
        return Availability(False, 0, False, False, f"Landlock and seccomp are Linux's; {FALLBACK}")
    try:
        answer = subprocess.run(
            [*_interpreter(), "probe"], capture_output=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL
        )
        found = json.loads(answer.stdout)
        version, namespaces, seccomp = int(found["landlock"]), bool(found["namespaces"]), bool(found["seccomp"])
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        return Availability(False, 0, False, False, f"the launcher does not run ({error}); {FALLBACK}")
    works = version > 0 and seccomp
    return Availability(works, version, namespaces, seccomp, _in_words(version, namespaces, seccomp, works))


def _in_words(version: int, namespaces: bool, seccomp: bool, works: bool) -> str:
    parts = [
        f"Landlock version {version}" if version else "no Landlock",
        "seccomp" if seccomp else "no seccomp filter for this processor",
        "a network namespace of its own" if namespaces else "no user namespaces: seccomp alone stops the network",
    ]
    return "; ".join(parts if works else [*parts, FALLBACK])


def _interpreter() -> list[str]:
    # Isolated and without site-packages: no code of the user or repository is imported, and it starts quickly.
    return [sys.executable, "-I", "-S", str(LAUNCHER)]
