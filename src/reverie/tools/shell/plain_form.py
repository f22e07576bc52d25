"""Rewrite a few constructs of the shell into simple commands that read and run the same.

Only the judgement of a line uses the result, never its execution. Loops over words are unrolled; commands in
substitutions and subshells come before the command that uses them; braces are expanded. A line with anything that is
not understood here is returned as it is, and is then unclear to ``grammar``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_QUOTED: Final = re.compile(r"'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\"|\\.")
_MARKS: Final = re.compile("[\ue000-\uf8ff]")
_NEVER: Final = re.compile(r"['\"\\#`]|<<|>\(|\$[\ue000-\uf8ff]")
"""Open quotes; comments, here-documents and the like, in which quotes have another meaning."""
_FIRST_MARK: Final = 0xE000
_WORD: Final = r"[\w./:=@%+,*?-]"
_PLACEHOLDER: Final = "_"
_START: Final = r"(?P<start>(?:\A|[;|\n(]|&&|(?<=[ \n;])(?:do|then|else|if|elif)(?= )) *)"
_SUBSHELL: Final = re.compile(_START + r"\((?P<inner>[^()$<>]+)\)(?= *(?:\Z|[;|\n]|&&))")
_INPUT: Final = re.compile(_START + r"(?P<before>[^;|&()\n]*?)<\((?P<inner>[^()$<>]+)\)")
_STATUS: Final = re.compile(r"\$\?|\$\(\([0-9 +*%/-]+\)\)")
_TEST: Final = re.compile(r"\[\[ (-[edfrsw] [^\s\[\]()<>&|$]+) \]\]")
_MARK_OF_XARGS: Final = re.compile(r"(?<= xargs )-I\{\}(?= )")
_KEPT: Final = re.compile(_START + r"(?P<name>[a-z][a-z0-9]{0,11})=\$\((?P<inner>[^()$>]+)\)(?= *(?:;|\n|&&))")
_TIMEOUT: Final = re.compile(_START + r"timeout \d+[smh]? (?=[a-z])")
_BRACES: Final = re.compile(
    rf"(?<![^\s])(?P<head>{_WORD}*)\{{(?P<items>{_WORD}*,{_WORD}*)\}}(?P<tail>{_WORD}*)(?![^\s;|&])"
)
_LOOP: Final = re.compile(
    r"(?:\A|(?<=[;\n&] )|(?<=\n))for (?P<name>[a-z][a-z0-9]{0,11}) in (?P<words>[^;\n()$<>&|{}]+?) ?[;\n] *do[ \n]"
    r"(?P<body>(?:(?!\bdone\b|\bfor\b|\bdo\b).)*?)[;\n] *done(?= *(?:\Z|[;|\n]|&&))",
    re.DOTALL,
)
_IN_TEXT: Final = re.compile(r"(?<!\\)\$\((?P<inner>[^()\"'\\$`!]+)\)")
_PRINTS: Final = re.compile(r"(?:\A|[;|\n]|&&|(?<=[ \n;])(?:do|then|else) ) *(?P<command>(?:echo|printf) [^;|&\n]*)\Z")
_MAX_ROUNDS: Final = 40
_MAX_CHARS: Final = 16_384


def plain_form(text: str) -> str:
    """Return a line in which loops, substitutions, subshells and braces are written as simple commands."""
    if not re.search(r"[({$]|\[\[|\btimeout ", text) or _MARKS.search(text):
        return text
    quoted: list[str] = []

    def mark(piece: str) -> str:
        quoted.append(piece)
        return chr(_FIRST_MARK + len(quoted) - 1)

    shown = _QUOTED.sub(lambda found: mark(found[0]), text)
    if _NEVER.search(shown) or len(quoted) > 1_000:
        return text
    shown = _LOOP.sub(lambda found: _unrolled(found, quoted, mark), shown)
    shown = _STATUS.sub("0", shown)
    names = {found["name"] for found in _KEPT.finditer(shown)}
    shown = _KEPT.sub(lambda found: f"{found['start']}{found['inner']}", shown)
    for pattern, change in _CHANGES:
        shown = _until_stable(pattern, change, shown)
    shown = _printed(shown, quoted, names)
    if len(shown) > _MAX_CHARS:
        return text
    return _MARKS.sub(lambda found: quoted[ord(found[0]) - _FIRST_MARK], shown)


def _until_stable(pattern: re.Pattern[str], change: Callable[[re.Match[str]], str], text: str) -> str:
    for _ in range(_MAX_ROUNDS):
        changed = pattern.sub(change, text, count=1)
        if changed == text:
            break
        text = changed
    return text


def _expanded(found: re.Match[str]) -> str:
    return " ".join(f"{found['head']}{item}{found['tail']}" for item in found["items"].split(","))


_CHANGES: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (_TEST, lambda found: f"[ {found[1]} ]"),
    (_BRACES, _expanded),
    # The directory after a subshell is one of those that grammar's readers try after any cd.
    (_SUBSHELL, lambda found: f"{found['start']}{found['inner']}"),
    (_INPUT, lambda found: f"{found['start']}{found['inner']} ; {found['before']}{_PLACEHOLDER}"),
    (_MARK_OF_XARGS, lambda _: "-I {}"),
    (_TIMEOUT, lambda found: found["start"]),
)


def _unrolled(found: re.Match[str], quoted: list[str], mark: Callable[[str], str]) -> str:
    """Return the body of a loop once for each of its words; a pattern may expand to many."""
    if re.search(r"\bcd\b", found["body"]):
        return found[0]
    variable = re.compile(rf"\$(?:{found['name']}\b|\{{{found['name']}\}})")
    whole = re.compile(rf"(?<![^\s]){variable.pattern}(?![^\s;|])")
    bodies: list[str] = []
    for word in found["words"].split(" "):
        if not word:
            continue

        def with_word(piece: re.Match[str], word: str = word) -> str:
            text = quoted[ord(piece[0]) - _FIRST_MARK]
            if text[0] != '"' or not variable.search(text):
                return piece[0]
            if variable.fullmatch(text[1:-1]):
                return word
            return mark(variable.sub(_PLACEHOLDER, text)) if _PRINTS.search(piece.string[: piece.start()]) else piece[0]

        body = _MARKS.sub(with_word, found["body"])
        bodies.append(whole.sub(word, body))
    return " ; ".join(bodies)


def _printed(shown: str, quoted: list[str], names: set[str]) -> str:
    """Put commands inside printed texts before the command that prints their output; leave out the kept outputs."""
    variables = [re.compile(rf"(?<!\\)\$(?:{name}\b|\{{{name}\}})") for name in names]
    for at in range(len(quoted)):
        place = shown.find(chr(_FIRST_MARK + at))
        before = _PRINTS.search(shown[:place])
        if place < 0 or before is None or quoted[at][0] != '"':
            continue
        inner = "".join(f"{found} ; " for found in _IN_TEXT.findall(quoted[at]))
        shown = f"{shown[: before.start('command')]}{inner}{shown[before.start('command') :]}"
        quoted[at] = _IN_TEXT.sub(_PLACEHOLDER, quoted[at])
        for variable in variables:
            quoted[at] = variable.sub(_PLACEHOLDER, quoted[at])
    return shown
