"""A memory as a record: read from its file whatever state that is in, written back without losing a line.

Files are shared with other programs. So reading is total (what cannot be understood is a ``problem`` of that one
record), and writing changes the lines of the fields it sets and leaves every other byte of the front matter alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, cast

from ..errors import InputError
from ..values import field, record
from .frontmatter import LIMIT_BYTES, FrontMatter, Value, parse, render
from .trust import Trust, claimed, worst

__all__ = [
    "OWN_FIELDS",
    "MemoryRecord",
    "Scope",
    "front_matter",
    "new_text",
    "read_record",
    "revised_text",
    "version_of",
]

Scope: TypeAlias = Literal["private", "team"]

OWN_FIELDS: Final = ("name", "description", "type", "created", "modified", "source", "trust", "expires", "scope")
_NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})
_TOP_KEY: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*):(?:[ \t]|$)")
_HEADING: Final = re.compile(r"#{1,6}[ \t]+(.*?)[ \t#]*$", re.MULTILINE)


@record
class MemoryRecord:
    """One memory."""

    file: str
    """Its path beneath the memory directory."""
    name: str
    description: str = ""
    type: str = ""
    created: str = ""
    modified: str = ""
    source: tuple[str, ...] = ()
    """Where it came from: ``session message`` each, or a word such as ``import``."""
    trust: Trust = "agent"
    expires: str = ""
    scope: Scope = "private"
    body: str = ""
    """The text; empty in a scan, which reads only heads."""
    extra: Mapping[str, Value] = field(default_factory=lambda: _NOTHING)
    """Fields that are not ours, in their order."""
    version: str = ""
    """The hash of the file's bytes; empty in a scan."""
    problem: str = ""
    """Why its front matter could not be read, where it could not."""


def version_of(data: bytes) -> str:
    """Return the hash by which two versions of a file are told apart."""
    return sha256(data).hexdigest()


def read_record(
    file: str, data: bytes, *, modified: str = "", scope: Scope = "private", head_only: bool = False
) -> MemoryRecord:
    """Read a memory file, or only its head; whatever is in it, a record comes back.

    ``modified`` is the file's own time, used where the front matter has none.
    """
    text, problem = _decoded(data, cut=head_only)
    try:
        matter = front_matter(text)
    except InputError as error:
        problem, matter = str(error), FrontMatter({}, text)
    fields = matter.fields
    metadata = fields.get("metadata")
    nested: Mapping[str, object] = metadata if isinstance(metadata, dict) else {}
    origin = _texts(fields.get("source")) or _texts(nested.get("originSessionId"))
    trust = claimed(_text(fields.get("trust")))
    extra = {key: value for key, value in fields.items() if key not in OWN_FIELDS}
    return MemoryRecord(
        file,
        _text(fields.get("name")) or _heading(matter.body) or _stem(file),
        _text(fields.get("description")),
        _text(fields.get("type")) or _text(nested.get("type")),
        _text(fields.get("created")),
        _text(fields.get("modified")) or modified,
        origin,
        worst((trust, "agent")) if scope == "team" else trust,  # another person's "user" is not this user
        _text(fields.get("expires")),
        scope,
        "" if head_only else matter.body,
        extra or _NOTHING,
        "" if head_only else version_of(data),
        problem,
    )


def _decoded(data: bytes, *, cut: bool) -> tuple[str, str]:
    try:
        return data.decode(), ""
    except UnicodeDecodeError as error:
        if cut and error.reason == "unexpected end of data":  # the head ends inside a character
            return data.decode("utf-8", "ignore"), ""
        return data.decode("utf-8", "replace"), f"byte {error.start} is not UTF-8; save the file as UTF-8"


def _text(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(text for item in cast("list[object]", value) if (text := _text(item)))
    text = _text(value)
    return (text,) if text else ()


def _heading(body: str) -> str:
    found = _HEADING.match(body.lstrip())
    return found[1].strip() if found else ""


def _stem(file: str) -> str:
    return file.rsplit("/", 1)[-1].removesuffix(".md")


# -- a quick reading of the plain case, which a scan of thousands of files needs


def front_matter(text: str) -> FrontMatter:
    """Split a text into fields and body: quickly where every line is plain, else by the strict parser."""
    return _plain_matter(text) or parse(text)


def _plain_matter(text: str) -> FrontMatter | None:
    """Return what ``parse`` would, or None where a line is not of the plainest form."""
    end = text.find("\n---\n", 3)
    if not text.startswith("---\n") or not 3 < end < LIMIT_BYTES // 4:
        return None
    fields: dict[str, Value] = {}
    table: dict[str, str | list[str]] | None = None
    for line in text[4:end].split("\n"):
        key, colon, value = line.partition(": ")
        if line.startswith("  ") and table is not None and line[2:3] != " ":
            key, into = key[2:], table
        elif colon and value.strip(" "):
            table, into = None, fields
        else:
            key, into = line.rstrip(" ").removesuffix(":"), fields
            if key == line.rstrip(" ") or not _is_plain_key(key) or key in fields:
                return None
            table = {}
            fields[key] = cast(Value, table)
            continue
        plain = _plain_value(value)
        if plain is None or not _is_plain_key(key) or key in into:
            return None
        into[key] = plain  # type: ignore[index]  # both hold text
    if any(value == {} for value in fields.values()):
        return None
    return FrontMatter(fields, text[end + 5 :])


def _is_plain_key(key: str) -> bool:
    return key.isascii() and key.replace("-", "_").isidentifier() and key[0] != "-"


def _plain_value(value: str) -> str | None:
    value = value.strip(" ")
    if value[:1] == '"':
        inner = value[1:-1]
        return inner if len(value) > 1 and value[-1] == '"' and '"' not in inner and "\\" not in inner else None
    if not value[:1].isalnum() or "#" in value or "\t" in value or not value.isprintable():
        return None
    return value


# -- writing


def new_text(fields: Mapping[str, Value], body: str) -> str:
    """Return the text of a new memory file."""
    return render(FrontMatter({key: value for key, value in fields.items() if value}, _closed(body)))


def revised_text(text: str, changes: Mapping[str, Value | None], body: str | None = None) -> str:
    """Return a file's text with some fields set (None removes one) and perhaps another body.

    Lines of fields that are not named stay byte for byte, comments too. A file without front matter gets some.
    """
    matter = parse(text)
    if not matter.fields:
        return new_text({key: value for key, value in changes.items() if value}, matter.body if body is None else body)
    end = "\r\n" if "\n" in text and text[: text.index("\n") + 1].endswith("\r\n") else "\n"
    head = text[: len(text) - len(matter.body)].splitlines(keepends=True)
    blocks, last = _blocks(head[1:-1]), head[-1]
    for key, value in changes.items():
        at = next((number for number, (known, _) in enumerate(blocks) if known == key), None)
        lines = _field_lines(key, value, end) if value is not None else []
        if at is not None:
            blocks[at] = (key, lines)
        elif lines:
            blocks.append((key, lines))
    kept = [head[0], *(line for _, lines in blocks for line in lines), last]
    if not kept[-1].endswith("\n"):
        kept[-1] += end
    revised = "".join(kept) + (matter.body if body is None else _closed(body))
    parse(revised)  # whatever was kept, the whole must still be readable
    return revised


def _blocks(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Group the lines between the fences by the field they belong to; comments above one go before it."""
    blocks: list[tuple[str, list[str]]] = []
    for line in lines:
        found = _TOP_KEY.match(line.rstrip("\r\n"))
        if found:
            blocks.append((found[1], [line]))
        elif line.startswith("#") or not blocks or blocks[-1][0] == "":
            blocks.append(("", [line]))
        else:
            blocks[-1][1].append(line)
    return blocks


def _field_lines(key: str, value: Value, end: str) -> list[str]:
    rendered = render(FrontMatter({key: value}, "")).split("\n")[1:-2]
    return [line + end for line in rendered]


def _closed(body: str) -> str:
    return body if body.endswith("\n") or not body else body + "\n"
