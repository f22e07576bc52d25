"""Whether a git command may show the content of a file that a rule denies, from the repository's objects.

No sandbox sees into those, so the repository is asked whether it ever held such a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...errors import InputError, SandboxUnavailable
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
# Ids of objects, also short or behind the name of a tag, and heads that are no branches.
_OBJECT: Final = re.compile(r"[0-9a-f]{4,}|[A-Z]+_HEAD")
_ANY_OBJECT: Final = "any"
_SECONDS: Final = 10.0
MAX_ENTRIES: Final = 200_000
"""In a tree with more files, repositories are not looked for, and a line that may go to any of them asks."""


def shows_denied_file(line: Line, scope: ReadScope, *, is_computed: bool = False) -> bool:
    """Return whether a command of a line may show a denied file that its repository holds or held; this may block.

    A line that ``is_computed`` may go to any directory of the session, so every repository there counts.
    """
    if not scope.denied:
        return False
    named: dict[str, set[str]] = {}
    for command, here in folders_of_commands(line, scope):
        if command.words[0].text == "git" and _shows_content(command):
            for folder in here:
                named.setdefault(top_of_repository(folder), set()).update(_named_objects(command, is_computed))
    if named and is_computed:
        try:
            every = set[str]().union(*named.values())
            named = dict.fromkeys((*named, *_repositories(scope)), every)
        except SandboxUnavailable:
            return True
    return any(
        _holds_denied_file(top, scope) or _holds_lost_object(top, names) for top, names in sorted(named.items()) if top
    )


def _repositories(scope: ReadScope) -> Iterator[str]:
    """Yield the repositories in the session's directories; raise if there are too many files to find them."""
    count = 0
    for root in scope.roots:
        for folder, folders, files in os.walk(root):
            count += len(folders) + len(files)
            if count > MAX_ENTRIES:
                raise SandboxUnavailable("there are too many files here to find each repository")
            if ".git" in folders or ".git" in files:
                yield folder
            if ".git" in folders:
                folders.remove(".git")


def _named_objects(command: Command, is_computed: bool) -> Iterator[str]:
    """Yield the names in a command that may be those of objects which no branch or log leads to."""
    if is_computed and "--patch" in command.argv:  # it stands for each computed word
        yield _ANY_OBJECT
    for word in command.words[1:]:
        yield from _OBJECT.findall(word.text)


def _holds_lost_object(top: str, names: set[str]) -> bool:
    """Return whether a repository holds one of these objects, and nothing tells the files to which it belonged."""
    try:
        if _ANY_OBJECT in names:
            found = run_git(Path(top), "fsck", "--unreachable", "--connectivity-only", timeout_seconds=_SECONDS)
            return found.returncode != 0 or bool(found.stdout)
        return any(_is_lost(top, name) for name in sorted(names))
    except InputError:
        return True


def _is_lost(top: str, name: str) -> bool:
    def said(*arguments: str) -> str:
        return run_git(Path(top), *arguments, timeout_seconds=_SECONDS).stdout

    place = said("rev-parse", "--quiet", "--verify", f"{name}^{{object}}").strip()
    if not place:
        return False
    kept = ("rev-list", "--all", "--reflog", "HEAD")
    if said("cat-file", "-t", place).strip() != "commit":
        kept = (*kept, "--objects", "--indexed-objects")
    return place not in {line[: len(place)] for line in said(*kept).splitlines()}


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
