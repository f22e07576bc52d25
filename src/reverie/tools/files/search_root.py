"""The start of a search: how its paths are displayed, and the ignore rules of the directories above it."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import ReverieError
from ..context import ToolContext
from .ignore_rules import is_ignored, parse_ignore_rules
from .readable import is_beneath, read_scope
from .workspace import open_plain_file

_MAX_RULES_CHARS = 1_000_000


def label_of(target: str, context: ToolContext) -> str:
    """Return how to display a resolved path: relative if below the working directory, '' for that itself."""
    cwd = os.path.realpath(context.cwd)
    if target == cwd:
        return ""
    return os.path.relpath(target, cwd) if is_beneath(target, (cwd,)) else target


def rules_above(target: str, context: ToolContext) -> list[tuple[str, str]] | None:
    """Return, for each ``.gitignore`` above a directory, the path from its folder to the directory, and its text.

    None if these files ignore the directory itself. Only files within the same allowed root are read.
    """
    root = next((folder for folder in read_scope(context).roots if is_beneath(target, (folder,))), None)
    found: list[tuple[str, str]] = []
    if root is None or root == target:
        return found
    for folder in reversed(Path(target).parents):
        if not is_beneath(str(folder), (root,)):
            continue
        try:
            opened = open_plain_file(str(folder / ".gitignore"), context)
        except (OSError, ReverieError):
            continue
        with open(opened.descriptor, encoding="utf-8", errors="replace") as file:
            found.append((os.path.relpath(target, folder) + "/", file.read(_MAX_RULES_CHARS)))
    for prefix, text in found:
        parts = prefix.rstrip("/").split("/")
        for count in range(1, len(parts) + 1):
            if is_ignored("/".join(parts[:count]), True, [parse_ignore_rules(text)]):
                return None
    return found
