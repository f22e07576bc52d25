"""Front matter: the fields at the start of a memory file, parsed strictly.

It accepts a subset of YAML: ``key: value`` lines, quoted strings, lists of strings, one level of nesting, comments.
Every value is text, so that ``no`` stays "no" and 007 keeps its zeros. It refuses aliases, anchors, tags, block
scalars, merge keys, and more than 64 KB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import InputError
from ...lazy import pattern
from ...values import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, TypeAlias

LIMIT_BYTES: Final = 65_536

Plain: TypeAlias = str | list[str]
Value: TypeAlias = Plain | dict[str, Plain]

_FENCE: Final = "---"
_BOM: Final = "\ufeff"
_KEY: Final = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_ESCAPE: Final = pattern(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.)|\Z)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", '"': '"', "\\": "\\", "/": "/"}
_DOUBLE: Final = pattern(r'"((?:[^"\\]|\\.)*)"')
_SINGLE: Final = pattern(r"'((?:[^']|'')*)'")
# Characters with another meaning in YAML: refused unless quoted.
_SPECIAL: Final = {
    "&": "an anchor",
    "*": "an alias",
    "!": "a tag",
    "|": "a block scalar",
    ">": "a block scalar",
    "{": "an inline table",
    "}": "an inline table",
    "]": "a list's end",
    "%": "a directive",
    "@": "a reserved character",
    "`": "a reserved character",
}
# Written without quotes only if every YAML parser reads the same text.
_SAFE: Final = pattern(r"[A-Za-z/](?:[A-Za-z0-9 _./()+-]*[A-Za-z0-9_./()+-])?")
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


@record
class FrontMatter:
    """The fields at the start of a file, in order, and the text after them."""

    fields: Mapping[str, Value] = field(default_factory=lambda: dict[str, Value]())
    body: str = ""


def parse(text: str) -> FrontMatter:
    """Split a file's text into fields and body; without front matter all is body.

    Raise ``InputError`` if the front matter is invalid.
    """
    text = text.removeprefix(_BOM)
    start = text.find("\n") + 1
    if (text[: start - 1] if start else text).rstrip(" \t\r") != _FENCE:
        return FrontMatter({}, text)
    lines: list[str] = []
    size = 0
    while start:
        at, end = start, text.find("\n", start, start + LIMIT_BYTES)
        start = end + 1
        line = text[at:end] if start else text[at : at + LIMIT_BYTES + 1]
        if line.rstrip(" \t\r") == _FENCE:
            return FrontMatter(_Reader(lines).fields(), text[start:] if start else "")
        size += len(line.encode("utf-8", "surrogatepass")) + 1
        if size > LIMIT_BYTES:
            raise InputError(f"the front matter is longer than {LIMIT_BYTES} bytes; move text below its closing '---'")
        lines.append(line.rstrip("\r"))
    raise InputError(f"line {len(lines) + 1}: the front matter is not closed; end it with a line '---'")


class _Reader:
    """A parser of the lines between the fences; errors name the line."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def fields(self) -> dict[str, Value]:
        """Return all fields by key; raise ``InputError`` at the first invalid line."""
        found: dict[str, Value] = {}
        while (line := self._peek()) is not None:
            if line[0] == " ":
                raise self._wrong("is indented under nothing")
            key, value = self._pair(line, found)
            if value:
                found[key] = self._value(value)
            self._at += 1
            if not value:
                found[key] = self._block()
        return found

    def _peek(self) -> str | None:
        """Return the next line that is neither blank nor a comment, without passing it; None at the end."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if "\t" in line[: len(line) - len(line.lstrip())]:
                raise self._wrong("is indented with a tab; use spaces")
            if line.strip() and not line.lstrip().startswith("#"):
                return line
            self._at += 1
        return None

    def _pair(self, line: str, known: Mapping[str, object]) -> tuple[str, str]:
        """Split a line into a key that ``known`` lacks and the text of its value."""
        key, colon, value = line.strip().partition(":")
        if not colon or not _KEY.fullmatch(key) or (value and value[0] not in " \t"):
            raise self._wrong("is not 'key: value'")
        if key in known:
            raise self._wrong(f"gives {key!r} a second time")
        return key, _without_comment(value.strip())

    def _block(self) -> Value:
        """Parse the lines below a key without a value: a list, a table of one level, or nothing."""
        line = self._peek()
        if line is None or not (line[0] == " " or _is_item(line)):
            return ""
        indent = _indent(line)
        return self._items(indent) if _is_item(line.strip()) else self._table(indent)

    def _items(self, indent: int) -> list[str]:
        found: list[str] = []
        while (line := self._peek()) is not None and _indent(line) == indent and _is_item(line.strip()):
            text = _without_comment(line.strip()[1:].strip())
            if _starts_pair(text):
                raise self._wrong("holds a table in a list, which is nested too deeply; quote it if it is text")
            found.append(self._scalar(text))
            self._at += 1
        self._refuse_deeper()
        return found

    def _table(self, indent: int) -> dict[str, Plain]:
        found: dict[str, Plain] = {}
        while (line := self._peek()) is not None and _indent(line) == indent:
            key, value = self._pair(line, found)
            plain = self._value(value)
            if isinstance(plain, dict):
                raise self._wrong("is nested too deeply; one level is the most")
            found[key] = plain
            self._at += 1
        self._refuse_deeper()
        return found

    def _refuse_deeper(self) -> None:
        line = self._peek()
        if line is not None and line[0] == " ":
            raise self._wrong("is indented differently from the lines above; one level of nesting is the most")

    def _value(self, text: str) -> Value:
        if text == "{}":
            return {}
        return self._list(text) if text.startswith("[") else self._scalar(text)

    def _list(self, text: str) -> list[str]:
        """Return the items of a list in brackets."""
        found: list[str] = []
        rest = text[1:].strip()
        while not rest.startswith("]") or found:
            quoted = (_DOUBLE if rest[:1] == '"' else _SINGLE).match(rest) if rest[:1] in ('"', "'") else None
            item = quoted.group() if quoted else re.split(r"[,\]]", rest, maxsplit=1)[0]
            if not item.strip() or "[" in item[:1]:
                raise self._wrong("has a list with an empty or nested item, or one that is not closed")
            if quoted is None and _starts_pair(item.strip()):
                raise self._wrong("holds a table in a list; quote it if it is text")
            found.append(self._scalar(item.strip()))
            rest = rest[len(item) :].strip()
            if not rest.startswith(","):
                break
            rest = rest[1:].strip()
        if rest != "]":
            raise self._wrong("has a list that is not closed by ']' at its end")
        return found

    def _scalar(self, text: str) -> str:
        if text[:1] == '"':
            found = _DOUBLE.fullmatch(text)
            if found is None:
                raise self._wrong("has a quoted text that is not closed, or something after it")
            return _ESCAPE.sub(self._unescaped, found.group(1))
        if text[:1] == "'":
            found = _SINGLE.fullmatch(text)
            if found is None:
                raise self._wrong("has a quoted text that is not closed, or something after it")
            return found.group(1).replace("''", "'")
        if text[:1] in _SPECIAL:
            raise self._wrong(f"has {_SPECIAL[text[0]]} where text is expected; put the value in quotes")
        if _is_item(text) or text[:2] == "? ":
            raise self._wrong("has a list or a complex key inside a value; put the value in quotes")
        return text

    def _unescaped(self, found: re.Match[str]) -> str:
        digits = found.group(1) or found.group(2) or found.group(3)
        if digits is None:
            known = _ESCAPED.get(found.group(4) or "")
            if known is None:
                raise self._wrong(f"has an unknown escape {found.group()!r}")
            return known
        number = int(digits, 16)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise self._wrong(f"has an escape {found.group()!r} that is no character")
        return chr(number)

    def _wrong(self, what: str) -> InputError:
        shown = self._lines[self._at].strip()[:60] if self._at < len(self._lines) else ""
        return InputError(f"line {self._at + 2} {what}: {shown!r}")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_item(line: str) -> bool:
    return line == "-" or line.startswith("- ")


def _starts_pair(text: str) -> bool:
    """Say whether YAML would read a list item as a table (``key: value``)."""
    return text[:1] not in ('"', "'") and re.match(r"[^\s:]+:(\s|\Z)", text) is not None


def _without_comment(text: str) -> str:
    """Return a value's text without a trailing comment; inside quotes a # is text."""
    quoted = (_DOUBLE if text[:1] == '"' else _SINGLE).match(text) if text[:1] in ('"', "'") else None
    head = quoted.group() if quoted else ""
    if text.startswith("["):
        # A list may hold quoted items with a #: a comment can only follow the last bracket.
        closing = re.match(r"\[(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[^\"'\]])*\]", text)
        head = closing.group() if closing else ""
    tail = text[len(head) :]
    if not head and tail.startswith("#"):
        return ""
    return head + re.split(r"\s#", tail, maxsplit=1)[0].rstrip()


def render(matter: FrontMatter) -> str:
    """Return fields and body as a file's text, which ``parse`` and every YAML parser read back with equal values.

    Raise ``InputError`` if a key is invalid or the front matter is too long.
    """
    if not matter.fields and not matter.body.startswith((_FENCE, _BOM)):
        return matter.body
    lines: list[str] = []
    for key, value in matter.fields.items():
        _check_key(key)
        if isinstance(value, dict) and value:
            lines.append(f"{key}:")
            for inner, plain in value.items():
                _check_key(inner)
                lines.append(f"  {inner}: {_rendered(plain)}")
        else:
            lines.append(f"{key}: {'{}' if isinstance(value, dict) else _rendered(value)}")
    if sum(len(line.encode()) + 1 for line in lines) > LIMIT_BYTES:
        raise InputError(f"the front matter would be longer than {LIMIT_BYTES} bytes; move text into the body")
    return "".join(f"{line}\n" for line in (_FENCE, *lines, _FENCE)) + matter.body


def _check_key(key: str) -> None:
    if not _KEY.fullmatch(key):
        raise InputError(f"{key!r} cannot be a key: use letters, digits, '_', '-' and '.'")


def _rendered(value: Plain) -> str:
    if isinstance(value, str):
        return _quoted(value)
    return "[" + ", ".join(_quoted(item) for item in value) + "]"


def _quoted(text: str) -> str:
    if _SAFE.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    code = ord(letter)
    if letter in '"\\':
        return "\\" + letter
    if 0xD800 <= code <= 0xDFFF:
        raise InputError("half a surrogate pair cannot be written to a file")
    if letter.isprintable():
        return letter
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
