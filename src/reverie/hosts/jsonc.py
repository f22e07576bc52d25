"""Edit a JSON file and keep its comments, order and spacing. Pure.

``scan`` returns the values with their positions in the text; an edit inserts or removes a few characters there.
Comments (``//`` and ``/* */``) and trailing commas are allowed, as many programs allow them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, cast

from ..errors import InputError
from ..values import field, record

_SPACE: Final = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD: Final = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MAX_DEPTH: Final = 200
Key = str | int


@record
class JsonValue:
    """A JSON value with its position in the text: from its first character to one past its last."""

    start: int
    end: int
    plain: Any
    members: dict[str, JsonValue] = field(default_factory=lambda: dict[str, "JsonValue"]())
    items: tuple[JsonValue, ...] = ()


def read(text: str) -> Any:
    """Return the content of a JSON text, {} for an empty one; raise ``InputError`` with the line number if invalid."""
    return scan(text).plain


def scan(text: str) -> JsonValue:
    """Return the root value of a JSON text; raise ``InputError`` with the line number if it is not JSON."""
    at = _skip(text, 0)
    if at == len(text):
        return JsonValue(at, at, {})
    value = _value(text, at, 0)
    end = _skip(text, value.end)
    if end != len(text):
        raise _wrong(text, end, "there is text after the end of the value")
    return value


def with_member(text: str, path: tuple[str, ...], plain: Any) -> str:
    """Return the text with a member added at a path that is new; raise ``InputError`` for a non-object on the path."""
    whole = scan(text)
    if whole.start == whole.end:
        return _new_file(text, _nested(path, plain))
    value, done = whole, 0
    while done < len(path) and path[done] in value.members:
        value = value.members[path[done]]
        done += 1
    if done == len(path):
        return text
    if not isinstance(value.plain, dict):
        raise InputError(f"{'.'.join(path[:done]) or 'the file'} is not an object; the file was not changed")
    return _put(text, value, json.dumps(path[done]) + ": ", _nested(path[done + 1 :], plain))


def with_item(text: str, path: tuple[str, ...], plain: Any) -> str:
    """Return the text with an item at the end of the list at a path; raise ``InputError`` if that is not a list."""
    value = scan(text)
    for name in path:
        if name not in value.members:
            return with_member(text, path, [plain])
        value = value.members[name]
    if not isinstance(value.plain, list):
        raise InputError(f"{'.'.join(path)} is not a list; the file was not changed")
    return _put(text, value, "", plain)


def with_items(text: str, path: tuple[str, ...], items: Sequence[str]) -> str:
    """Return the text with these items in the list at a path of objects, each added only if it is missing."""
    for item in items:
        text = text if item in _listed(text, path) else with_item(text, path, item)
    return text


def without_items(text: str, path: tuple[str, ...], items: Sequence[str]) -> str:
    """Return the text without these items of a list, and without the list and its object if they become empty."""
    before = _listed(text, path)
    for item in items:
        there = _listed(text, path)
        text = without(text, (*path, there.index(item))) if item in there else text
    if before and not _listed(text, path):
        text = without(text, path)
        text = text if member(read(text), path[:-1]) else without(text, path[:-1])
    return text


def _listed(text: str, path: tuple[str, ...]) -> list[Any]:
    found = member(read(text), path)
    return cast("list[Any]", found) if isinstance(found, list) else []


def member(value: Any, path: tuple[str, ...]) -> Any:
    """Return the member at a path of objects; None if it is not there."""
    for name in path:
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value


def without(text: str, path: tuple[Key, ...]) -> str:
    """Return the text without the member or item at an existing path, and without the comma beside it."""
    value = scan(text)
    for step in path[:-1]:
        value = value.items[step] if isinstance(step, int) else value.members[step]
    last = path[-1]
    inside = list(value.items) if isinstance(last, int) else list(value.members.values())
    at = last if isinstance(last, int) else list(value.members).index(last)
    start = inside[at].start if isinstance(last, int) else _key_start(text, value, last)
    before = inside[at - 1].end if at else value.start + 1
    end = _skip(text, inside[at].end)
    if text[end : end + 1] == ",":
        return text[: _line_start(text, start, before)] + text[_line_end(text, end + 1) :]
    comma = _skip(text, before) if at else -1
    kept = (
        text[:comma] + text[comma + 1 : _line_start(text, start, before)]
        if comma >= 0
        else text[: _line_start(text, start, before)]
    )
    return kept + text[_line_end(text, inside[at].end) :]


# -- adding


def _put(text: str, into: JsonValue, label: str, plain: Any) -> str:
    """Return the text with a member or item added at the end of an object or list; ``label`` names a member."""
    close = into.end - 1
    inside = list(into.members.values()) or list(into.items)
    edge = len(text[:close].rstrip(" \t\r\n"))
    unit, end = _unit(text), "\r\n" if "\r\n" in text else "\n"
    comma = bool(inside) and "," not in _bare(text[inside[-1].end : close])
    several = "\n" in text[into.start : into.end] or not inside
    own = _indent(text, into.start)
    new = label + _dumped(plain, own + unit, unit, end) if several else label + json.dumps(plain, ensure_ascii=False)
    if not several:
        return f"{text[:edge]}{', ' if comma else ' '}{new}{text[edge:]}"
    if comma:
        text = f"{text[: inside[-1].end]},{text[inside[-1].end :]}"
        edge, close = edge + 1, close + 1
    tail = text[edge:close]
    closing = tail if "\n" in tail else f"{end}{own}"
    return f"{text[:edge]}{end}{own}{unit}{new}{closing}{text[close:]}"


def _new_file(text: str, plain: Any) -> str:
    end = "\r\n" if "\r\n" in text else "\n"
    return (
        f"{text}{'' if not text or text.endswith(chr(10)) or text == chr(0xFEFF) else end}"
        + _dumped(plain, "", "  ", end)
        + end
    )


def _nested(path: tuple[str, ...], plain: Any) -> Any:
    for name in reversed(path):
        plain = {name: plain}
    return plain


def _dumped(plain: Any, indent: str, unit: str, end: str) -> str:
    text = json.dumps(plain, indent=unit, ensure_ascii=False)
    return text.replace("\n", f"{end}{indent}")


def _unit(text: str) -> str:
    """Return the white space by which the file indents, from its first indented line; by default two spaces."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _bare(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


# -- removing


def _key_start(text: str, inside: JsonValue, name: str) -> int:
    """Return the position of a member's name in the text; raise ``KeyError`` if there is no such member."""
    before = inside.start + 1
    for known, value in inside.members.items():
        if known == name:
            return _skip(text, before)
        before = _skip(text, value.end)
        before += text[before : before + 1] == ","
    raise KeyError(name)


def _line_start(text: str, at: int, floor: int) -> int:
    """Return the start of the line, if it is above ``floor`` and only spaces follow it, else the position."""
    start = text.rfind("\n", floor, at) + 1
    return start if start > floor and not text[start:at].strip() else at


def _line_end(text: str, at: int) -> int:
    """Return the position after the line's end if only spaces follow, else the position itself."""
    end = text.find("\n", at)
    return end + 1 if end >= 0 and not text[at:end].strip() else at


# -- scanning


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> JsonValue:
    if depth > _MAX_DEPTH:
        raise _wrong(text, at, "it is nested too deeply")
    sign = text[at : at + 1]
    if sign == "{":
        return _object(text, at, depth)
    if sign == "[":
        return _list(text, at, depth)
    found = _STRING.match(text, at) if sign == '"' else _WORD.match(text, at)
    if found is None:
        raise _wrong(text, at, "a value is expected")
    try:
        return JsonValue(at, found.end(), json.loads(found.group()))
    except ValueError:
        raise _wrong(text, at, "this is not a value") from None


def _object(text: str, start: int, depth: int) -> JsonValue:
    members: dict[str, JsonValue] = {}
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        name = _STRING.match(text, at)
        if name is None:
            raise _wrong(text, at, "a name in quotes is expected")
        at = _skip(text, name.end())
        if text[at : at + 1] != ":":
            raise _wrong(text, at, "a colon is expected")
        value = _value(text, _skip(text, at + 1), depth + 1)
        key = str(json.loads(name.group()))
        if key in members:
            raise _wrong(text, name.start(), f"{key} occurs twice")
        members[key] = value
        at = _after(text, value.end, "}")
    return JsonValue(start, at + 1, {name: value.plain for name, value in members.items()}, members)


def _list(text: str, start: int, depth: int) -> JsonValue:
    items: list[JsonValue] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        value = _value(text, at, depth + 1)
        items.append(value)
        at = _after(text, value.end, "]")
    return JsonValue(start, at + 1, [value.plain for value in items], items=tuple(items))


def _after(text: str, at: int, close: str) -> int:
    """Return the position of the next member or of the closing bracket; raise ``InputError`` without either."""
    at = _skip(text, at)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1)
    if text[at : at + 1] != close:
        raise _wrong(text, at, f"a comma or {close} is expected")
    return at


def _wrong(text: str, at: int, what: str) -> InputError:
    return InputError(f"line {text.count(chr(10), 0, at) + 1} is not JSON: {what}; correct the file first")
