"""Decide whether a line of shell can only read, also where bash computes words, loops and conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ....errors import InputError
from ....text.globs import expanded_patterns
from ....values import record
from ..grammar import Command, Line, Word
from ..read_only import problem_of
from ..read_words import TEXT_COMMANDS
from .judge import BASH_COMMANDS, expected_word, script_problem
from .simple import parse, simple_line, understood
from .words import Script, ScriptCommand, ScriptWord, Text, Value

__all__ = ["JudgedLine", "judged_line", "parse"]

MAX_CHARS: Final = 1_000
"""A line with more characters is not checked and counts as not read-only, because the answer must be quick."""


@record
class JudgedLine:
    """Whether a line of shell can only read, the reason, and its commands with their words.

    ``is_computed`` says that it only reads if each program is judged when it starts; ``line`` then has the literal
    beginning of each computed word.
    """

    allowed: bool
    reason: str
    line: Line | None = None
    is_computed: bool = False
    names: frozenset[str] | None = None
    """The names of the commands of a line that may compute the paths that it reads; None for another line."""


@lru_cache(maxsize=64)
def judged_line(text: str) -> JudgedLine:
    """Return a verdict whether a line of shell can only read; a line that is not understood is not allowed."""
    if len(text) > MAX_CHARS:
        return JudgedLine(False, f"it is longer than {MAX_CHARS} characters")
    try:
        script = understood(text)
    except ValueError as why:
        return JudgedLine(False, str(why))
    line = simple_line(script, text)
    problem = _simple_problem(line) if line is not None else ""
    if line is not None and not problem:
        names = frozenset(command.words[0].text for command in line.commands)
        has_xargs = "xargs" in names  # its input becomes arguments
        opens_more = has_xargs or any(map(_opens_links, line.commands))
        return JudgedLine(True, "it only reads", line, has_xargs, names if opens_more else None)
    if found := script_problem(script):
        return JudgedLine(False, problem or found)
    found = Line(tuple(_commands(script)))
    names = frozenset(word.text for command in script.commands for word in command.words if word.is_plain)
    return JudgedLine(True, "it only reads", found, True, names if _computes_paths(script) else None)


def _opens_links(command: Command) -> bool:
    """Return whether a command may open links that no word names, which may lead outside."""
    pattern = _FOLLOWING.get(command.argv[0])
    return pattern is not None and any(map(pattern.match, command.argv))


def _computes_paths(script: Script) -> bool:
    """Return whether a command may read a file by a path that no rule saw."""
    return not all(word.is_literal for word in script.reads) or any(map(_computes_path, script.commands))


def _computes_path(command: ScriptCommand) -> bool:
    name = command.words[0].text if command.words else ""
    if not all(word.is_literal for word in command.reads):
        return True
    if name in TEXT_COMMANDS or name in BASH_COMMANDS:
        return False
    if name == "xargs" or not all(word.is_literal for word in command.words):
        return True
    # A script that only the sandbox bounds may put a path together.
    return bool(name) and bool(problem_of(Command(tuple(map(expected_word, command.words)))))


def _simple_problem(line: Line) -> str:
    return next((problem for command in line.commands if (problem := problem_of(command))), "")


def _commands(script: Script) -> Iterator[Command]:
    """Yield the commands with the words that may name files, computed words by their beginning."""
    for command in script.commands:
        reads = tuple(word.text for word in command.reads if word.is_literal)
        if command.words:
            name = command.words[0].text
            words = tuple(each for word in command.words for each in _path_words(word, name))
            yield Command(words, reads)
            # xargs, find and others run git with more words, which may be options.
            yield from (Command((*words[at:], _PATCH)) for at in range(1, len(words)) if words[at].text == "git")
            texts = [word.text for word in words]
            if "xargs" in texts and not _RUNNERS.isdisjoint(texts[texts.index("xargs") + 1 :]):
                yield Command((_GIT, _PATCH))  # their input may name git
        elif reads:
            yield Command((_CAT, *(Word(text, text) for text in reads)))
    others = [*script.words, *(word for each in script.bindings if not each.before for word in each.words or ())]
    # A word of a loop or a variable may be any text: for an unknown command it counts only if there is such a file.
    given = (*others, *script.reads)
    yield Command((Word(":", ":"), *(each for word in given for each in _path_words(word, ""))))


_FOLLOWING: Final = {
    "diff": re.compile("-[A-Za-z0-9]*r|--recursive"),
    "find": re.compile("-(?:exec|follow|L)"),
    "rg": re.compile("-[A-Za-z0-9.]*L|--follow"),
    **dict.fromkeys(("egrep", "fgrep", "grep"), re.compile("-[A-Za-z0-9]*R|--dereference")),
}
"""Options with which a command follows links, or gives them to another one."""
_CAT: Final = Word("cat", "cat")
_GIT: Final = Word("git", "git")
_PATCH: Final = Word("--patch", "--patch")
_RUNNERS: Final = frozenset({"find", "nice", "timeout", "xargs"})
_PLACES: Final = {"HOME": "~", "PWD": "."}


def _path_words(word: ScriptWord, name: str) -> Iterator[Word]:
    beginning, is_whole = _beginning(word)
    if is_whole:
        texts = (
            _braces(beginning)
            if any(isinstance(part, Value) and part.kind == "braces" for part in word.parts)
            else [beginning]
        )
        yield from (Word(text, text, word.is_pattern, word.is_plain) for text in texts)
    else:
        if name == "git":
            yield _PATCH  # it may be any option, or become several words
        if beginning or name != "git":
            folder = beginning[: beginning.rfind("/") + 1]
            yield Word(folder or ".", folder or ".")


def _braces(text: str) -> list[str]:
    try:
        return expanded_patterns(text)
    except InputError:
        return ["/"]  # too many: a person decides


def _beginning(word: ScriptWord) -> tuple[str, bool]:
    """Return the text of a word up to the first part whose value is not known, and whether that is all of it."""
    found = ""
    for part in word.parts:
        if isinstance(part, Text):
            found += part.text
        elif part.kind == "variable" and part.name in _PLACES and not found:
            found = _PLACES[part.name]
        elif part.kind == "braces":
            found += part.name
        else:
            return found, False
    return found, True
