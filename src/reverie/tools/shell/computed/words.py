"""The parts of a line of shell that bash computes: words, assignments, tests and sums, each with its place."""

from __future__ import annotations

from typing import TypeAlias

from ....values import record


@record
class Text:
    """A literal piece of a word, without its quotes."""

    text: str
    is_quoted: bool = False


@record
class Value:
    """A piece of a word that bash computes: a variable, a substitution, a sum, braces or a process's output file."""

    kind: str
    """``variable``, ``length``, ``status``, ``list``, ``substitution``, ``sum``, ``braces`` or ``file``."""
    name: str = ""
    """The name of a variable, or the text of braces."""
    is_quoted: bool = False
    last: ScriptCommand | None = None
    """The command whose output a substitution is, where it is one pipeline."""


Part: TypeAlias = "Text | Value"


@record
class ScriptWord:
    """A word with its parts, and its first and last place in the line."""

    parts: tuple[Part, ...]
    start: int
    end: int
    is_plain: bool
    """Whether the word is written without quotes and escapes."""

    @property
    def is_literal(self) -> bool:
        """Whether bash computes nothing of it; it may be a glob."""
        return all(isinstance(part, Text) for part in self.parts)

    @property
    def text(self) -> str:
        """The text, with nothing for computed parts."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def beginning(self) -> str:
        """The literal text before the first part that bash computes."""
        found = ""
        for part in self.parts:
            if not isinstance(part, Text):
                break
            found += part.text
        return found

    @property
    def is_pattern(self) -> bool:
        """Whether it holds a glob character outside quotes."""
        bare = (
            part.text if isinstance(part, Text) else part.name if part.kind == "braces" else ""
            for part in self.parts
            if not part.is_quoted
        )
        return any(set(text) & set("*?[") for text in bare)

    @property
    def is_single(self) -> bool:
        """Whether it is one word for every value: all computed parts are quoted, and it is no glob."""
        return not self.is_pattern and all(
            isinstance(part, Text)
            or (part.is_quoted and part.kind != "list")
            or part.kind in ("status", "length", "sum")
            for part in self.parts
        )


@record
class ScriptCommand:
    """A simple command: its words, and the files from which it reads by ``<``."""

    words: tuple[ScriptWord, ...]
    reads: tuple[ScriptWord, ...] = ()
    time_at: int | None = None
    """The place of the word ``time`` before it."""
    is_mixed: bool = False
    """Whether its errors go where its output goes."""


@record
class Assignment:
    """A variable that the line sets, and the words that it may hold; None if they come from an input."""

    name: str
    words: tuple[ScriptWord, ...] | None
    before: str = ""
    """The command for which alone it is set."""


@record
class Comparison:
    """A part of ``[[ ... ]]``: an operator and its operands."""

    operator: str
    operands: tuple[ScriptWord, ...]


@record
class Script:
    """Everything that a line does, in the order of its text."""

    commands: tuple[ScriptCommand, ...]
    bindings: tuple[Assignment, ...]
    comparisons: tuple[Comparison, ...]
    sums: tuple[str, ...]
    """The names of variables that bash evaluates as arithmetic."""
    summed: tuple[str, ...]
    """The names of variables that an arithmetic expression sets."""
    counts: tuple[Value, ...]
    """The substitutions in arithmetic expressions."""
    words: tuple[ScriptWord, ...]
    """Words outside commands that may name files: the lists of loops, here-strings."""
    reads: tuple[ScriptWord, ...]
    """The files from which loops and groups read by ``<``."""
    is_simple: bool
    """Whether it has nothing but simple commands without assignments, and ``if``."""
