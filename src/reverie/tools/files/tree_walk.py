"""Walk the files of a directory in a stable order by descriptor, without following links."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from ...values import record
from .ignore_rules import IgnoreRules, is_ignored, parse_ignore_rules

_MAX_DEPTH: Final = 100
_MAX_RULES_BYTES: Final = 1_000_000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@record
class FoundFile:
    """A plain file found by a walk: its path relative to the start, its folder's descriptor, and its name.

    The descriptor is open only while the walk is in that folder.
    """

    path: str
    folder: int
    name: str


def walk(
    start: int,
    *,
    hidden: bool = False,
    ignore: bool = True,
    above: Sequence[IgnoreRules] = (),
    between: Callable[[], None] = lambda: None,
) -> Iterator[FoundFile]:
    """Yield the plain files beneath an open directory, each directory's names in sorted order; follow no links.

    Leave out names that begin with a dot unless ``hidden``, ``.git`` always, and with ``ignore`` the files that
    ``.gitignore`` files name. ``above`` holds the rules of directories above the start; ``between`` is called for
    each directory and may raise to stop.
    """
    yield from _walk(start, "", 0, hidden, ignore, tuple(above), between)


def open_found(walked: FoundFile) -> int | None:
    """Open a found file for reading and return its descriptor; None if it is gone or no longer a plain file."""
    try:
        descriptor = os.open(walked.name, _FILE, dir_fd=walked.folder)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _walk(
    folder: int,
    path: str,
    depth: int,
    hidden: bool,
    ignore: bool,
    rules: tuple[IgnoreRules, ...],
    between: Callable[[], None],
) -> Iterator[FoundFile]:
    between()
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    if ignore:
        rules = (*rules, *_rules_in(folder, depth))
    for entry in found:
        below = f"{path}/{entry.name}" if path else entry.name
        if entry.name == ".git" or (entry.name.startswith(".") and not hidden):
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        if not is_folder and not entry.is_file(follow_symlinks=False):
            continue
        if ignore and is_ignored(below, is_folder, rules):
            continue
        if not is_folder:
            yield FoundFile(below, folder, entry.name)
        elif depth < _MAX_DEPTH:
            with suppress(OSError):  # removed, replaced by a link, or not readable
                deeper = os.open(entry.name, _FOLDER, dir_fd=folder)
                try:
                    yield from _walk(deeper, below, depth + 1, hidden, ignore, rules, between)
                finally:
                    os.close(deeper)


def _rules_in(folder: int, depth: int) -> Iterator[IgnoreRules]:
    descriptor = open_found(FoundFile(".gitignore", folder, ".gitignore"))
    if descriptor is not None:
        with open(descriptor, "rb", buffering=0) as file:
            text = (file.read(_MAX_RULES_BYTES) or b"").decode("utf-8", "replace")
        yield parse_ignore_rules(text, depth=depth)
