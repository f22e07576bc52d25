"""The token count of this server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from ...conversation.wire.canonical import canonical_block
from ...conversation.wire.documents import document_pages

TokenCounter: TypeAlias = "Callable[[Any], int]"

_BYTES_PER_TOKEN: Final = 4
_MEDIA_TOKENS: Final = 2_000
_UNCOUNTED: Final = ("signature",)


def count_block_tokens(block: Any) -> int:
    """Return the tokens of a block: one per 4 bytes of JSON, at least 1; 2,000 per image or PDF page; 0 for
    signatures.
    """
    media, bare = _without_media(block)
    return max(1, len(canonical_block(bare, "")) // _BYTES_PER_TOKEN) + media * _MEDIA_TOKENS


def _without_media(block: Any) -> tuple[int, Any]:
    """Return the number of images, pages and documents in a block, and the block without their bytes."""
    if not isinstance(block, Mapping):
        return 0, block
    fields = dict(cast(Mapping[str, Any], block))
    if fields.get("type") in ("image", "document"):
        return max(1, document_pages(fields)), {**fields, "source": None}
    for name in _UNCOUNTED:
        fields.pop(name, None)
    inner = fields.get("content")
    if not isinstance(inner, list):
        return 0, fields
    parts = [_without_media(item) for item in cast("list[Any]", inner)]
    return sum(count for count, _ in parts), {**fields, "content": [part for _, part in parts]}
