"""Small makers of images and documents: real PNG and PDF files of any size, and the heads of other formats."""

from __future__ import annotations

import base64
import random
import struct
import zlib
from typing import Any

__all__ = ["gif_head", "image_block", "jpeg_head", "pdf", "pdf_block", "png", "webp_head"]


def png(width: int, height: int, *, at_least_bytes: int = 0) -> bytes:
    """Return a valid grey PNG; ``at_least_bytes`` adds noise that does not compress, in a chunk that readers skip."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + b"\x80" * width) * height, 1)
    noise = random.Random(width * height).randbytes(at_least_bytes)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    extra = chunk(b"noIs", noise) if noise else b""
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def jpeg_head(width: int, height: int, *, before_bytes: int = 0) -> bytes:
    """Return the segments of a JPEG up to its frame header; ``before_bytes`` of a photo's data come first."""
    segments = b""
    while before_bytes > 0:
        size = min(before_bytes, 65_000)
        segments += b"\xff\xe1" + struct.pack(">H", size + 2) + b"\0" * size
        before_bytes -= size
    return b"\xff\xd8" + segments + b"\xff\xc0" + struct.pack(">HBHH", 11, 8, height, width) + b"\1\1\x11\0"


def gif_head(width: int, height: int) -> bytes:
    """Return the head of a GIF."""
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0"


def webp_head(kind: str, width: int, height: int) -> bytes:
    """Return the head of a WebP image of one of its three kinds."""
    if kind == "VP8X":
        body = b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == "VP8L":
        body = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little")
    else:
        body = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return (
        b"RIFF"
        + struct.pack("<I", 12 + len(body))
        + b"WEBP"
        + kind.encode().ljust(4)
        + struct.pack("<I", len(body))
        + body
    )


def pdf(pages: int, *, packed: bool = False, at_least_bytes: int = 0) -> bytes:
    """Return a PDF with empty pages; ``packed`` puts all objects but a stream into a compressed object stream."""
    kids = b" ".join(b"%d 0 R" % (number + 3) for number in range(pages))
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, pages),
        **{number + 3: b"<< /Type /Page /Parent 2 0 R >>" for number in range(pages)},
    }
    noise = random.Random(pages).randbytes(at_least_bytes)
    extra = b"9998 0 obj\n<< /Length %d >>\nstream\n%s\nendstream\nendobj\n" % (len(noise), noise) if noise else b""
    if not packed:
        body = b"".join(b"%d 0 obj\n%s\nendobj\n" % one for one in objects.items())
    else:
        places, inner = b"", b""
        for number, value in objects.items():
            places += b"%d %d " % (number, len(inner))
            inner += value + b" "
        stream = zlib.compress(places + inner)
        fields = (len(objects), len(places), len(stream))
        head = b"<< /Type /ObjStm /N %d /First %d /Filter /FlateDecode /Length %d >>" % fields
        body = b"9999 0 obj\n" + head + b"\nstream\n" + stream + b"\nendstream\nendobj\n"
    return b"%PDF-1.7\n" + body + extra + b"trailer << /Root 1 0 R >>\n%%EOF\n"


def pdf_block(data: bytes | str) -> dict[str, Any]:
    """Return a document block with these bytes, or with a text in place of their base64."""
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": text}}


def image_block(data: bytes | str, media_type: str = "image/png") -> dict[str, Any]:
    """Return an image block with these bytes, or with a text in place of their base64."""
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": text}}
