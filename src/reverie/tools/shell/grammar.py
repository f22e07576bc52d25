"""The commands of a line of shell, and everything in a line that looks like one by the grammar of tree-sitter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from ...values import record

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_WORDS: Final = frozenset({"word", "number", "raw_string", "string", "concatenation", "test_operator"})
_NOT_WORDS: Final = frozenset({"variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect"})


@record
class Word:
    """One word of a command without its quotes; ``prefix`` is the part before its first glob character.

    ``is_pattern`` says that the shell would expand the word as a glob.
    """

    text: str
    prefix: str
    is_pattern: bool = False
    is_plain: bool = True
    """Whether the word is written without quotes and escapes."""


@record
class Command:
    """A simple command: its words, and the files from which its redirections (``<``) read."""

    words: tuple[Word, ...]
    reads: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """The texts of the words, with globs not expanded."""
        return tuple(word.text for word in self.words)


@record
class Line:
    """A line of shell: its simple commands in order, joined by pipes, ``&&``, ``||`` or ``;``."""

    commands: tuple[Command, ...]
    is_chained: bool = False
    """Whether ``&&`` joins all commands, so that each one runs only after the one before it succeeded."""


def unquoted(raw: str) -> str:
    """Return a word without its quotes and backslashes; variables and commands in it are not expanded."""
    pieces = re.findall(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|[^'\"\\]+|['\"\\]", raw, re.DOTALL)
    out: list[str] = []
    for piece in pieces:
        if len(piece) > 1 and piece[0] == "'":
            out.append(piece[1:-1])
        elif len(piece) > 1 and piece[0] == '"':
            out.append(re.sub(r'\\([\\"$`])', r"\1", piece[1:-1]))
        else:
            out.append(piece[1:] if piece[0] == "\\" and len(piece) > 1 else piece)
    return "".join(out)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def tree_of(text: str) -> Node:
    """Return the root of tree-sitter's tree of a line."""
    return _parser().parse(text.encode()).root_node


def loose_commands(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of everything in a line that looks like a command, nested or in damaged syntax too.

    Use this only to find forbidden commands, never to allow one.
    """
    for node in _nodes(text):
        if node.type == "command":
            words = [unquoted(_text(child)) for child in node.named_children if child.type not in _NOT_WORDS]
            if words:
                yield tuple(words)


def has_hidden_words(text: str, count: int, wrappers: frozenset[str]) -> bool:
    """Return whether bash computes one of the first ``count`` words of a command, or any word of a wrapper.

    Variables, substitutions, escapes by number, globs and braces are computed; damaged syntax counts too.
    """
    for node in _nodes(text):
        if node.type == "command":
            words = [child for child in node.named_children if child.type not in _NOT_WORDS]
            name = unquoted(_text(words[0])).rsplit("/", 1)[-1] if words else ""
            if any(map(_is_computed, words if name in wrappers else words[:count])):
                return True
        elif node.is_error or node.is_missing:
            return True
    return False


def _is_computed(node: Node) -> bool:
    if node.type in ("raw_string", "string_content"):
        return False
    if node.type not in _WORDS and node.type not in ("command_name", '"'):
        return True
    if node.type == "word" and re.search(r"(?<!\\)[*?\[{]", _text(node)):
        return True
    return any(map(_is_computed, node.children))


def loose_words(text: str) -> Iterator[str]:
    """Yield every word of a line: arguments, redirections, assignments, words inside quotes.

    Use this only to find forbidden files, never to allow one.
    """
    for node in _nodes(text):
        if node.type in _WORDS or node.type == "ansi_c_string":
            yield unquoted(_text(node))
    for inner in loose_texts(text):
        yield from inner.split()


def loose_texts(text: str) -> Iterator[str]:
    """Yield every quoted text and here-document of a line; use this only to find something forbidden."""
    for node in _nodes(text):
        if node.type in ("string", "raw_string", "heredoc_body"):
            yield unquoted(_text(node)) if node.type != "heredoc_body" else _text(node)


def _nodes(text: str) -> Iterator[Node]:
    left = [_parser().parse(text.encode("utf-8", "replace")).root_node]
    while left:
        node = left.pop()
        yield node
        left.extend(node.children)


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")
