"""A memory as a record: parsed from its file in any state, written back without losing a line.

Other programs share these files. So parsing never fails (an unreadable part becomes the ``problem`` of that record),
and writing changes only the lines of the fields it sets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType

from ...digests import hex_of
from ...errors import InputError
from ...lazy import pattern
from ...values import cast, field, fields_of, record
from .frontmatter import FrontMatter, Value, parse, render
from .trust import claimed, worst

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, Literal, TypeAlias

    from .trust import Trust

    Scope: TypeAlias = Literal["private", "team"]
else:
    Scope = Trust = str  # for code that reads the types of a record at run time


OWN_FIELDS: Final = ("name", "description", "type", "created", "modified", "source", "trust", "expires", "scope")
_OWN: Final = frozenset(OWN_FIELDS)
_QUICK_CHARS: Final = 4_096
_NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})
_TOP_KEY: Final = pattern(r"([A-Za-z0-9_][A-Za-z0-9_.-]*):(?:[ \t]|$)")
_CONFLICT: Final = pattern(r"^<{7} [^\n]*\n(?:.*\n)?={7}\r?\n", re.MULTILINE | re.DOTALL)
CONFLICT: Final = "it has conflict markers of git; keep the right version and remove the markers"
"""The problem of a file with conflict markers; such a record has no text."""
_HEADING: Final = pattern(r"#{1,6}[ \t]+(.*?)[ \t#]*$", re.MULTILINE)


@record
class MemoryRecord:
    """One memory as parsed from its file."""

    file: str
    """The path of the file beneath the memory directory."""
    name: str
    description: str = ""
    type: str = ""
    created: str = ""
    modified: str = ""
    source: tuple[str, ...] = ()
    """The sources of the memory: pairs ``session message``, or a word such as ``import``."""
    trust: Trust = "agent"
    expires: str = ""
    scope: Scope = "private"
    body: str = ""
    """The text after the front matter; empty in a scan, which reads only heads."""
    extra: Mapping[str, Value] = field(default_factory=lambda: _NOTHING)
    """Front matter fields that Reverie does not use, in order."""
    version: str = ""
    """The hash of the file's bytes; empty in a scan."""
    problem: str = ""
    """Why the file could not be parsed; empty if it could."""

    @property
    def superseded_by(self) -> str:
        """The file of the memory that replaces this one; empty if this one still holds."""
        return _text(self.extra.get("superseded_by", ""))

    @property
    def is_about_user(self) -> bool:
        """Whether the memory is about the user, however its file writes that type."""
        return self.type.strip().casefold() == "user"

    @property
    def is_listed(self) -> bool:
        """Whether the index lists the memory: it still holds, and it is not one about a person in a team's folder."""
        return not self.superseded_by and not (self.scope == "team" and self.is_about_user)

    @property
    def is_in_use(self) -> bool:
        """Whether recall and prompts may show the memory: the index lists it, and it has no conflict markers."""
        return self.is_listed and self.problem != CONFLICT

    def has_expired(self, today: str) -> bool:
        """Say whether the memory's last day is before ``today``, an ISO date or time."""
        return bool(self.expires) and self.expires[:10] < today[:10]


# The same slots, not frozen: filling these takes a quarter of the time, and a scan creates thousands.
class _Loose:
    __slots__ = fields_of(MemoryRecord)


def has_conflict(text: str) -> bool:
    """Say whether a text has lines that git wrote around two versions that it could not merge."""
    return "<<<<<<< " in text and _CONFLICT.search(text) is not None


def version_of(data: bytes) -> str:
    """Return the SHA-256 hash that identifies a version of a file."""
    return hex_of(data)


def read_record(
    file: str, data: bytes, *, modified: float = 0.0, scope: Scope = "private", head_only: bool = False
) -> MemoryRecord:
    """Return the memory in a file's bytes, or without body and version if ``head_only``; never raise.

    ``modified`` is the file's modification time in seconds, used if the front matter has none.
    """
    text, problem = _decoded(data, cut=head_only)
    if has_conflict(text):  # no part of it is known to be right
        return MemoryRecord(
            file, _stem(file), scope=scope, version="" if head_only else version_of(data), problem=CONFLICT
        )
    if (
        head_only
        and (own := _own_head(text.isascii()).match(text, 0, _QUICK_CHARS))
        and text.find("  ", 0, own.end()) < 0
    ):
        return _own_record(file, own, modified, scope)
    try:
        fields = _plain_fields(text)
        matter = parse(text) if fields is None else None
    except InputError as error:
        problem, fields, matter = str(error), None, FrontMatter({}, text)
    found = matter.fields if matter else fields or {}
    get = found.get
    metadata = get("metadata")
    nested: Mapping[str, object] = metadata if isinstance(metadata, dict) else _NOTHING
    trust = claimed(_text(get("trust", "")))
    body = matter.body if matter else "" if head_only else text[text.index("\n---\n", 3) + 5 :]
    return MemoryRecord(
        file,
        _text(get("name", "")) or _heading(body) or _stem(file),
        _text(get("description", "")),
        _text(get("type", "")) or _text(nested.get("type", "")),
        _text(get("created", "")),
        _text(get("modified", "")) or _time(modified),
        _texts(get("source")) or _texts(nested.get("originSessionId")),
        worst((trust, "agent")) if scope == "team" else trust,  # another person's "user" is not this user
        _text(get("expires", "")),
        scope,
        "" if head_only else body,
        _NOTHING if found.keys() <= _OWN else {key: value for key, value in found.items() if key not in _OWN},
        "" if head_only else version_of(data),
        problem,
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""


def _decoded(data: bytes, *, cut: bool) -> tuple[str, str]:
    try:
        return data.decode(), ""
    except UnicodeDecodeError as error:
        if cut and error.reason == "unexpected end of data":  # the head ends inside a character
            return data.decode("utf-8", "ignore"), ""
        return data.decode("utf-8", "replace"), f"byte {error.start} is not UTF-8; save the file as UTF-8"


def _text(value: object) -> str:
    if value == "" or not isinstance(value, str):
        return ""
    return value if value.isprintable() and "  " not in value and value[:1] != " " else " ".join(value.split())


def _texts(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, list):
        return tuple(text for item in cast("list[object]", value) if (text := _text(item)))
    text = _text(value)
    return (text,) if text else ()


def _heading(body: str) -> str:
    found = _HEADING.match(body.lstrip())
    return found[1].strip() if found else ""


def _stem(file: str) -> str:
    return file.rsplit("/", 1)[-1].removesuffix(".md")


# -- fast parsing of the plain case, for scans of thousands of files

_PLAIN_KEY: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_INSIDE: Final = r"[^\x00-\x1f#\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f\u3000\ufeff\ud800-\udfff]"
_PLAIN_VALUE: Final = rf'(?:"[^"\\\n\r]*"|[A-Za-z0-9](?:{_INSIDE}*(?! ){_INSIDE})?)'
_PLAIN_HEAD: Final = pattern(
    rf"---\n((?:{_PLAIN_KEY}: {_PLAIN_VALUE}\n|{_PLAIN_KEY}: ?\n(?:  {_PLAIN_KEY}: {_PLAIN_VALUE}\n)+)+)---\n"
)
_PAIR: Final = pattern(rf'^( *)({_PLAIN_KEY}): ?(?:"(.*)"|(.*))$', re.MULTILINE)


# The fields as the store writes them, in this order; only the first is required.
_QUOTED: Final = rf'"(?! )({_INSIDE.replace("#", chr(34) + chr(92) * 2)}*+)(?<! )"'
_CLEAN: Final = rf"(?:{_QUOTED}|([A-Za-z0-9]{_INSIDE}*+(?<! )))"
# The same for ASCII text: a small character class is a table lookup, a large one is a search.
_ASCII_CLEAN: Final = r'(?:"(?! )([ !#-\[\]-~]*+)(?<! )"|([A-Za-z0-9][ -"$-~]*+(?<! )))'


@cache
def _own_head(ascii_only: bool) -> re.Pattern[str]:
    """Return the pattern of the plainest front matter, compiled on first use, since compiling is slow."""
    clean = _ASCII_CLEAN if ascii_only else _CLEAN
    return re.compile(
        rf"---\nname: {clean}\n"
        + "".join(
            rf"(?:{key}: {clean}\n)?"
            for key in ("description", "type", "source", "trust", "expires", "scope", "created", "modified")
        )
        + "---\n"
    )


def _own_record(file: str, own: re.Match[str], modified: float, scope: Scope) -> MemoryRecord:
    """Return the memory, without body, in a match of the plainest front matter."""
    one = own.groups("")  # two groups per field: with and without quotes
    source, trust = one[6] or one[7], one[8] or one[9]
    vouched = claimed(trust)
    made: Any = _Loose()
    made.file, made.scope = file, scope
    made.name = one[0] or one[1] or _stem(file)
    made.description = one[2] or one[3]
    made.type = one[4] or one[5]
    made.source = (source,) if source else ()
    made.trust = worst((vouched, "agent")) if scope == "team" else vouched
    made.expires = one[10] or one[11]
    made.created = one[14] or one[15]
    made.modified = one[16] or one[17] or _time(modified)
    made.body = made.version = made.problem = ""
    made.extra = _NOTHING
    made.__class__ = MemoryRecord
    return made


def front_matter(text: str) -> FrontMatter:
    """Split a text into fields and body, fast if every line is plain; raise ``InputError`` if it is invalid."""
    fields = _plain_fields(text)
    if fields is None:
        return parse(text)
    return FrontMatter(fields, text[text.index("\n---\n", 3) + 5 :])


def _plain_fields(text: str) -> dict[str, Value] | None:
    """Return the fields that ``parse`` would return; None if a line is not plain, so that ``parse`` is needed."""
    head = _PLAIN_HEAD.match(text, 0, _QUICK_CHARS)
    if head is None:
        return None
    pairs = _PAIR.findall(head[1])
    if "\n  " in head[1]:
        return _plain_tables(pairs)
    fields: dict[str, Value] = {key: quoted or bare for _, key, quoted, bare in pairs}
    return fields if len(fields) == len(pairs) else None


def _plain_tables(pairs: list[tuple[str, str, str, str]]) -> dict[str, Value] | None:
    fields: dict[str, Value] = {}
    table: dict[str, str | list[str]] = {}
    for number, (indent, key, quoted, bare) in enumerate(pairs):
        if indent:
            if key in table:
                return None
            table[key] = quoted or bare
            continue
        if key in fields:
            return None
        opens = number + 1 < len(pairs) and bool(pairs[number + 1][0])
        table = {}
        fields[key] = table if opens else quoted or bare
    return fields


# -- writing


def new_text(fields: Mapping[str, Value], body: str) -> str:
    """Return the text of a new memory file, without empty fields; raise ``InputError`` if a field is invalid."""
    return render(FrontMatter({key: value for key, value in fields.items() if value}, _closed(body)))


def revised_text(text: str, changes: Mapping[str, Value | None], body: str | None = None) -> str:
    """Return a file's text with some fields set (None removes a field) and an optional new body.

    Other lines stay byte for byte, comments too. A file without front matter gets some. Raise ``InputError`` if
    the old or the new front matter is invalid.
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
    parse(revised)  # the result must be readable, with any lines that were kept
    return revised


def _blocks(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Return the lines between the fences grouped by field; comments form groups with an empty name."""
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
