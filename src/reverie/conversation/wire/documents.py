"""PDF documents by their bytes: the number of pages, and the reason for which a provider would refuse one.

The count needs no PDF library: it finds page objects, also those in compressed object streams. The limits are those of
the page build-with-claude/pdf-support; a model's own values are in its facts.
"""

from __future__ import annotations

import binascii
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

PDF: Final = "application/pdf"
_PAGE: Final = re.compile(rb"/Type\s*/Page(?![A-Za-z0-9])")
_COUNT: Final = re.compile(rb"/Type\s*/Pages\b[^>]*?/Count\s+(\d{1,6})|/Count\s+(\d{1,6})[^>]*?/Type\s*/Pages\b")
_NUMBER: Final = re.compile(rb"(\d+)\s+\d+\s+\Z")
_FIRST: Final = re.compile(rb"/First\s+(\d{1,9})")
_STREAM: Final = re.compile(rb"stream\r?\n")
_HEAD_BYTES: Final = 1_024
_MAX_STREAM_BYTES: Final = 16_000_000
"""The most that one object stream is unpacked to, so that a small file cannot fill the memory."""
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def pdf_data(block: Mapping[str, Any]) -> str | None:
    """Return the data in base64 of a PDF document block; None for a text, a URL, a file or another block."""
    source = block.get("source")
    if block.get("type") != "document" or not isinstance(source, Mapping):
        return None
    fields = cast("Mapping[str, Any]", source)
    data = fields.get("data")
    return data if fields.get("type") == "base64" and isinstance(data, str) else None


def has_pages(block: Mapping[str, Any]) -> bool:
    """Say whether a block is a document that the provider reads page by page; one of text is not."""
    source = block.get("source")
    if block.get("type") != "document" or not isinstance(source, Mapping):
        return False
    return cast("Mapping[str, Any]", source).get("type") in ("base64", "url", "file")


def document_pages(block: Mapping[str, Any]) -> int:
    """Return the pages of a document block that count for a request: 1 if unknown, 0 for a document of text."""
    if not has_pages(block):
        return 0
    data = pdf_data(block)
    return 1 if data is None else _pages_of(data)


@lru_cache(maxsize=8)
def _pages_of(data: str) -> int:
    try:
        return pdf_page_count(binascii.a2b_base64(data))
    except ValueError:
        return 1


def pdf_problem(block: Mapping[str, Any]) -> str | None:
    """Return the reason for which a provider would refuse a PDF document of any length, or None."""
    data = pdf_data(block)
    if data is None:
        return None
    rest = data.encode("utf-8", "replace").translate(None, _BASE64)
    if not data or len(data) % 4 or rest not in (b"", b"=", b"==") or not data.endswith(rest.decode("latin-1")):
        return "invalid base64 data"
    head = binascii.a2b_base64(data[: _HEAD_BYTES // 3 * 4])
    return None if b"%PDF" in head else "The PDF specified was not valid."


def pdf_page_count(data: bytes) -> int:
    """Return the number of pages in a PDF; 1 if it cannot be found."""
    pages = {_object_number(data, found.start()) for found in _PAGE.finditer(data)}
    counts = list(_counts(data))
    for stream, first in _object_streams(data):
        pages |= _packed_pages(stream, first)
        counts += _counts(stream)
    return len(pages) or max(counts, default=0) or 1


def _object_number(data: bytes, at: int) -> int:
    """Return the number of the object around a place; a newer version of an object has the same number."""
    found = data.rfind(b"obj", 0, at)
    number = _NUMBER.search(data[max(0, found - 24) : found]) if found > 0 else None
    return int(number[1]) if number is not None else -at


def _counts(data: bytes) -> Iterator[int]:
    for found in _COUNT.finditer(data):
        yield int(found[1] or found[2])


def _object_streams(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each object stream, unpacked, with the offset of its first object."""
    at = data.find(b"/ObjStm")
    while at >= 0:
        opening = _STREAM.search(data, at)
        end = data.find(b"endstream", at)
        if opening is None or end < opening.end():
            return
        entries = data[max(0, data.rfind(b"obj", 0, at)) : opening.start()]
        first = _FIRST.search(entries)
        packed = data[opening.end() : end]
        if first is not None:
            yield _unpacked(packed) if b"FlateDecode" in entries else packed, int(first[1])
        at = data.find(b"/ObjStm", end)


def _unpacked(packed: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(packed, _MAX_STREAM_BYTES)
    except zlib.error:
        return b""


def _packed_pages(stream: bytes, first: int) -> set[int]:
    """Return the numbers of the page objects in an object stream, which begins with pairs of a number and an offset."""
    fields = stream[:first].split()
    if not fields or not all(field.isdigit() for field in fields):
        return set()
    numbers, offsets = [int(field) for field in fields[::2]], [int(field) for field in fields[1::2]]
    places = (bisect_right(offsets, found.start() - first) - 1 for found in _PAGE.finditer(stream, first))
    return {numbers[place] for place in places if place >= 0}
