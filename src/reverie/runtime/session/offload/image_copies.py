"""Scale images down with Pillow, an optional dependency: the extra ``images``."""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from PIL.Image import Image

_QUALITIES: Final = (85, 70, 50)
_SMALLEST_SIDE: Final = 64


def can_scale() -> bool:
    """Say whether Pillow is installed."""
    return find_spec("PIL") is not None


def scaled(data: bytes, max_side: int, max_bytes: int) -> bytes | None:
    """Return an upright copy of an image with sides and bytes within limits, as PNG or JPEG; None if that fails."""
    from PIL import Image, ImageOps

    try:
        with Image.open(BytesIO(data)) as opened:
            opened.draft("RGB", (max_side, max_side))
            image = ImageOps.exif_transpose(opened)
        lossless = opened.format != "JPEG"
        while max(image.size) >= _SMALLEST_SIDE:
            image.thumbnail((max_side, max_side))
            made = _encoded(image, max_bytes, lossless)
            if made is not None:
                return made
            max_side = max(image.size) // 2
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):  # SyntaxError: a broken PNG
        pass
    return None


def _encoded(image: Image, max_bytes: int, lossless: bool) -> bytes | None:
    """Return an image as the first of PNG (if ``lossless``) and JPEG of falling quality that fits; else None."""
    if lossless:
        plain = image if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else image.convert("RGBA")
        made = BytesIO()
        plain.save(made, "PNG")
        if made.tell() <= max_bytes:
            return made.getvalue()
    from PIL import Image

    opaque = image.convert("RGBA")
    flat = Image.new("RGB", image.size, "white")
    flat.paste(opaque, mask=opaque.getchannel("A"))
    for quality in _QUALITIES:
        made = BytesIO()
        flat.save(made, "JPEG", quality=quality)
        if made.tell() <= max_bytes:
            return made.getvalue()
    return None
