"""The files of a project that the commands of hooks name: they run as the user, so a change of them needs the user."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ...settings import HookCommand

_VARIABLE: Final = re.compile(r"\$\{?\w+\}?/*")
_BETWEEN: Final = re.compile(r"[\s;&|()<>=`]+")
_QUOTES: Final = str.maketrans("", "", "\"'\\")


def hook_files(hooks: Mapping[str, Iterable[HookCommand]], project: Path) -> list[Path]:
    """Return the regular files in a project that commands name, from there or from a folder that they name too.

    A path after a variable counts from the project. Files that the named ones read in turn are not found.
    """
    found: set[Path] = set()
    root = os.path.realpath(project)
    for hook in (one for several in hooks.values() for one in several):
        plain = _VARIABLE.sub(" ", hook.command.translate(_QUOTES))
        words = [word for word in _BETWEEN.split(plain) if word and "\0" not in word]
        places = [root, *(os.path.join(root, word) for word in words)]
        paths = (os.path.join(place, word) for place in places if os.path.isdir(place) for word in words)
        found.update(Path(path) for path in map(os.path.normpath, paths) if _is_inside(path, root))
    return sorted(found)


def _is_inside(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/") and os.path.isfile(path)


def hashes_of(files: Iterable[Path], project: Path) -> dict[str, str]:
    """Return the hash of each file by its path in the project; empty for one that cannot be read."""
    found: dict[str, str] = {}
    for file in files:
        name = os.path.relpath(file, os.path.realpath(project))
        try:
            with file.open("rb") as opened:
                found[name] = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError:
            found[name] = ""
    return found
