"""Images by their first bytes: type, pixels and tokens, and the reason for which a provider would refuse one.

The totals of a request count the pages of PDF documents too.
The limits are those of the page build-with-claude/vision; a model's own values are in its facts.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Mapping
from math import ceil, sqrt
from typing import Any, Final, TypeAlias, cast

from ...model_facts import ModelFacts
from ...values import record
from ..decisions import NO_PREFIX, PrefixRendered
from .documents import document_pages, has_pages, pdf_data

Block: TypeAlias = dict[str, Any]

PATCH_PIXELS: Final = 28
"""The side of the square of pixels that a model reads as one token."""
GENERAL: Final = ModelFacts("", (), "build-with-claude/vision", "2026-11-16")
"""The limits that hold for every model; no log makes a request beyond them."""
TEXT_BYTES: Final = 6_000_000
"""The part of a request's body that is left for text: a window of a million tokens has about 5 MB of it."""
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
# All formats but JPEG have their size in the first 32 bytes; a JPEG may have a photo's data and a colour profile first.
_FIRST_CHARS: Final = 4_096
_MORE_CHARS: Final = 262_144
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG: Final = b"\xff\xd8\xff"
_FRAME_MARKERS: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE_MARKERS: Final = frozenset({0x01, *range(0xD0, 0xD9)})


@record
class ImageHead:
    """The type and the size of an image, as its first bytes give them."""

    media_type: str
    width: int
    height: int

    @property
    def longest(self) -> int:
        """The longer side in pixels."""
        return max(self.width, self.height)


@record
class DecodedHead:
    """The head of an image in base64; None if the bytes are no known image or the text is no valid base64."""

    valid: bool
    head: ImageHead | None = None


def image_head(data: bytes) -> ImageHead | None:
    """Return the type and size of a PNG, JPEG, GIF or WebP image, or None if these bytes do not hold them."""
    if data.startswith(_PNG):
        size = _sized(data[16:24], 4) if data[12:16] == b"IHDR" else None
        kind = "image/png"
    elif data[:6] in (b"GIF87a", b"GIF89a"):
        size, kind = _little(data[6:10], 2), "image/gif"
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        size, kind = _webp_size(data), "image/webp"
    else:
        size, kind = (_jpeg_size(data) if data.startswith(_JPEG) else None), "image/jpeg"
    return ImageHead(kind, *size) if size is not None and all(size) else None


def decoded_head(base64_text: str) -> DecodedHead:
    """Return the head of an image in base64, and whether all of the text is valid base64."""
    if not _is_base64(base64_text):
        return DecodedHead(valid=False)
    return DecodedHead(True, _head_of(base64_text))


def image_data(block: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return an image block's data in base64 and its declared type; None for a URL, a file or another block."""
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, Mapping):
        return None
    fields = cast("Mapping[str, Any]", source)
    data, media = fields.get("data"), fields.get("media_type")
    return (
        (data, media) if fields.get("type") == "base64" and isinstance(data, str) and isinstance(media, str) else None
    )


def image_problem(block: Mapping[str, Any], facts: ModelFacts, many: bool) -> str | None:
    """Return the reason for which a provider would refuse an image block, or None.

    ``many`` says whether the request has more images than ``facts.many_images``. An image that is given by its URL or
    file id is not looked at.
    """
    given = image_data(block)
    if given is None:
        return None
    data, declared = given
    if len(data) > facts.max_image_bytes:
        limit = facts.max_image_bytes
        return f"image exceeds {limit // 1_000_000} MB maximum: {len(data)} bytes > {limit} bytes"
    decoded = decoded_head(data)
    if not decoded.valid:
        return "invalid base64 data"
    head = decoded.head
    if head is None:
        return "Could not process image"
    if head.media_type != declared:
        return f"Image does not match the provided media type {declared}: it is {head.media_type}"
    if head.longest > facts.max_image_side:
        return f"At least one of the image dimensions exceed max allowed size: {facts.max_image_side} pixels"
    if many and head.longest > facts.many_images_side:
        return (
            "At least one of the image dimensions exceed max allowed size for many-image requests: "
            f"{facts.many_images_side} pixels"
        )
    return None


def image_tokens(width: int, height: int, facts: ModelFacts) -> int:
    """Return the tokens of an image: one for each patch, after the provider has scaled a larger image down."""
    scale = min(1.0, facts.image_side / max(width, height))
    tokens = _patches(width * scale, height * scale)
    if tokens > facts.image_tokens:
        scale *= sqrt(facts.image_tokens / tokens)
        tokens = _patches(width * scale, height * scale)
    return min(tokens, facts.image_tokens)


def is_media(block: Mapping[str, Any]) -> bool:
    """Say whether a block is an image, or a document that the provider reads page by page."""
    return block["type"] == "image" or has_pages(block)


def media_in(blocks: Iterable[Block]) -> Iterator[tuple[int, Block]]:
    """Yield the images and PDF documents among these blocks in order, those inside tool results too.

    Each has its number: images count from 0 upwards, documents from -1 downwards, so that the numbers of images in
    older logs stay as they are.
    """
    images = documents = 0
    for block in blocks:
        inner = block.get("content") if block["type"] == "tool_result" else [block]
        for part in cast("list[Block]", inner) if isinstance(inner, list) else ():
            if part["type"] == "image":
                yield images, part
                images += 1
            elif is_media(part):
                documents += 1
                yield -documents, part


@record
class ImageTotals:
    """The images and PDF documents of a view together: the limits of a request are about all of them."""

    count: int = 0
    """The number of images."""
    chars: int = 0
    """The characters of their data in base64, and of the documents' data."""
    wide: int = 0
    """Images with a side that is too long once there are many of them."""
    largest: int = 0
    """The characters of the largest image."""
    pages: int = 0
    """The pages of the documents, which count like images."""
    documents: int = 0

    def __add__(self, other: ImageTotals) -> ImageTotals:
        if not other.count and not other.documents:  # most messages have no image
            return self
        return ImageTotals(
            self.count + other.count,
            self.chars + other.chars,
            self.wide + other.wide,
            max(self.largest, other.largest),
            self.pages + other.pages,
            self.documents + other.documents,
        )

    def excess(self, limits: PrefixRendered | ModelFacts | None) -> str:
        """Return the reason for which a request with these limits may not have all of the images; empty if it may."""
        limits = limits or NO_PREFIX
        if self.count + self.pages > limits.max_images:
            return f"more than {limits.max_images} images{' or PDF pages' if self.pages else ''}"
        if self.chars > max_media_chars(limits):
            return f"images of more than {max_media_chars(limits) // 1_000_000} MB in all"
        if self.wide and self.is_many(limits):
            return f"images wider than {GENERAL.many_images_side} pixels among more than {GENERAL.many_images}"
        largest = limits.max_image_bytes
        return f"an image of more than {largest // 1_000_000} MB" if self.largest > largest else ""

    def is_many(self, limits: PrefixRendered | ModelFacts) -> bool:
        """Say whether there are so many images that each of them has to be smaller."""
        documents = self.documents if limits.documents_are_images else 0
        return self.count + documents > GENERAL.many_images


def max_media_chars(limits: PrefixRendered | ModelFacts) -> int:
    """Return the most base64 that a request may have beside its text."""
    return limits.max_body_bytes - TEXT_BYTES


NO_IMAGES: Final = ImageTotals()


def image_totals(media: Iterable[Block]) -> ImageTotals:
    """Return the totals of these images and PDF documents."""
    total = NO_IMAGES
    for block in media:
        if block["type"] == "document":
            total += ImageTotals(chars=len(pdf_data(block) or ""), pages=document_pages(block), documents=1)
            continue
        given = image_data(block)
        if given is None:
            total += ImageTotals(1)
            continue
        head = base64_head(given[0])
        wide = head is not None and head.longest > GENERAL.many_images_side
        total += ImageTotals(1, len(given[0]), int(wide), len(given[0]))
    return total


def _patches(width: float, height: float) -> int:
    return ceil(width / PATCH_PIXELS) * ceil(height / PATCH_PIXELS)


def base64_head(base64_text: str) -> ImageHead | None:
    """Return the head of an image in base64 without a check of the rest of the text."""
    try:
        return _head_of(base64_text)
    except ValueError:
        return None


def _head_of(text: str) -> ImageHead | None:
    for chars in (_FIRST_CHARS, _MORE_CHARS, len(text)):
        head = image_head(binascii.a2b_base64(text[:chars]))
        if head is not None or len(text) <= chars or not text.startswith("/9j/"):
            return head
    return None


def _is_base64(text: str) -> bool:
    if not text or len(text) % 4 or not text.isascii():
        return False
    rest = text.encode().translate(None, _BASE64)
    return rest in (b"", b"=", b"==") and text.endswith(rest.decode())


def _sized(field: bytes, size: int) -> tuple[int, int] | None:
    """Return two numbers of ``size`` bytes each, the high byte first, or None if bytes are missing."""
    if len(field) != 2 * size:
        return None
    return int.from_bytes(field[:size], "big"), int.from_bytes(field[size:], "big")


def _little(field: bytes, size: int) -> tuple[int, int] | None:
    if len(field) != 2 * size:
        return None
    return int.from_bytes(field[:size], "little"), int.from_bytes(field[size:], "little")


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        size = _little(data[24:30], 3)
        return size and (size[0] + 1, size[1] + 1)
    if kind == b"VP8L" and data[20:21] == b"\x2f" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        size = _little(data[26:30], 2)
        return size and (size[0] & 0x3FFF, size[1] & 0x3FFF)
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height from the frame header, which follows segments of any length; None if it is missing."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill bytes may come before a marker
            at += 1
        elif marker in _BARE_MARKERS:
            at += 2
        elif marker in _FRAME_MARKERS:
            size = _sized(data[at + 5 : at + 9], 2)
            return size and (size[1], size[0])
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
