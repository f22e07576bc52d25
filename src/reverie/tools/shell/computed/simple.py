"""The simple lines of shell: bash computes no part of them but globs, and they hold nothing but simple commands."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import Final

from ..grammar import Command, Line, Word
from .agreement import disagreement
from .parser import parse_script
from .words import Script, ScriptWord, Text

# Letters and signs, globs, quoted texts on one line, escapes of signs; the mark of find and xargs for a path.
_WORD: Final = re.compile(
    r"(?:[A-Za-z0-9_./:=@%+,^~*?\[\]-]|(?<=@)\{[A-Za-z0-9]+\}|'[^'\n\t]*'|\\[()\[\]{}.*+?^|;!<>&#$/=,:-]"
    r'|"(?:[^"\\$`!\n\t]|\\[^`!\n\t]|\$(?="))*")+|\{\}|!'
)
_READ: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./+,@%-]*")
_PATTERN: Final = re.compile(r"[*?]|\[.*\]")
MAX_CHARS: Final = 4_096


def parse(text: str) -> Line | None:
    """Return the simple commands of a line of shell; None if it is not fully understood, or holds more than those."""
    try:
        return simple_line(understood(text), text)
    except ValueError:
        return None


def understood(text: str) -> Script:
    """Return everything that a line does; raise ``ValueError`` if two parsers do not agree on it."""
    _refuse_characters(text.replace("\t", " "))
    script = parse_script(text)
    if problem := disagreement(text, script):
        raise ValueError(problem)
    return script


def _refuse_characters(text: str) -> None:
    """Raise for a line that is empty, too long, or holds a character that is no plain text."""
    if not text.strip(" \n"):
        raise ValueError("the line is empty")
    if len(text) > MAX_CHARS:
        raise ValueError(f"the line is longer than {MAX_CHARS} characters")
    for letter in text:
        if letter in " \n" or (letter.isascii() and letter.isprintable()):
            continue
        if letter.isascii() or unicodedata.category(letter)[0] in "CZ" or not letter.isprintable():
            raise ValueError(f"it holds the character U+{ord(letter):04X}, which is not plain text")


def simple_line(script: Script, text: str) -> Line | None:
    """Return the commands of a line of nothing but simple commands and ``if``, with literal words; None for another."""
    words = [word for command in script.commands for word in command.words]
    reads = [word for command in script.commands for word in command.reads]
    is_simple = script.is_simple and all(command.words for command in script.commands)
    if not is_simple or not all(_WORD.fullmatch(text, word.start, word.end) for word in words):
        return None
    if not all(_READ.fullmatch(text, word.start, word.end) for word in reads):
        return None
    commands = tuple(
        Command(tuple(map(simple_word, command.words)), tuple(word.text for word in command.reads))
        for command in script.commands
    )
    places = sorted((word.start, word.end) for word in words)
    between = "".join(text[end:start] for (_, end), (start, _) in pairwise(places))
    return Line(commands, not set(re.sub(r"&&\s+|\\\n", "", between)) & set(";|\n"))


def simple_word(word: ScriptWord) -> Word:
    """Return a literal word with the part before its first glob."""
    texts = [part for part in word.parts if isinstance(part, Text)]
    bare = "".join(" " * len(part.text) if part.is_quoted else part.text for part in texts)
    pattern = _PATTERN.search(bare)
    return Word(word.text, word.text[: pattern.start()] if pattern else word.text, pattern is not None, word.is_plain)
