"""Find a text that every match of a pattern contains, so that most files can be skipped."""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ =:;,<>/\"'%&@#!~`-")
_ESCAPED_PLAIN: Final = frozenset(".()[]{}+*?^$|\\/-\"' =:;,<>%&@#!~`_")
# Letters that equal letters outside ASCII when Python ignores case.
_MANY_CASES: Final = frozenset("iIkKsS")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_REPEATS: Final = re.compile(r"[*?]|\{\d*,?\d*\}")
_ESCAPE: Final = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|N\{[^}]*\}|.)", re.DOTALL)


def required_literal(pattern: str, ignore_case: bool) -> str:
    """Return a plain ASCII text that every match of the pattern contains; an empty text if none is certain."""
    if "|" in pattern or "(?" in pattern:
        return ""  # a choice, flag or lookaround makes the required text uncertain
    runs = [""]
    at = depth = 0
    while at < len(pattern):
        token, plain = _next(pattern, at)
        at += len(token)
        depth += (token == "(") - (token == ")")
        repeated = _REPEATS.match(pattern, at)
        if plain and depth == 0 and not repeated and not (ignore_case and plain in _MANY_CASES):
            runs[-1] += plain
            if pattern[at : at + 1] == "+":  # it may repeat before the next character
                runs.append("")
        else:
            runs.append("")
    return max(runs, key=len)


def _next(pattern: str, at: int) -> tuple[str, str]:
    """Return the pattern's token at ``at``, and the one character it matches (empty if it may match others)."""
    letter = pattern[at]
    if letter == "[":
        found = _CLASS.match(pattern, at)
        return (found[0] if found else pattern[at:]), ""
    if letter == "\\":
        found = _ESCAPE.match(pattern, at)
        token = found[0] if found else pattern[at:]
        return token, token[1] if len(token) == 2 and token[1] in _ESCAPED_PLAIN else ""
    repeats = _REPEATS.match(pattern, at)
    if repeats:
        return repeats[0], ""
    return letter, letter if letter in _PLAIN else ""
