"""Rules: instruction files that apply to certain paths only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from ...errors import InputError
from ...text.globs import path_regex
from ..store.frontmatter import FrontMatter, parse

_MAX_PATTERNS: Final = 256
_MAX_PATTERN_CHARS: Final = 1_000
_ITEM: Final = re.compile(r"\s*-\s+(.*\S)\s*")

Rule = tuple[tuple[str, ...], str]
"""The path patterns of a rule (empty if it applies everywhere), and its text."""


def read_rule(text: str) -> Rule:
    """Return the ``paths`` patterns of a rule file and the text after its front matter.

    Raise ``InputError`` if the front matter is invalid or has too many patterns.

    Patterns may lack quotes, which front matter elsewhere requires, because people write them so.
    """
    try:
        matter = parse(text)
    except InputError:
        matter = _leniently(text)
    paths = matter.fields.get("paths", "")
    if isinstance(paths, dict):
        raise InputError("paths: give a pattern or a list of patterns")
    given = [paths] if isinstance(paths, str) else paths
    wanted = tuple(pattern for one in given for part in _split(one) if (pattern := part.strip()))
    if len(wanted) > _MAX_PATTERNS or any(len(pattern) > _MAX_PATTERN_CHARS for pattern in wanted):
        raise InputError(f"paths: at most {_MAX_PATTERNS} patterns of {_MAX_PATTERN_CHARS:,} characters")
    return wanted, matter.body


def _leniently(text: str) -> FrontMatter:
    """Return the front matter parsed after quoting the patterns of ``paths``; other errors still raise."""
    lines = text.split("\n")
    inside = False
    for at, line in enumerate(lines[1:], start=1):
        if line.rstrip() == "---":
            break
        if line.startswith("paths:"):
            inside = True
            value = line.removeprefix("paths:").strip()
            if value and value[0] not in "\"'[":
                lines[at] = f"paths: {_quoted(value)}"
        elif inside and (item := _ITEM.fullmatch(line)) is not None:
            if item[1][0] not in "\"'":
                lines[at] = f"  - {_quoted(item[1])}"
        elif line.strip():
            inside = False
    return parse("\n".join(lines))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _split(text: str) -> Iterator[str]:
    """Yield the parts of a text between commas outside braces."""
    start = depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth <= 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def is_for(patterns: Sequence[str], path: str) -> bool:
    """Say whether a path, relative to the directory of the rule, matches one of the patterns.

    ``*`` stays within a name, ``**`` spans directories, ``{a,b}`` is a choice; a directory matches all files in it.
    """
    return any(_regex(pattern).fullmatch(path) for pattern in patterns)


@lru_cache(maxsize=512)
def _regex(pattern: str) -> re.Pattern[str]:
    try:
        return path_regex(pattern + "**" if pattern.endswith("/") else pattern)
    except InputError:
        return re.compile(r"(?!)")  # a pattern that means nothing matches nothing
