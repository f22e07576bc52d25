"""The files and commands that a memory names, and whether a tool call is about one of them. Pure.

Only names that leave no doubt count: a path or a file name with its ending, a path that begins with ``/``, ``~/`` or
``./`` or is alone in backticks, a command in backticks, or two words before an option (``git push --force``). In a
command, a word without a directory is a file only if the project has it (``Node.js`` is also a product).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from ..lazy import pattern
from ..values import cast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

_FILE_MARK, _COMMAND_MARK = "f:", "c:"
_SPAN: Final = pattern(r"`([^`\n]{1,200})`")
_WORD: Final = pattern(r"[^\s`'\"()\[\]{}<>,;]+")
_FILE: Final = pattern(r"(?:~/|\.{1,2}/|/)?[\w@+-][\w.@+-]*(?:/[\w.@+-]+)*")
_ENDING: Final = pattern(r"[\w-]\.[A-Za-z][A-Za-z0-9]{0,9}\Z")
_ABBREVIATION: Final = pattern(r"\w\.\w")
_PROGRAM: Final = pattern(r"[A-Za-z0-9_./@+-]+\Z")
_BEFORE_OPTION: Final = pattern(r"(?<![\w./@+-])([\w./@+]+) ([\w./@+][\w./@+-]*) +--?[A-Za-z]")
_BETWEEN: Final = pattern(r"&&|\|\||[;|\n()]|\$\(")
_PATCHED: Final = pattern(r"^\*\*\* (?:Add|Update|Delete|Move to)[^:\n]*: *(.+)$", re.MULTILINE)
_FILE_FIELDS: Final = ("file_path", "path", "notebook_path")
_MAX_CHARS: Final = 20_000


def names_in(text: str) -> list[str]:
    """Return the files and commands that a text names, each once, as marked names for ``is_about``."""
    found: dict[str, None] = {}
    text = text[:_MAX_CHARS]
    quoted = set(_SPAN.findall(text))
    for word in _WORD.findall(text):
        word = word.rstrip(".:!?")
        is_path = "/" in word.strip("/~") and (word.startswith(("/", "~/", "./", "../")) or word in quoted)
        if _FILE.fullmatch(word) and (is_path or (_ENDING.search(word) and not _ABBREVIATION.fullmatch(word))):
            found[_FILE_MARK + word.removeprefix("./")] = None
    spans = [words for span in _SPAN.findall(text) if (words := _command(span))]
    spans += [(first, second) for first, second in _BEFORE_OPTION.findall(text)]
    for words in spans:
        if all(_PROGRAM.match(word) for word in words):
            found[_COMMAND_MARK + " ".join(words)] = None
    return list(found)


def search_strings(names: Iterable[str]) -> list[str]:
    """Return one string for each name that a tool call about it must contain as a word, sorted."""
    return sorted({name[2:] if name.startswith(_FILE_MARK) else name[2:].split(" ")[0] for name in names})


def is_about(names: Iterable[str], given: object, exists: Callable[[str], bool]) -> bool:
    """Return whether a tool call is about one of these files or commands; ``exists`` says whether a path is there."""
    files, commands = _parts(given)
    run = {words[:count] for words in map(_command, commands) for count in (1, 2)}
    for name in names:
        if name.startswith(_COMMAND_MARK):
            if tuple(name[2:].split(" ")) in run:
                return True
        elif any(_paths(name[2:], text) for text in files) or any(
            "/" in path or exists(path) for one in commands for path in _paths(name[2:], one)
        ):
            return True
    return False


def _parts(given: object) -> tuple[list[str], list[str]]:
    """Return the paths and the single commands in the arguments of a tool call."""
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}
    files = [value for name in _FILE_FIELDS if isinstance(value := fields.get(name), str)]
    command: Any = fields.get("command")
    if not isinstance(command, str):
        return files, []
    if command.lstrip().startswith("*** Begin Patch"):
        return [*files, *_PATCHED.findall(command)], []
    return files, [one.strip() for one in _BETWEEN.split(command[:_MAX_CHARS]) if one.strip()]


def _command(text: str) -> tuple[str, ...]:
    return tuple(_plain_words(text))[:2]


def _plain_words(text: str) -> Iterator[str]:
    started = False
    for word in text.split():
        if word.startswith("-") or (not started and "=" in word):
            continue
        started = True
        yield word.strip("'\"")


def _paths(name: str, text: str) -> list[str]:
    """Return the places where a text holds this path by whole names, with a directory before it."""
    if name not in text:
        return []
    return re.findall(rf"(?<![\w.@+-])/?(?:[\w.@+~-]+/)*{re.escape(name)}(?![\w/@+-]|\.\w)", text)
