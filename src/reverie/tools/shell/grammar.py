"""Parse a line of shell into the simple commands it would run; a line that is not fully understood is unclear.

Two parsers must agree: a small lexer that knows only the harmless part of the language, and the grammar of tree-sitter.
If a trick fools one of them, the other one sees a different list of words, and the line is unclear.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from ...values import record

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_CHARS: Final = 4_096
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@%+,-^~")
_GLOB: Final = frozenset("*?[]")
# Characters that may follow a backslash outside quotes: punctuation, never a blank, newline, letter or quote.
_ESCAPABLE: Final = frozenset("()[]{}.*?+^|;!<>&#$/=,:-")
_PATTERN: Final = re.compile(r"[*?]|\[.*\]")
_AT_BRACES: Final = re.compile(r"(?<=@)\{[A-Za-z0-9]+\}")
# The mark of find and xargs for a path, as a word of its own.
_WHOLE: Final = re.compile(r"(?<![^ ])\{\}(?=[ ;|\n]|&&|\Z)")
_OPERATORS: Final = ("&&", "||", "|", ";")
_REDIRECTIONS: Final = re.compile(r"(?:[12]?>&[12]|(?:&|[12])?>{1,2} ?/dev/null)(?=[ ;|\n]|&&|$)")
_INPUT: Final = re.compile(r"< ?([A-Za-z0-9_.][A-Za-z0-9_./+,@%-]*)(?=[ ;|\n]|&&|$)")
# Blanks, a line that goes on, and a comment.
_NOTHING: Final = re.compile(r" +|\\\n|#[^\n]*")
_WORDS: Final = frozenset({"word", "number", "raw_string", "string", "concatenation", "test_operator"})
_TRANSPARENT: Final = frozenset(
    {"program", "list", "pipeline", "redirected_statement", "if_statement", "elif_clause", "else_clause"}
)
_CONDITIONS: Final = frozenset({"if", "then", "elif", "else", "fi"})
_RESERVED: Final = frozenset(
    {
        "!",
        "[[",
        "]]",
        "case",
        "coproc",
        "do",
        "done",
        "esac",
        "for",
        "function",
        "in",
        "select",
        "time",
        "until",
        "while",
    }
)
_NOT_WORDS: Final = frozenset({"variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect"})
_CONNECTORS: Final = frozenset({"&&", "||", "|", ";", "\n", "comment"}) | _CONDITIONS


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


@record
class UnclearLine:
    """A line of shell that cannot be parsed with certainty, and the reason."""

    reason: str


ParsedLine: TypeAlias = "Line | UnclearLine"


def parse(text: str) -> ParsedLine:
    """Return the simple commands of a line of shell, or an ``UnclearLine`` if any part is not fully understood."""
    try:
        refuse_characters(text)
        lexer = _Lexer(text)
        commands = lexer.commands()
        seen = _by_grammar(text)
    except ValueError as problem:
        return UnclearLine(str(problem))
    if [command.argv for command in commands] != seen:
        return UnclearLine("two parsers of the line do not agree on its words")
    return Line(tuple(commands), lexer.operators <= {"&&"})


def refuse_characters(text: str) -> None:
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


class _Lexer:
    """The first parser: reads a line character by character and raises ``ValueError`` at an unknown construct."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.operators: set[str] = set()

    def commands(self) -> list[Command]:
        found: list[Command] = []
        words: list[Word] = []
        reads: list[str] = []
        open_operator = ""
        while self._at < len(self._text):
            if nothing := _NOTHING.match(self._text, self._at):
                self._at = nothing.end()
            elif self._text[self._at] == "\n":
                self._at += 1
                if words:  # otherwise the line is empty, or goes on after an operator
                    found.append(self._command(words, reads, "the end of the line"))
                    words, reads, open_operator = [], [], ";"
                    self.operators.add("\n")
            elif operator := next((each for each in _OPERATORS if self._text.startswith(each, self._at)), ""):
                found.append(self._command(words, reads, operator))
                words, reads, open_operator = [], [], operator
                self.operators.add(operator)
                self._at += len(operator)
            elif (redirection := _REDIRECTIONS.match(self._text, self._at)) and words:
                self._at = redirection.end()
            elif (given := _INPUT.match(self._text, self._at)) and words:
                reads.append(given[1])
                self._at = given.end()
            else:
                words.append(self._word())
                if len(words) == 1 and words[0].is_plain and words[0].text in _CONDITIONS:
                    words = []
        if words or open_operator not in ("", ";") or reads:
            found.append(self._command(words, reads, "the end"))
        return found

    def _command(self, words: list[Word], reads: list[str], before: str) -> Command:
        if not words:
            raise ValueError(f"there is no command before {before!r}")
        if words[0].is_plain and words[0].text in _RESERVED:
            raise ValueError(f"{words[0].text} is a word of the shell's own language")
        return Command(tuple(words), tuple(reads))

    def _word(self) -> Word:
        start = self._at
        out: list[str] = []
        bare: list[str] = []  # a quoted or escaped character becomes a blank here, because it is no pattern
        is_plain = True
        while self._at < len(self._text) and (letter := self._text[self._at]) not in " ;|\n":
            if letter == "&" and self._text.startswith("&&", self._at):
                break
            if letter in "<>":
                raise ValueError("it redirects in a way other than to /dev/null, between outputs, or from a plain file")
            if letter in "'\"":
                is_plain = False
                out.append(self._quoted(letter))
            elif letter == "\\":
                is_plain = False
                out.append(self._escaped())
            elif braces := _AT_BRACES.match(self._text, self._at) or _WHOLE.match(self._text, self._at):
                out.append(braces[0])
                self._at = braces.end()
            elif letter in _PLAIN or letter in _GLOB or (letter == "!" and self._is_alone()):
                out.append(letter)
                self._at += 1
            else:
                raise ValueError(f"it holds {letter!r} outside quotes")
            bare.append(letter if letter in _GLOB else " " * len(out[-1]))
        text = "".join(out)
        if self._text[start] == "~" and text != "~" and not text.startswith("~/"):
            raise ValueError("it names another user's home or a directory of the shell's memory")
        pattern = _PATTERN.search("".join(bare))
        return Word(text, text[: pattern.start()] if pattern else text, pattern is not None, is_plain)

    def _is_alone(self) -> bool:
        return self._text[self._at - 1 : self._at + 2] == " ! "

    def _quoted(self, mark: str) -> str:
        end = self._at + 1
        while end < len(self._text) and self._text[end] != mark:
            end += 2 if mark == '"' and self._text[end] == "\\" else 1
        if end >= len(self._text):
            raise ValueError("a quote is not closed")
        inside = self._text[self._at + 1 : end]
        if "\n" in inside:
            raise ValueError("a quoted text goes over several lines")
        self._at = end + 1
        return inside if mark == "'" else _double_quoted(inside)

    def _escaped(self) -> str:
        following = self._text[self._at + 1 : self._at + 2]
        if not following or following not in _ESCAPABLE:
            raise ValueError("it escapes a character that needs no escape")
        self._at += 2
        return following


def _double_quoted(inside: str) -> str:
    """Return the text between double quotes as bash reads it; raise if it holds ``$``, ``!`` or a backquote."""
    if re.search(r"(?<!\\)(?:\\\\)*(?:\$(?!$)|`|!)", inside) or "`" in inside or "!" in inside:
        raise ValueError("it holds '$', a backquote or '!' inside double quotes")
    return re.sub(r'\\([\\"$])', r"\1", inside)


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


def _by_grammar(text: str) -> list[tuple[str, ...]]:
    """Return the words of each command by tree-sitter's grammar, the second parser; raise if not understood."""
    root = tree_of(text)
    if root.has_error:
        raise ValueError("it is not complete shell syntax")
    return list(_simple_commands(root))


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


def _simple_commands(node: Node) -> Iterator[tuple[str, ...]]:
    match node.type:
        case kind if kind in _TRANSPARENT:
            # The grammar may put words of the command into its redirection.
            stray = [_text(word) for each in node.children if each.type == "file_redirect" for word in _after(each)]
            inner = [each for child in node.children for each in _inside(child)]
            if stray:
                inner[-1] = (*inner[-1], *stray)
            yield from inner
        case "command":
            yield tuple(_argument(child) for child in node.children if child.type != "file_redirect")
        case "test_command":
            yield tuple(_leaves(node))
        case kind:
            raise ValueError(f"it holds a {kind.replace('_', ' ')}")


def _inside(child: Node) -> Iterator[tuple[str, ...]]:
    if child.type in _CONNECTORS or child.type == "file_redirect":
        if child.is_missing:
            raise ValueError("it is not complete shell syntax")
        return
    yield from _simple_commands(child)


def _after(redirection: Node) -> list[Node]:
    words = [child for child in redirection.named_children if child.type in _WORDS]
    return words[1:]


def _argument(node: Node) -> str:
    if node.type == "command_name":
        if len(node.children) != 1:
            raise ValueError("its command name is not one word")
        return _argument(node.children[0])
    if node.type not in _WORDS:
        raise ValueError(f"it holds a {node.type.replace('_', ' ')}")
    for child in node.named_children:
        if node.type == "concatenation":
            _argument(child)
        elif child.type != "string_content":
            raise ValueError(f"it holds a {child.type.replace('_', ' ')}")
    return unquoted(_text(node))


def _leaves(node: Node) -> Iterator[str]:
    if node.type in _WORDS:
        yield _argument(node)
    elif node.child_count == 0:
        yield _text(node)
    else:
        if node.type not in ("test_command", "unary_expression", "binary_expression"):
            raise ValueError(f"it holds a {node.type.replace('_', ' ')}")
        for child in node.children:
            yield from _leaves(child)


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")
