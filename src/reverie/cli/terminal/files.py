"""Files for the completion of ``@name``: from git, or from a limited directory walk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ...errors import InputError
from ...tools.git import run_git

MAX_FILES: Final = 20_000
MAX_DEPTH: Final = 8
GIT_SECONDS: Final = 3.0
SKIPPED: Final = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})


def project_files(cwd: Path) -> list[str]:
    """Return up to 20,000 relative paths of files below a directory: those git lists, else those of a walk."""
    listed = _git_files(cwd)
    return listed if listed is not None else list(_walk_files(cwd))


def _git_files(cwd: Path) -> list[str] | None:
    options = ("-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
    try:
        done = run_git(cwd, "ls-files", *options, timeout_seconds=GIT_SECONDS)
    except InputError:
        return None
    return None if done.returncode else [name for name in done.stdout.split("\0")[:MAX_FILES] if name]


def _walk_files(cwd: Path) -> Iterator[str]:
    found = 0
    for folder, folders, names in os.walk(cwd):
        inside = os.path.relpath(folder, cwd)
        depth = 0 if inside == "." else inside.count(os.sep) + 1
        folders[:] = sorted(
            name for name in folders if depth < MAX_DEPTH and not name.startswith(".") and name not in SKIPPED
        )
        for name in sorted(names):
            yield name if inside == "." else os.path.join(inside, name)
            found += 1
            if found >= MAX_FILES:
                return


def best_matches(typed: str, paths: Iterable[str], *, limit: int) -> list[str]:
    """Return up to ``limit`` matches of the typed text: by prefix, then by substring, then by letters in order."""
    wanted = typed.lower()
    ranked: list[tuple[int, int, str]] = []
    for path in paths:
        rank = _rank(wanted, path.lower())
        if rank is not None:
            ranked.append((rank, len(path), path))
    ranked.sort()
    return [path for _, _, path in ranked[:limit]]


def _rank(wanted: str, path: str) -> int | None:
    if not wanted:
        return path.count("/")
    name = path.rsplit("/", 1)[-1]
    if path.startswith(wanted) or name.startswith(wanted):
        return 0
    if wanted in name:
        return 1
    if wanted in path:
        return 2
    letters = iter(path)
    return 3 if all(letter in letters for letter in wanted) else None
