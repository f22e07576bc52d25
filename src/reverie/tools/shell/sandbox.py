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
from itertools import chain
from pathlib import Path
from typing import Final

from ...errors import SandboxUnavailable
from ...values import record

LAUNCHER: Final = Path(__file__).with_name("confine.py")
HIDER: Final = Path(__file__).with_name("hide_files.py")
PROBE_SECONDS: Final = 20.0
FALLBACK: Final = "read-only commands do not run automatically; each one asks"


@record
class Availability:
    """Whether the sandbox works on this machine, the kernel features found, and a description for people."""

    works: bool
    landlock_version: int
    namespaces: bool
    seccomp: bool
    watch: bool
    """Whether programs can be judged when they start, which lines need that bash computes."""
    detail: str


def confined_command(
    argv: Sequence[str], *, cwd: Path, reads: Sequence[tuple[str, str]] = (), watched: Sequence[str] = ()
) -> list[str]:
    """Return a command line that runs ``argv`` in the sandbox in ``cwd``; raise if there is no sandbox.

    ``reads`` are the only places it may read from, as options of ``confine.py``; none leaves reading free. With
    ``watched``, directories of the project, each program is judged when it starts, and none in them starts.
    """
    found = available()
    if watched and found.works and not found.watch:
        raise SandboxUnavailable("programs cannot be judged here when they start; run the command with permission")
    if not found.works:
        raise SandboxUnavailable(f"no sandbox here: {found.detail}; run the command with permission instead")
    if not argv:
        raise SandboxUnavailable("there is no command to confine; name one")
    options = [*reads, *(("--watch", path) for path in watched)]
    return [*_interpreter(LAUNCHER), "run", str(cwd), *chain.from_iterable(options), "--", *argv]


def hiding_command(argv: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Return a command line that runs ``argv`` freely, but without these files and directories, where that works."""
    return [*_interpreter(HIDER), *paths, "--", *argv] if paths and can_hide() else list(argv)


@cache
def can_hide() -> bool:
    """Return whether files can be hidden from a command here; the first call tries it."""
    try:
        tried = subprocess.run(
            [*_interpreter(HIDER), "probe"], capture_output=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return sys.platform.startswith("linux") and tried.returncode == 0


@cache
def available() -> Availability:
    """Return whether the sandbox works here; the first call tries it, later calls return the same answer."""
    if not sys.platform.startswith("linux"):
        return Availability(False, 0, False, False, False, f"Landlock and seccomp are Linux's; {FALLBACK}")
    try:
        answer = subprocess.run(
            [*_interpreter(LAUNCHER), "probe"], capture_output=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL
        )
        found = json.loads(answer.stdout)
        version, namespaces, seccomp = int(found["landlock"]), bool(found["namespaces"]), bool(found["seccomp"])
        watch = bool(found["watch"])
        limits = f"limits: {found['memory_gib']} GiB of memory, {found['processes']} processes"
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        return Availability(False, 0, False, False, False, f"the launcher does not run ({error}); {FALLBACK}")
    works = version > 0 and seccomp
    words = [*_words(version, namespaces, seccomp), _watch_words(watch), limits]
    return Availability(works, version, namespaces, seccomp, works and watch, "; ".join(words))


def _words(version: int, namespaces: bool, seccomp: bool) -> list[str]:
    """Return the restrictions of this kernel in words: files, system calls, network."""
    by_filter = [name for name, since in (("truncation", 3), ("signals", 6)) if 0 < version < since]
    landlock = f"Landlock version {version}: no writes" if version else f"no Landlock: {FALLBACK}"
    landlock += ", no truncation" if version >= 3 else ""
    if by_filter and seccomp:
        landlock += f" (the seccomp filter stops {' and '.join(by_filter)}, which this version does not know)"
    return [
        landlock,
        "seccomp: no sockets, locks or changes of modes" if seccomp else f"no seccomp filter here: {FALLBACK}",
        "a network namespace of its own" if namespaces else "no user namespaces: seccomp alone stops the network",
    ]


def _watch_words(watch: bool) -> str:
    if watch:
        return "each program of a line that bash computes is judged when it starts"
    return "programs cannot be judged when they start: lines with loops, variables or substitutions ask"


def _interpreter(program: Path) -> list[str]:
    # Isolated and without site-packages: no code of the user or repository is imported, and it starts quickly.
    return [sys.executable, "-I", "-S", str(program)]
