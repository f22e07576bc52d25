"""Whether a git command may show the content of a file that a rule denies, from the repository's objects.

No sandbox sees into those, so the repository is asked whether it ever held such a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...errors import InputError
from ..files.readable import ReadScope, absolute_path
from ..git import run_git
from .grammar import Command, Line
from .read_only.git import GIT
from .read_only.options import words_of
from .read_words import folders_of_commands, top_of_repository

_SHOW: Final = words_of(
    "archive blame cat-file diff diff-index diff-tree fast-export format-patch grep log range-diff reflog show stash"
    " whatchanged"
)
# The options with which log and its kin show no content.
_NAMES_ONLY: Final = words_of(
    "--oneline --graph --all --decorate --stat --shortstat --numstat --name-only --name-status --abbrev-commit "
    "--merges --no-merges --first-parent --reverse --follow --date --format --pretty --author --since --until --after "
    "--before --grep --max-count --branches --tags --remotes -n -i"
)
_SECONDS: Final = 10.0


def shows_denied_file(line: Line, scope: ReadScope, *, is_computed: bool = False) -> bool:
    """Return whether a command of a line may show a denied file that its repository holds or held; this may block.

    A line that ``is_computed`` may go to any directory of the session, so every repository there counts.
    """
    if not scope.denied:
        return False
    tops = {
        top_of_repository(folder)
        for command, here in folders_of_commands(line, scope)
        if command.words[0].text == "git" and _shows_content(command)
        for folder in here
    }
    if tops and is_computed:
        tops.update(_repositories(scope))
    return any(_holds_denied_file(top, scope) for top in sorted(tops) if top)


def _repositories(scope: ReadScope) -> Iterator[str]:
    for root in scope.roots:
        for folder, folders, files in os.walk(root):
            if ".git" in folders or ".git" in files:
                yield folder
            if ".git" in folders:
                folders.remove(".git")


def _shows_content(command: Command) -> bool:
    words = [word.text for word in command.words[1:]]
    while words and words[0].startswith("-"):
        del words[: 2 if words[0] == "-C" else 1]
    if not words or words[0] not in GIT.rules.keys() | _SHOW:
        return "--patch" in command.argv  # the subcommand is computed
    if words[0] == "status":
        return any(word == "--verbose" or re.match("-[a-z]*v|--patch", word) for word in words[1:])
    if words[0] not in _SHOW:
        return any("raw" in word for word in words)  # a format that prints the object of a reference
    if words[0] not in ("log", "reflog"):
        return True
    options = [word.partition("=")[0] for word in words[1:] if word.startswith("-")]
    return not all(option in _NAMES_ONLY or option[1:].isdigit() for option in options)


def _holds_denied_file(top: str, scope: ReadScope) -> bool:
    patterns = list(_pathspecs(top, scope))
    held = ("log", "--all", "--reflog", "--full-history", "-1", "--format=%h")
    try:
        return bool(patterns) and any(
            run_git(Path(top), *command, "--", *patterns, timeout_seconds=_SECONDS).stdout
            for command in (("ls-files",), held)
        )
    except InputError:
        return True


def _pathspecs(top: str, scope: ReadScope) -> Iterator[str]:
    for pattern in scope.denied:
        below = f"**/{pattern}"
        if "/" in pattern.rstrip("/"):
            place = absolute_path(pattern.replace("//", "/", 1), cwd=scope.cwd, home=scope.home)
            if not place.startswith(f"{top}/"):
                continue
            below = place[len(top) + 1 :]
        below = below.rstrip("/")
        yield from (f":(top,glob,icase){below}", f":(top,glob,icase){below}/**")
