"""Commands that no rule names, in one line with commands that rules allow.

Such a line runs outside the sandbox, so nothing but the words of a command limits its reads there: it may not search
directories, read outside, or run git for a rule that is about another program; and it may neither change the directory
of a command that a person saw whole nor give it an input.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from ...tools.files.readable import ReadScope, absolute_path
from ...tools.shell.computed import parse
from ...tools.shell.grammar import Command, Line
from ...tools.shell.read_only.options import words_of
from ...tools.shell.read_words import outside_problem
from .rules import PermissionRule

# They open files that no word names; git runs programs that a repository names.
_SEARCHERS: Final = words_of("diff find git rg xargs")
_RECURSIVE: Final = re.compile(r"-[a-zA-Z0-9]*[rRd]|--(?:recursive|dereference-recursive|directories)")
_MOVES: Final = "cd"
_PIPE: Final = re.compile(r"(?<!\|)\|(?!\|)")
_QUOTED: Final = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)


def may_join(text: str, line: Line, by: Sequence[PermissionRule | None], scope: ReadScope, *, is_walled: bool) -> bool:
    """Return whether commands that no rule names may stand beside those that the rules of ``by`` allow.

    ``by`` holds a rule or None for each command of a text; ``is_walled`` says that the sandbox limits its reads.
    """
    pairs = list(zip(by, line.commands, strict=True))
    moves = [command for command in line.commands if command.words[0].text == _MOVES]
    is_seen_whole = any(rule and _is_seen_whole(rule) and command not in moves for rule, command in pairs)
    if is_seen_whole and not all(_stays(move, scope) for move in moves):
        return False
    if any(rule and _is_seen_whole(rule) for rule in by[_count_before_pipe(text, line) :]):
        return False
    others = [command for rule, command in pairs if rule is None]
    if is_walled or not others:
        return True
    has_git_rule = any(rule and command.words[0].text == "git" for rule, command in pairs)
    if any(_searches(command) and not (has_git_rule and command.words[0].text == "git") for command in others):
        return False
    return not outside_problem(Line(tuple(one for one in line.commands if one in others or one in moves)), scope)


def _is_seen_whole(rule: PermissionRule) -> bool:
    return rule.pattern is not None and not rule.pattern.endswith(":*")


def _count_before_pipe(text: str, line: Line) -> int:
    """Return how many commands of a line surely get no input from a pipe."""
    if _PIPE.search(_QUOTED.sub("", text)) is None:
        return len(line.commands)
    before = (parse(text[: found.start()]) for found in _PIPE.finditer(text))
    return next((len(part.commands) for part in before if part is not None), 0)


def _stays(move: Command, scope: ReadScope) -> bool:
    """Return whether a ``cd`` leads to the working directory itself, whatever CDPATH is."""
    texts = [word.text for word in move.words[1:] if not word.is_pattern]
    if len(move.words) != 2 or len(texts) != 1 or not (texts[0] == "." or texts[0].startswith(("/", "~/"))):
        return False
    here = {os.path.normpath(scope.cwd), os.path.realpath(scope.cwd)}
    return absolute_path(texts[0], cwd=scope.cwd, home=scope.home) in here


def _searches(command: Command) -> bool:
    name, *words = command.argv
    return name in _SEARCHERS or (name.endswith("grep") and any(map(_RECURSIVE.match, words)))
