"""Compare the commands that ``parser.py`` found with those of tree-sitter's grammar, by their places in the line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..grammar import tree_of
from ..read_only.options import words_of
from .words import Script, ScriptCommand

if TYPE_CHECKING:
    from tree_sitter import Node

# Nodes of a known meaning; any other kind is refused.
_KNOWN: Final = words_of(
    "program list pipeline redirected_statement if_statement elif_clause else_clause for_statement "
    "c_style_for_statement while_statement do_group case_statement case_item subshell compound_statement "
    "negated_command command command_name test_command variable_assignment variable_assignments array "
    "word number string string_content raw_string ansi_c_string concatenation extglob_pattern regex test_operator "
    "simple_expansion expansion variable_name special_variable_name subscript command_substitution "
    "process_substitution arithmetic_expansion brace_expression unary_expression binary_expression "
    "postfix_expression ternary_expression parenthesized_expression file_redirect file_descriptor herestring_redirect "
    "heredoc_redirect heredoc_start heredoc_body heredoc_end heredoc_content comment"
)
_NOT_WORDS: Final = words_of("variable_assignment file_redirect herestring_redirect heredoc_redirect comment")


def disagreement(text: str, script: Script) -> str:
    """Return a problem, or '' if tree-sitter sees the same commands with the same words at the same places."""
    root = tree_of(text)
    if root.has_error:
        return "it is not complete shell syntax"
    try:
        seen = sorted(_spans(root))
    except ValueError as problem:
        return str(problem)
    places = [len(text[:at].encode()) for at in range(len(text) + 1)] if not text.isascii() else range(len(text) + 1)
    own = sorted(
        (*_time_span(command, places), *((places[word.start], places[word.end]) for word in command.words))
        for command in script.commands
        if command.words and command.words[0].text not in ("[", "test")
    )
    return "" if own == seen else "two parsers of the line do not agree on its commands"


def _time_span(command: ScriptCommand, places: Sequence[int]) -> list[tuple[int, int]]:
    at = command.time_at
    return [] if at is None else [(places[at], places[at + 4])]


def _spans(root: Node) -> list[tuple[tuple[int, int], ...]]:
    found: list[tuple[tuple[int, int], ...]] = []
    strays: dict[int, list[Node]] = {}
    left = [root]
    while left:
        node = left.pop()
        if node.is_missing or node.is_error or (node.is_named and node.type not in _KNOWN):
            raise ValueError(f"it holds a {node.type.replace('_', ' ')}")
        if node.type in ("command", "redirected_statement"):
            redirections = [child for child in node.children if child.type == "file_redirect"]
            strays.setdefault(_last_command(node).id, []).extend(word for each in redirections for word in _after(each))
        if node.type == "command":
            words = [child for child in node.children if child.type not in _NOT_WORDS]
            spans = sorted((word.start_byte, word.end_byte) for word in [*words, *strays[node.id]])
            if spans and node.text and node.text.split()[0] != b"test":
                found.append(tuple(spans))
        left.extend(node.children)
    return found


def _last_command(node: Node) -> Node:
    """Return the command whose words the grammar may put into a redirection behind a list or a pipeline."""
    parts = [child for child in node.named_children if child.type not in _NOT_WORDS]
    return _last_command(parts[-1]) if parts and node.type in ("redirected_statement", "list", "pipeline") else node


def _after(redirection: Node) -> list[Node]:
    """Return the words of a command that the grammar puts into its redirection."""
    words = [child for child in redirection.named_children if child.type != "file_descriptor"]
    return words[1:]
