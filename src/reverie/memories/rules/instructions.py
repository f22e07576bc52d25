"""Instruction files that people write for agents, parsed as Markdown.

Pure: find imports, remove comments, and render the files for the first message of a session. ``runtime.instructions``
reads the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from ...values import field, record

Kind: TypeAlias = Literal["user", "project", "local", "rule", "import"]

MAX_BYTES: Final = 4 * 1024 * 1024
"""The largest instruction file that is read; larger ones are skipped."""
WARN_CHARS: Final = 40_000
"""The longest text without a warning; a longer one is still used."""
MAX_HOPS: Final = 4
"""The deepest level of imports."""

_OPENS: Final = re.compile(r"[ \t]*(?:>[ \t]?)*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(`{3,}|~{3,})(.*)")
_CLOSES: Final = re.compile(r"[ \t]*(?:>[ \t]?)*(`{3,}|~{3,})\s*\Z")
_ITEM: Final = re.compile(r"[ ]{0,3}(?:[-*+]|\d{1,9}[.)])[ \t]")
_INDENTED: Final = re.compile(r"(?: {4}|[ ]{0,3}\t)")
_TICKS: Final = re.compile(r"`+")
_COMMENT: Final = re.compile(r"[ ]{0,3}<!--(.*)", re.DOTALL)
_IMPORT: Final = re.compile(r"""(?<![^\s("'\[<*])@((?:\\ |[^\s\\"'<>()\[\]`])+)""")
_TRAILING: Final = ".,;:!?*_"


@record
class InstructionFile:
    """The text of an instruction file as shown to the model, with its path and origin."""

    path: str
    text: str
    kind: Kind
    parent: str = ""
    """The file that imported this one; empty if none did."""


@record
class InstructionSet:
    """The instruction files found, in the order they are shown, and the problems met while reading them."""

    files: list[InstructionFile] = field(default_factory=lambda: [])
    problems: list[str] = field(default_factory=lambda: [])


def fingerprint(text: str) -> str:
    """Return the SHA-256 hash of a text without white space around it, to detect equal instructions."""
    return sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()


# -- Markdown


class _Markdown:
    """The lines of a Markdown text, classified as prose, code or comment; read them once."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)
        # For every line, the next line in which a comment may end: built from the end, so that it is linear.
        self._ends: list[int | None] = [None] * (len(self._lines) + 1)
        for at in range(len(self._lines) - 1, -1, -1):
            self._ends[at] = at if "-->" in self._lines[at] else self._ends[at + 1]
        self._fence: tuple[str, int] | None = None
        self._blank, self._listed, self._indented = True, False, False

    def lines(self) -> Iterator[tuple[str, bool]]:
        """Yield every line outside comments, its line end included, and whether it is code."""
        at, line = 0, self._lines[0] if self._lines else ""
        while at < len(self._lines):
            code = self._is_code(line)
            comment = None if code else self._comment(at, line)
            if comment is None:
                yield line, code
                at += 1
            else:
                at, line = comment
                if line.strip():
                    continue
                at += 1
            line = self._lines[at] if at < len(self._lines) else ""

    def _comment(self, at: int, line: str) -> tuple[int, str] | None:
        """Return the line number at which a comment that starts here ends, and the text after it; else None."""
        begun = _COMMENT.match(line)
        if begun is None:
            return None
        if "-->" in begun[1]:
            return at, begun[1].partition("-->")[2]
        end = self._ends[at + 1]
        return None if end is None else (end, self._lines[end].partition("-->")[2])

    def _is_code(self, line: str) -> bool:
        """Say whether the next line is code (fenced, or indented outside a list); call this line by line."""
        if self._fence is not None:
            closing = _CLOSES.match(line)
            if closing and closing[1][0] == self._fence[0] and len(closing[1]) >= self._fence[1]:
                self._fence = None
            return True
        opening = _OPENS.match(line)
        if opening and not (opening[1][0] == "`" and "`" in opening[2]):
            self._fence = (opening[1][0], len(opening[1]))
            self._blank = self._indented = False
            return True
        if not line.strip():
            self._blank = True
            return self._indented
        if _ITEM.match(line):
            self._listed = True
        elif self._blank and line[0] not in " \t":
            self._listed = False
        may_begin = not self._listed and (self._blank or self._indented)
        self._indented = may_begin and _INDENTED.match(line) is not None
        self._blank = False
        return self._indented


def without_comments(text: str) -> str:
    """Return a text without HTML comments that start a line outside code; an unclosed one stays."""
    return "".join(line for line, _ in _Markdown(text).lines()) if "<!--" in text else text


def imports_of(text: str) -> list[str]:
    """Return the paths in ``@path`` imports outside code and comments, each once, in order."""
    if "@" not in text:
        return []
    prose = "".join("\n" if code else line for line, code in _Markdown(text).lines())
    found: dict[str, None] = {}
    for match in _IMPORT.finditer(_without_spans(prose)):
        path = match[1].replace("\\ ", " ").partition("#")[0].rstrip(_TRAILING)
        if path:
            found[path] = None
    return list(found)


def _without_spans(prose: str) -> str:
    """Return prose with each code span (between equal runs of backticks in a paragraph) replaced by "code"."""
    return "".join(_spanless(part) for part in re.split(r"(\n[ \t]*\n)", prose))


def _spanless(paragraph: str) -> str:
    runs = [(found.start(), found.end()) for found in _TICKS.finditer(paragraph)]
    # For every run, the next one of the same length: built from the end, so that it is linear.
    following: dict[int, int] = {}
    closes: dict[int, int] = {}
    for index in range(len(runs) - 1, -1, -1):
        size = runs[index][1] - runs[index][0]
        if size in following:
            closes[index] = following[size]
        following[size] = index
    out: list[str] = []
    at = index = 0
    while index < len(runs):
        if index not in closes:
            index += 1
            continue
        out.append(paragraph[at : runs[index][0]])
        out.append(" code ")
        at = runs[closes[index]][1]
        index = closes[index] + 1
    out.append(paragraph[at:])
    return "".join(out)


# -- the text shown to the model

_SAID: Final[dict[Kind, str]] = {
    "user": "the user's own, for every project",
    "project": "of the project",
    "local": "the user's own, for this project",
    "rule": "a rule of the project",
    "import": "imported",
}
INTRODUCTION: Final = (
    "Instructions that the user and this project give to agents. Follow them in all you do here; where two of them "
    "disagree, the later one counts, and what the user says in the conversation goes before all of them."
)


def shown_text(file: InstructionFile) -> str:
    """Return an instruction file as text for the model, in a tag that names its path and its author."""
    text = file.text.strip("\n")
    said = f"imported by {file.parent}" if file.parent else _SAID[file.kind]
    path, said = _attribute(file.path), _attribute(said)
    inside = re.sub(r"<(?=/?instructions\b)", "&lt;", text, flags=re.IGNORECASE)
    return f'<instructions path="{path}" from="{said}">\n{inside}\n</instructions>'


def _attribute(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in escaped)
