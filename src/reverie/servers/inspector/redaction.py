"""A film that can be shared: all texts replaced by filler of the same length, structure and figures as they are.

Kept are roles, types, names of tools and of their parameters, models, layers, causes, times, tokens and dollars.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from ...cache.watch import cause_of
from ...errors import InputError
from ...memories.rules.secrets import find_secrets

_FILLER: Final = re.compile(r"[^\n]")
_NAME: Final = re.compile(r"[A-Za-z_][\w.-]{0,63}")
# Fields of the wire format and of decisions whose values are names from a fixed set, and tools.
_KEPT: Final = frozenset({"type", "role", "name", "model", "decision", "layer", "ttl", "trigger", "method", "source"})
_FREE: Final = frozenset({"input", "sections", "preserved", "loss", "usage", "cache", "covers", "tools"})
"""Fields whose own keys may be content."""


def redacted(session: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the data of a session without its texts; ``number`` becomes its name.

    Raise ``InputError`` if the result still looks as if it had a secret, for example in the name of a tool.
    """
    out: dict[str, Any] = {
        **session,
        "id": f"session-{number}",
        "parent": "session-1" if session["parent"] else "",
        "title": filler(session["title"]),
        "cwd": filler(session["cwd"]),
        "blocks": [_value(block) for block in session["blocks"]],
        "messages": [_message(message) for message in session["messages"]],
        "heads": session["heads"],
        "acts": [{**act, "reason": filler(act["reason"]), "command": ""} for act in session["acts"]],
        "breaks": [_break(one) for one in session["breaks"]],
        "bill": {**session["bill"], "causes": [_cause(row) for row in session["bill"]["causes"]]},
        "compactions": [_compaction(one) for one in session["compactions"]],
        "agents": [{**one, **_fillers(one, ("agent", "directive", "text"))} for one in session["agents"]],
        "memories": [{**one, "names": [filler(name) for name in one["names"]]} for one in session["memories"]],
    }
    found = find_secrets(msgspec.json.encode(out).decode())
    if found:
        raise InputError(f"a name in this session looks like a secret ({found[0].rule}), so nothing was written")
    return out


def filler(text: str) -> str:
    """Return filler of the same length with the same line ends."""
    return _FILLER.sub("x", text)


def _fillers(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    return {name: filler(row[name]) for name in names}


def _value(value: Any, *, is_kept: bool = False, is_free: bool = False) -> Any:
    """Return a value of JSON with filler in place of its strings, and of its keys where those may be content."""
    if isinstance(value, str):
        return value if is_kept and _NAME.fullmatch(value) else filler(value)
    if isinstance(value, list):
        return [_value(one, is_free=is_free) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    out: dict[str, Any] = {}
    for key, inner in cast("dict[str, Any]", value).items():
        name = key if not is_free and _NAME.fullmatch(key) else f"{filler(key)}-{len(out)}"
        free = is_free or (isinstance(inner, dict) and key in _FREE and key != "input")
        out[name] = (
            _parameters(inner)
            if key == "input" and not is_free
            else _value(inner, is_kept=key in _KEPT and not is_free, is_free=free)
        )
    return out


def _parameters(given: Any) -> Any:
    """Return the input of a call: the names of its parameters stay, everything in them is content."""
    if not isinstance(given, dict):
        return _value(given, is_free=True)
    found = cast("dict[str, Any]", given)
    return {
        key if _NAME.fullmatch(key) else f"{filler(key)}-{at}": _value(inner, is_free=True)
        for at, (key, inner) in enumerate(found.items())
    }


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value if key == "content" else _value(value, is_kept=True) for key, value in message.items()}


def _break(one: Mapping[str, Any]) -> dict[str, Any]:
    if one["announced"] or cause_of(one["reason"]).remedy:
        return dict(one)
    return {**one, "cause": "another cause", "reason": ""}


def _cause(row: Mapping[str, Any]) -> dict[str, Any]:
    return dict(row) if row["remedy"] else {**row, "cause": "another cause"}


def _compaction(one: Mapping[str, Any]) -> dict[str, Any]:
    lost = [{**row, "text": filler(row["text"]), "handle": ""} for row in one["lost"]]
    return {**one, "summary": filler(one["summary"]), "lost": lost, "read": ""}
