"""Parse the rules of ``.gitignore`` files as git does, and apply them to paths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...errors import InputError
from ...text.globs import path_regex
from ...values import record

_TRAILING_SPACES: Final = re.compile(r"(?<!\\) +$")
_PLAIN_BRACES: Final = re.compile(r"[{}]")


@record
class _Rule:
    regex: re.Pattern[str]
    keeps: bool
    only_folders: bool


@record
class IgnoreRules:
    """The rules of one ``.gitignore`` file, in or above the directory where a search starts.

    For a file above the start, ``prefix`` is the path from the file's directory to the start, with a slash.
    """

    rules: tuple[_Rule, ...]
    prefix: str = ""
    depth: int = 0
    """How many directories below the start of the search the file's own directory is."""


def parse_ignore_rules(text: str, *, prefix: str = "", depth: int = 0) -> IgnoreRules:
    """Return the rules in the text of a ``.gitignore``; skip invalid lines, as git does."""
    found: list[_Rule] = []
    for line in text.splitlines():
        rule = _rule(_TRAILING_SPACES.sub("", line))
        if rule is not None:
            found.append(rule)
    return IgnoreRules(tuple(found), prefix, depth)


def _rule(line: str) -> _Rule | None:
    if not line or line.startswith("#"):
        return None
    keeps = line.startswith("!")
    line = line[1:] if keeps else line
    only_folders = line.endswith("/")
    line = line[:-1] if only_folders else line
    if not line:
        return None
    anchored = "/" in line
    pattern = _PLAIN_BRACES.sub(lambda one: f"\\{one[0]}", line.removeprefix("/"))  # braces mean nothing to git
    if pattern.endswith("/**"):
        pattern = pattern[:-2] + "**/*"
    try:
        return _Rule(path_regex(pattern if anchored else f"**/{pattern}"), keeps, only_folders)
    except InputError:
        return None


def is_ignored(path: str, is_folder: bool, files: Sequence[IgnoreRules]) -> bool:
    """Return whether the last rule that matches a path ignores it; False if no rule matches.

    ``path`` is relative to the start of the search; rules of later ``files`` override those of earlier ones.
    """
    for rules in reversed(files):
        relative = rules.prefix + path if rules.prefix else path.split("/", rules.depth)[-1]
        for rule in reversed(rules.rules):
            if (is_folder or not rule.only_folders) and rule.regex.fullmatch(relative):
                return not rule.keeps
    return False
