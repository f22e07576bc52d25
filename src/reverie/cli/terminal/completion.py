"""Completion of commands after ``/``, of their arguments, and of files after ``@``: from git, or from a walk."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ...errors import InputError
from ...tools.git import run_git
from ..output import printable

MAX_SHOWN: Final = 50
MAX_FILES: Final = 20_000
MAX_DEPTH: Final = 8
GIT_SECONDS: Final = 3.0
SKIPPED: Final = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})
AT_FILE: Final = re.compile(r"(?:^|\s)@(\S*)$")


class InputCompleter(Completer):
    """Completes commands, their arguments and file names."""

    def __init__(
        self,
        commands: Mapping[str, str],
        files: Callable[[], Sequence[str]],
        arguments: Callable[[str], Sequence[str]],
    ) -> None:
        self._commands = commands
        self._files = files
        self._arguments = arguments

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield completions for the text before the cursor."""
        before = document.text_before_cursor
        found = AT_FILE.search(before)
        if found is not None:
            typed = found.group(1)
            for path in best_matches(typed, self._files(), limit=MAX_SHOWN):
                yield Completion(_escaped(path), start_position=-len(typed), display=printable(path))
        elif before.startswith("/") and "\n" not in before:
            yield from self._of_command(before[1:])

    def _of_command(self, typed: str) -> Iterable[Completion]:
        name, space, rest = typed.partition(" ")
        if not space:
            for command, meaning in self._commands.items():
                if command.startswith(name):
                    yield Completion(command, start_position=-len(name), display=f"/{command}", display_meta=meaning)
            return
        for value in self._arguments(name):
            if value.startswith(rest) and value != rest:
                yield Completion(value, start_position=-len(rest))


def _escaped(path: str) -> str:
    """Return a path with its spaces escaped."""
    return path.replace(" ", "\\ ")


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
