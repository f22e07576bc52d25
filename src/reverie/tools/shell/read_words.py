"""The paths that the words of a command may name, and whether they may be read.

The lists of ``read_only`` say which words are options, patterns or scripts. Every other word counts as a path, globs
are expanded against the disk, and after a ``cd`` a path is checked from every possible working directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final

from ...errors import InputError
from ...text.globs import expanded_patterns
from ..files.readable import ReadScope, absolute_path
from .grammar import Command, Line, Word, loose_words
from .read_only.commands import COMMANDS
from .read_only.options import OptionRule, parsed_arguments, words_of
from .read_only.watch_rules import WATCHED

# These commands read no file that an argument names.
TEXT_COMMANDS: Final = words_of(
    "arch basename command dirname echo expr false groups id printf seq tr true type which whoami"
)
# Options of git with an expression or a text as the next word.
_GIT_TEXTS: Final = words_of("-L -S -G --grep --author --committer --format")
_PATTERN_FIRST: Final = words_of("egrep fgrep grep rg")
_PATTERN_OPTIONS: Final = words_of("e f regexp file files type-list")
_PATH_OPTIONS: Final = words_of("f file exclude-from r reference X C")
_GLOB: Final = re.compile(r"[*?\[]")
_BRACKET: Final = re.compile(r"\[(?:[!^]?\]?(?:\[:\w+:\]|[^\]])*)\]")
_LEAVES: Final = re.compile(r"[/~]|(?:.*/)?\.\.(?:/|\Z)")
_MARK: Final = re.compile(r"[=:)]")
MAX_NAMES: Final = 50_000
"""So many names on the disk are compared with the globs of a line; a person decides about a line that needs more."""
MAX_MATCHES: Final = 10_000
MAX_FOLDERS: Final = 100
"""A line that may be in more directories asks: each ``cd`` may fail, so their number doubles."""
_MAX_PATH: Final = 1_024


def outside_problem(line: Line, scope: ReadScope) -> str:
    """Return the reason to ask before a line of read-only commands runs; an empty text if it reads inside only.

    The reason names the word and not the files that it leads to, because a model may read it.
    """
    return next((f"it reads {word}: {problem}" for word, _, problem in _outside(line, scope)), "")


def outside_paths(line: Line, scope: ReadScope) -> tuple[str, ...]:
    """Return the resolved paths, each with a reason to ask, that a line of read-only commands reads."""
    return tuple(dict.fromkeys(os.path.realpath(path) for _, path, _ in _outside(line, scope)))


def _outside(line: Line, scope: ReadScope) -> Iterator[tuple[str, str, str]]:
    for word, paths in _paths(line, scope):
        for path in paths:
            if problem := scope.problem(path):
                yield word, path, problem


def denied_word(text: str, line: Line | None, scope: ReadScope) -> bool:
    """Return whether a word of a line may name a file that the scope denies.

    ``line`` is the parsed line; without it, every word and piece of a word counts.
    """
    found = _paths(line, scope, literal=True) if line is not None else _loose_paths(text, scope)
    return any(scope.denial(path) for _, paths in found for path in paths)


def folders_of_commands(line: Line, scope: ReadScope) -> Iterator[tuple[Command, list[str]]]:
    """Yield each command of a line with the directories that its paths may be relative to."""
    bases = [scope.cwd]
    globs = _Globs()
    for command in line.commands:
        more = [path for base in bases for path in _git_folders(command, base, scope)]
        yield command, [*bases, *more]
        if command.words[0].text == "cd":
            reached = _after_cd(command, bases, scope, globs)
            bases = reached if line.is_chained else _few([*bases, *reached])


def _paths(line: Line, scope: ReadScope, *, literal: bool = False) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield each word that may be a path with its absolute paths; with ``literal`` git's need not be on the disk."""
    globs = _Globs()
    for command, here in folders_of_commands(line, scope):
        is_git = command.words[0].text == "git"
        for word, is_sure in _operands(command):
            for text in _pieces(word.text) if is_git else (word.text,):
                if is_sure or word.is_pattern or (literal and is_git) or _names_file(text, here, scope):
                    yield word.text, _absolute(text, here, scope, globs if word.is_pattern else None)
        if command.words[0].text == "cd":
            yield " ".join(command.argv), iter(_after_cd(command, here, scope, globs))


def _operands(command: Command) -> Iterator[tuple[Word, bool]]:
    """Yield the words of a command that may be paths, and whether a word is surely one."""
    name, words = command.words[0].text, command.words[1:]
    yield from ((Word(text, text), True) for text in command.reads)
    if name in TEXT_COMMANDS:
        yield from ((word, True) for word in words if word.is_pattern)
        return
    rule = COMMANDS.get(name) or WATCHED.get(name)
    if isinstance(rule, OptionRule):
        with suppress(ValueError):
            given = parsed_arguments(rule, words)
            skips = name in _PATTERN_FIRST and not given.has(*_PATTERN_OPTIONS)
            yield from _from_parsed(given.operands, given.options, skips)
            return
    # A pattern of git grep may begin with a slash; other words of git that do are paths.
    sure = name == "git" and "grep" not in command.argv
    before = ("", *(word.text for word in words))
    yield from (
        (word, sure and last not in _GIT_TEXTS and _LEAVES.match(word.text) is not None)
        for last, word in zip(before, words, strict=False)
    )


def _from_parsed(
    operands: tuple[Word, ...], options: tuple[tuple[str, str], ...], skips: bool
) -> Iterator[tuple[Word, bool]]:
    for at, word in enumerate(operands):
        if not (skips and at == 0 and not word.is_pattern):
            yield word, True
    for name, value in options:
        # The value of another option is a path only if it is one: a delimiter is not.
        if name in _PATH_OPTIONS or (len(value) > 1 and name not in ("e", "regexp")):
            is_pattern = _GLOB.search(value) is not None and name in _PATH_OPTIONS
            yield Word(value, value, is_pattern), name in _PATH_OPTIONS


def _names_file(text: str, bases: list[str], scope: ReadScope) -> bool:
    with suppress(OSError, ValueError):
        return any(os.path.lexists(absolute_path(text, cwd=base, home=scope.home)) for base in bases)
    return False


def _pieces(text: str) -> Iterator[str]:
    """Yield a word and every part of it that may be a path: after ``=``, ``:`` and ``)``, and after option letters."""
    yield text
    for found in _MARK.finditer(text, max(0, len(text) - _MAX_PATH)):
        if text[found.end() :]:
            yield text[found.end() :]
    if text.startswith("-") and not text.startswith("--"):
        yield from (text[at:] for at in range(2, min(len(text), 12)))
    if text.startswith(":") and text[1:2] in ("!", "^", "/"):
        yield text[2:]


def _absolute(text: str, bases: list[str], scope: ReadScope, globs: _Globs | None) -> Iterator[str]:
    for base in bases:
        if globs is not None:
            yield from globs.expanded(text, base, scope)
        # The kernel resolves links before "..", so the path is joined and not normalized.
        path = f"{scope.home}{text[1:]}" if text == "~" or text.startswith("~/") else text
        yield os.path.join(base, path)


class _Globs:
    """Expands the globs of one line: more than bash would, never fewer; the work is bounded for the whole line."""

    def __init__(self) -> None:
        self._names = MAX_NAMES
        self._matches = MAX_MATCHES

    def expanded(self, text: str, base: str, scope: ReadScope) -> Iterator[str]:
        """Yield the paths that a glob may expand to; ``/`` if they are too many, because a person decides then."""
        path = f"{scope.home}{text[1:]}" if text == "~" or text.startswith("~/") else text
        parts = _BRACKET.sub("?", os.path.join(base, path)).replace("[", "?").split("/")[1:]
        for at, part in enumerate(parts):
            # Before version 5.2, bash expands .* and the like to "..".
            if part.startswith(".") and part not in (".", "..") and fnmatchcase("..", part):
                yield from self._found([*parts[:at], "..", *parts[at + 1 :]])
        yield from self._found(parts)

    def _found(self, parts: list[str]) -> Iterator[str]:
        folders = [""]
        for part in parts:
            if _GLOB.search(part):
                folders = [f"{folder}/{name}" for folder in folders for name in self._listed(folder, part)]
            else:
                folders = [f"{folder}/{part}" for folder in folders]
        is_fixed = not any(map(_GLOB.search, parts))
        for path in folders:
            if is_fixed or os.path.lexists(path):
                self._matches -= 1
                yield path
            if self._matches < 0:
                break
        if min(self._names, self._matches) < 0:
            yield "/"

    def _listed(self, folder: str, part: str) -> Iterator[str]:
        self._names -= 1
        if self._names < 0:
            return
        with suppress(OSError), os.scandir(folder or "/") as entries:
            for entry in entries:
                self._names -= 1
                if self._names < 0:
                    return
                if fnmatchcase(entry.name, part) and (part.startswith(".") or not entry.name.startswith(".")):
                    yield entry.name


def _after_cd(command: Command, bases: list[str], scope: ReadScope, globs: _Globs) -> list[str]:
    """Return the directories to which a ``cd`` leads, which may follow links or not."""
    target = next((word for word in command.words[1:] if word.text != "--"), Word("~", "~"))
    reached = list(_absolute(target.text, bases, scope, globs if target.is_pattern else None))
    return _few([*reached, *map(os.path.realpath, reached), *map(os.path.normpath, reached)])


def _few(folders: list[str]) -> list[str]:
    found = list(dict.fromkeys(folders))
    return found if len(found) <= MAX_FOLDERS else ["/"]


def _git_folders(command: Command, base: str, scope: ReadScope) -> Iterator[str]:
    """Yield the directories that paths of a git command may be relative to: those of -C, and the repository's top."""
    if command.words[0].text != "git":
        return
    texts = [word.text for word in command.words]
    for at, text in enumerate(texts[:-1]):
        if text == "-C":
            yield absolute_path(texts[at + 1], cwd=base, home=scope.home)
    yield from filter(None, [top_of_repository(base)])


def top_of_repository(folder: str) -> str:
    """Return the directory above a folder, or the folder itself, that holds ``.git``; an empty text if none does."""
    folder = os.path.realpath(folder)
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == "/":
            return ""
        folder = os.path.dirname(folder)
    return folder


def _loose_paths(text: str, scope: ReadScope) -> Iterator[tuple[str, Iterator[str]]]:
    globs = _Globs()
    pieces = dict.fromkeys(piece for word in dict.fromkeys(loose_words(text)) for piece in _pieces(word))
    for one in dict.fromkeys(one for piece in pieces for one in _braces(piece)):
        yield one, _absolute(one, [scope.cwd], scope, globs if _GLOB.search(one) else None)


def _braces(text: str) -> list[str]:
    try:
        return expanded_patterns(text)
    except InputError:
        return [text]
