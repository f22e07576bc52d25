"""A request as the sequence of blocks that a provider caches, so that two requests can be compared byte for byte.

The order is the provider's: tools, system, messages. All ``cache_control`` markers are left out, a string counts as one
text block, and boundaries between messages of the same role are ignored. Keys keep the order in which they are sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from ..entries import clean

_encode: Final = msgspec.json.Encoder().encode
_MARK: Final = "cache_control"


def canonical(request: Mapping[str, Any]) -> list[bytes]:
    """Return a list with the bytes of each tool, system block and message block of the request, in order."""
    blocks = [canonical_block(tool, "tool") for tool in _items(request.get("tools"))]
    blocks += [canonical_block(block, "system") for block in _content(request.get("system"))]
    for message in _items(request.get("messages")):
        if isinstance(message, Mapping):
            fields = cast(Mapping[str, Any], message)
            role = str(fields.get("role"))
            blocks += [canonical_block(block, role) for block in _content(fields.get("content"))]
    return blocks


def canonical_block(block: Any, role: str) -> bytes:
    """Return the bytes of one block: its role, a colon, and its JSON without ``cache_control`` markers."""
    bare = _unmarked(block)
    try:
        return role.encode() + b":" + _encode(bare)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return role.encode("utf-8", "replace") + b":" + _encode(clean(bare))


def _items(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def _content(value: Any) -> Iterator[Any]:
    """Yield the blocks of a content; a string gives one text block."""
    if isinstance(value, str):
        yield {"type": "text", "text": value}
    else:
        yield from _items(value)


def _unmarked(block: Any) -> Any:
    """Return the block without its own marker and the markers of inner blocks."""
    if not isinstance(block, dict):
        return block
    fields = cast("dict[str, Any]", block)
    inner = fields.get("content")
    if isinstance(inner, list) and any(_MARK in item for item in cast("list[Any]", inner) if isinstance(item, dict)):
        fields = {**fields, "content": [_unmarked(item) for item in cast("list[Any]", inner)]}
    return {key: value for key, value in fields.items() if key != _MARK} if _MARK in fields else fields
