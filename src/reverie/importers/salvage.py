"""Extract the intact records from one big JSON document that no longer parses."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from ..conversation.entries import clean
from ..conversation.log import Damage
from ..values import record
from .foreign_values import Record

_LISTS: Final = ("history", "trajectory", "messages", "items")
_VALUES: Final = ("trajectory_format", "instance_id", "info", "metadata", "environment", "replay_config", "session")
_GAP: Final = re.compile(r"[\s\0,]*")
# Overwritten bytes may hide that an inner record ends here, so no NUL may stand between a member and the next one.
_NEXT: Final = re.compile(r'\s*(?:,\s*[\[{]|\]\s*(?:,\s*"|\}[\s\0]*$))')
_AFTER: Final = re.compile(r"\][\s\0]*(?:,\s*\"|\}?[\s\0]*$)")
_OWN_LINE: Final = re.compile(r"\n([ \t]+)[\[{]")
_KEYS: Final = re.compile(r'\{(?=\s*"(?:role|message_type|agent|content|id|action|type)"\s*:)')
_MAX_BROKEN: Final = 200
"""The search for intact members ends after this many broken ones: each costs a pass over the text."""
_NOT_UTF8: Final = re.compile("[\udc80-\udcff]")
_decoder: Final = json.JSONDecoder()


def salvage(data: bytes, line: int = 1) -> tuple[Record, tuple[Damage, ...]] | None:
    """Return a broken document, which starts at ``line``, with its intact main list, and the damage; None without."""
    text = data.decode("utf-8", "surrogateescape")
    for name in _LISTS:
        found = re.search(rf'(?<!\\)"{name}"\s*:\s*\[', text)
        if found is None:
            continue
        damage: list[Damage] = []
        members = list(_members(text, found.end(), line, damage))
        if members:
            document: Record = {key: value for key in _VALUES if (value := _value(text, key)) is not None}
            return {**document, name: members}, tuple(damage) or (Damage(line, "the document is broken", len(data)),)
    return None


@record
class Layout:
    """The layout of a list: members on lines of their own with this indent, or one after the other."""

    indent: str
    opening: re.Pattern[str]

    def closes(self, text: str, at: int) -> bool:
        """Return whether the bracket at an index closes the list, and not one inside a broken member."""
        before = text[text.rfind("\n", 0, at) + 1 : at]
        is_outer = not self.indent or (not before.strip(" \t") and len(before) < len(self.indent))
        return is_outer and _AFTER.match(text, at) is not None


def _members(text: str, start: int, line: int, damage: list[Damage]) -> Iterator[Any]:
    layout = _layout(text, start)
    at, counted, found_again = _past_gap(text, start), 0, False
    while at < len(text) and not (text[at] == "]" and layout.closes(text, at)):
        # Found by a key alone, the position may be inside a broken member: so the list must continue after it.
        whole = _whole(text, at, followed=found_again and not layout.indent)
        if whole is not None:
            yield whole[0]
            at, found_again = _past_gap(text, whole[1]), False
            continue
        again = layout.opening.search(text, at + 1)
        upto = again.start() if again else len(text)
        line, counted = line + text.count("\n", counted, at), at
        if len(damage) == _MAX_BROKEN:
            damage.append(Damage(line, "too many broken records: the rest is left out", len(text) - at))
            return
        damage.append(Damage(line, "a record that is not whole JSON", upto - at))
        if again is None:
            return
        at, found_again = again.end() - 1, True


def _past_gap(text: str, at: int) -> int:
    found = _GAP.match(text, at)
    return found.end() if found else at


def _whole(text: str, at: int, *, followed: bool) -> tuple[Any, int] | None:
    """Return the member that starts at an index, and its end; None if it is broken.

    With ``followed`` also return None if the list does not continue after the member.
    """
    if text[at] not in "{[":
        return None
    try:
        member, end = _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    if _NOT_UTF8.search(text, at, end) or (followed and not _NEXT.match(text, end)):
        return None
    return clean(member), end


def _layout(text: str, start: int) -> Layout:
    """Return the layout of the list at an index, judged by the smallest of the common indents of its members."""
    indents = Counter(found[1] for found in _OWN_LINE.finditer(text, start))
    if indents and (max(indents.values()) > 1 or text.startswith(("\n", "\r\n"), start)):
        usual = [indent for indent, times in indents.items() if times * 2 >= max(indents.values())]
        indent = min(usual, key=len)
        return Layout(indent, re.compile(rf"\n{re.escape(indent)}[\[{{]"))
    return Layout("", _KEYS)


def _value(text: str, key: str) -> Any:
    found = re.search(rf'(?<!\\)"{key}"\s*:\s*', text)
    if found is None:
        return None
    try:
        value, _ = _decoder.raw_decode(text, found.end())
    except (ValueError, RecursionError):
        return None
    return clean(value)
