"""Detect secrets by the formats of vendors and by the places in which a text names a secret.

Nothing here ever returns, logs or raises the value itself: a finding states the kind and the position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from ...errors import InputError
from ...values import record
from .secret_forms import of_forms
from .secret_values import FORMATS, is_issued, is_name, is_placeholder


@record
class SecretFinding:
    """The kind and position of a secret, never its value."""

    rule: str
    line: int
    column: int
    length: int


_CLASSES: Final = {
    "@U": "@H{8}-@H{4}-@H{4}-@H{4}-@H{12}",
    "@A": "[A-Za-z0-9]", "@H": "[a-f0-9]", "@W": "[A-Za-z0-9_-]", "@B": "[A-Za-z0-9+/]",
    "@R": "(?=[A-Za-z]*[0-9]|(?:[a-z]*[A-Z]){7})",
}  # fmt: skip
_END: Final = "(?![A-Za-z0-9])"
_AFTER_FIRST: Final = r"(?:(?<![A-Za-z0-9_+-].)|(?<=\\[nrt].)|(?<=%[0-9A-Fa-f]{2}.)|(?<=[0-9]m.))"
"""The condition behind the first character of a token: it begins a word, or follows an escape; a checksum or another
long text in base64 spells every short prefix now and then."""
_MIN_CHARS: Final = 16
"""The fewest characters of a token."""
_LONG_WORD: Final = re.compile(rf"(?<!\S)\S{{{_MIN_CHARS},}}")
_PARTS: Final = re.compile("[A-Za-z0-9]+")
_NO_WORD: Final = re.compile("[0-9A-Z]")
_BASE64_LINES: Final = re.compile(r"\n[A-Za-z0-9+/]{48,128}\r?\n[A-Za-z0-9+/]{48,128}={0,2}\s")
"""Lines of a file in base64, one of which may begin like a token."""
_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff\U000e0000-\U000e0fff]")
_STATED: Final = re.compile(
    r"(?:(?<![\w.-])(?:passwor[dt]|passphrase|contraseña|senha|пароль|mot de passe|pwd?)|密码\w{0,3})"
    r"(?:[ \t]+[\w-]+){0,5}?[ \t]*(?:(?:[:=：]|[ \t](?:is|ist|es|est|è|é)[ \t])[ \t]*[\"'`]?(?=[^\s\d]*\d)"
    r"|[ \t][\"'`]?(?=[^\W\d]+\d+[!?$%&*+]))"
    r"(?P<value>[^\s\"'`()/]{6,64})[\"'`.!]*[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
"""A line of prose that ends with a password: a weak one is refused too, which would raise alarms in program text.

Without a colon or a verb before it, a password is letters, digits and a sign ("Sommer2024!")."""


def find_secrets(text: str) -> list[SecretFinding]:
    """Return the kind and position of each secret in a text, in order; positions ignore invisible characters."""
    text = _INVISIBLE.sub("", text)
    findings: list[SecretFinding] = []
    line, counted = 1, 0
    for start, end, name in secret_spans(text):
        line += text.count("\n", counted, start)
        counted = start
        findings.append(SecretFinding(name, line, start - text.rfind("\n", 0, start), end - start))
    return findings


def without_secrets(text: str) -> str:
    """Return a text in which a note of its kind replaces each secret; a text without secrets is unchanged."""
    visible = _INVISIBLE.sub("", text)
    parts: list[str] = []
    reached = 0
    for start, end, name in secret_spans(visible):
        parts += [visible[reached:start], f"[{name} left out]"]
        reached = end
    return "".join([*parts, visible[reached:]]) if parts else text


def secret_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and kind of each secret, in order and without overlap."""
    reached = -1
    for start, end, name in sorted([*_of_formats(text), *of_forms(text)], key=lambda span: (span[0], -span[1])):
        if start >= reached:
            reached = end
            yield start, end, name


def refuse_secrets(text: str, what: str) -> None:
    """Raise ``InputError`` if a text, called ``what``, contains a secret; the error never states its value."""
    visible = _INVISIBLE.sub("", text)
    stated = [found for found in _STATED.finditer(visible) if not is_placeholder(found["value"])]
    findings = find_secrets(visible) or [
        SecretFinding("password", visible.count("\n", 0, found.start()) + 1, 1, len(found["value"])) for found in stated
    ]
    if findings:
        first = findings[0]
        more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
        raise InputError(
            f"{what} was not saved: line {first.line} looks like a secret ({first.rule}){more}. Memories are shown to "
            "models and may be shared; keep the secret in a key store and remember where it is"
        )


def _of_formats(text: str) -> Iterator[tuple[int, int, str]]:
    # Most words are too short for a token, so they are removed before the search.
    long = "\n".join(word for word in text.split() if len(word) >= _MIN_CHARS)
    if _prefixes().search(long):
        for word in _LONG_WORD.finditer(text):
            for hit in _prefixes().finditer(text, *word.span()):
                found = next(filter(None, (_token(text, hit.start(), *rule) for rule in _rules_of(hit[0]))), None)
                if found:
                    yield found
    for name, needle, before, after in FORMATS["infixes"]:
        if needle in long:
            yield from _around(text, name, needle, *_infix(needle, before, after))
    for name, shape in _long_shapes():
        if shape.search(long):
            yield from ((*found.span(), name) for found in shape.finditer(text) if is_issued(found[0]))


def _token(text: str, start: int, name: str, prefix: str, shape: re.Pattern[str]) -> tuple[int, int, str] | None:
    found = shape.match(text, start)
    rest = found[0][len(prefix) :] if found else ""
    if found is None or is_placeholder(found[0]) or not _NO_WORD.search(rest) or _consists_of_words(rest):
        return None
    if prefix.isalnum() and text[start - 1 : start] == "/":
        return None  # a part of a path, or of a long text in base64
    if _BASE64_LINES.match(text, start - 1) and text[start - 1 : start] == "\n":
        return None
    return start, found.end(), name


def _consists_of_words(rest: str) -> bool:
    """Say whether hyphens separate words as short as those of a file's name, or capitals those of a function's."""
    parts = _PARTS.findall(rest)
    if len(parts) > len(rest) / 4:
        return True
    return not rest.isupper() and (len(parts) > max(7, len(rest) / 7) or (len(parts) == 1 and is_name(rest)))


def _around(text: str, name: str, needle: str, widths: range, shape: re.Pattern[str]) -> Iterator[tuple[int, int, str]]:
    at = text.find(needle)
    while at >= 0:
        found = next(filter(None, (shape.match(text, at - width) for width in widths if width <= at)), None)
        if found and not is_placeholder(found[0]):
            yield *found.span(), name
        at = text.find(needle, max(at + len(needle), found.end() if found else 0))


def _compiled(pattern: str) -> re.Pattern[str]:
    for name, characters in _CLASSES.items():
        pattern = pattern.replace(name, characters)
    return re.compile(pattern, re.ASCII)


@cache
def _prefixes() -> re.Pattern[str]:
    """Return the automaton that finds the prefix of every format at the start of a word."""
    tree: dict[str, Any] = {}
    for _, prefixes, _ in FORMATS["prefixes"]:
        for prefix in prefixes.split():
            node = tree
            for letter in prefix:
                node = node.setdefault(letter, {})
            node[""] = {}
    starts = (re.escape(letter) + _AFTER_FIRST + _branches(node) for letter, node in tree.items())
    return re.compile("|".join(starts))


def _branches(node: dict[str, Any]) -> str:
    parts = [re.escape(letter) + _branches(child) for letter, child in node.items() if letter]
    if not parts:
        return ""
    return f"(?:{'|'.join(parts)}){'?' if '' in node else ''}"


@cache
def _rules_of(prefix: str) -> list[tuple[str, str, re.Pattern[str]]]:
    """Return the rules whose prefix this one starts with, the longest first."""
    own = ((name, each, rest) for name, prefixes, rest in FORMATS["prefixes"] for each in prefixes.split())
    fitting: Iterable[tuple[str, str, str]] = (row for row in own if prefix.startswith(row[1]))
    return [
        (name, each, _compiled(re.escape(each) + f"(?:{rest}){_END}"))
        for name, each, rest in sorted(fitting, key=lambda row: -len(row[1]))
    ]


@cache
def _infix(needle: str, before: str, after: str) -> tuple[range, re.Pattern[str]]:
    """Return the possible numbers of characters before the fixed part, and the pattern of the whole token."""
    counts = [int(count) for count in re.findall(r"\d+", before.partition("{")[2])] or [0]
    begin = "(?<![A-Za-z0-9])" if before else ""
    end = "" if after.endswith("=") else _END
    return range(counts[0], counts[-1] + 1), _compiled(f"{begin}{before}{re.escape(needle)}(?:{after}){end}")


@cache
def _long_shapes() -> list[tuple[str, re.Pattern[str]]]:
    return [
        (name, _compiled(rf"{first}(?<![\w.-].)(?:{rest})(?![\w-])")) for name, first, rest in FORMATS["long_shapes"]
    ]
